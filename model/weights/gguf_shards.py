"""Split GGUF files: all shards of a model, from any of them."""

from __future__ import annotations

import re
from pathlib import Path

from cassandra_spec.golden.errors import FileError
from cassandra_spec.model.weights.gguf_header import Header

_NUMBER, _COUNT, _TENSORS = "split.no", "split.count", "split.tensors.count"
_MOST = 1 << 12
_NAME = re.compile(r"(?P<model>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")


def open_shards(path: Path) -> list[Header]:
    """Return the headers of a model's files in their order; the first has the model's keys.

    A file that is not split is the only one. Raises :class:`FileError` if a shard is missing or is
    not the one that its name says.
    """
    if not path.is_file():
        raise FileError(f"{path} must be a GGUF file, and is missing")
    header = Header(path)
    count = header.get(_COUNT, 1)
    if not isinstance(count, int) or not 0 <= count <= _MOST:
        raise FileError(f"{path}: {_COUNT} must be an integer up to {_MOST}, not {count!r}")
    if count < 2:
        return [header]
    headers = [Header(each) for each in _paths(path, count)]
    for number, each in enumerate(headers):
        _check_shard(each, number, count)
    _check_tensors(headers)
    return headers


def _paths(path: Path, count: int) -> list[Path]:
    match = _NAME.fullmatch(path.name)
    if match is None or int(match["count"]) != count:
        raise FileError(
            f"{path} is one of {count} shards, so its name must end in -0000N-of-{count:05}.gguf"
        )
    names = [f"{match['model']}-{number:05}-of-{count:05}.gguf" for number in range(1, count + 1)]
    shards = [path.with_name(name) for name in names]
    missing = ", ".join(each.name for each in shards if not each.is_file())
    if missing:
        raise FileError(f"{path} must lie beside all {count} shards; missing: {missing}")
    return shards


def _check_shard(header: Header, number: int, count: int) -> None:
    for key, expected in ((_NUMBER, number), (_COUNT, count)):
        if header.get(key) != expected:
            raise FileError(f"{header.path}: {key} must be {expected}, not {header.get(key)!r}")


def _check_tensors(headers: list[Header]) -> None:
    expected, total = headers[0].need(_TENSORS), sum(header.tensors for header in headers)
    if expected != total:
        raise FileError(
            f"{headers[0].path}: {_TENSORS} must be {total}, as the shards have, not {expected!r}"
        )
