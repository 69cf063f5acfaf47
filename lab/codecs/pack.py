"""Seconds to pack and unpack a model, by golden's codec and natively."""

from __future__ import annotations

import hashlib
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from cassandra_spec.golden import Format, GoldenCodec, Packer
from cassandra_spec.golden.format import Scheme
from cassandra_spec.lab.rounds import middle
from cassandra_spec.toolkit.tables import text_table

Seconds = tuple[float, float]
"""Wall time and CPU time, worker processes included."""

Measured = dict[str, dict[str, list[Seconds]]]
"""Seconds of each round, by what was done ("exact: pack") and by codec."""


def _timed(work: Callable[[], object]) -> Seconds:
    def cpu() -> float:
        used = [resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(each.ru_utime + each.ru_stime for each in used)

    begin, used = time.perf_counter(), cpu()
    work()
    return time.perf_counter() - begin, cpu() - used


def _round(
    source: str, scheme: Scheme, codec: Packer, folder: Path, jobs: int | None
) -> list[Seconds]:
    """Time packing and unpacking."""
    from cassandra_spec.model.packing.packer import Recipe, pack_model, unpack_model
    from cassandra_spec.model.weights.sources import open_source

    opened, recipe = open_source(source), Recipe(format=Format(scheme=scheme))
    packed, plain = folder / "packed", folder / "plain"
    return [
        _timed(lambda: pack_model(opened, packed, recipe, jobs=jobs, fresh=True, codec=codec)),
        _timed(lambda: unpack_model(packed, plain, jobs=jobs, codec=codec)),
    ]


def measure_packing(
    source: str, schemes: Sequence[Scheme], *, rounds: int, jobs: int | None, progress: bool
) -> Measured:
    """Pack and unpack with both codecs in each round; the first codec takes turns.

    Raises :class:`AssertionError` if the codecs write different files.
    """
    from tqdm import tqdm

    from cassandra_spec.native.codec import NativeCodec

    codecs: list[tuple[str, Packer]] = [("golden", GoldenCodec()), ("native", NativeCodec())]
    found: Measured = {}
    todo = [(number, scheme) for number in range(rounds) for scheme in schemes]
    for number, scheme in tqdm(todo, disable=not progress, unit="round"):
        sizes = set()
        for name, codec in codecs if number % 2 == 0 else codecs[::-1]:
            with tempfile.TemporaryDirectory() as folder:
                seconds = _round(source, scheme, codec, Path(folder), jobs)
                sizes.add(_digest(Path(folder)))
            for what, each in zip(("pack", "unpack"), seconds, strict=True):
                found.setdefault(f"{scheme}: {what}", {}).setdefault(name, []).append(each)
        if len(sizes) != 1:
            raise AssertionError(f"{scheme}: both codecs must write the same files")
    return found


def _digest(folder: Path) -> str:
    """Return a hash of all files and their names."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.safetensors")):
        digest.update(str(path.relative_to(folder)).encode())
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def packing_table(found: Measured) -> str:
    """Format the result of :func:`measure_packing`."""
    titles = ("golden s", "native s", "golden / native")
    header, lines = ["", *titles, *(f"CPU: {title}" for title in titles)], []
    for what, codecs in found.items():
        line = [what]
        for kind in range(2):
            golden, native = (
                [each[kind] for each in codecs[name]] for name in ("golden", "native")
            )
            ratios = [g / n for g, n in zip(golden, native, strict=True)]
            line += [f"{statistics.median(times):.2f}" for times in (golden, native)]
            line.append(middle(ratios, 2))
        lines.append(line)
    return text_table(header, lines)
