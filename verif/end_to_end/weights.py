"""Weights through the gateware: packed in every scheme, decoded in both modes, compared."""

from __future__ import annotations

import dataclasses
import functools
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from cassandra_spec.golden import Format, GoldenCodec, Packed
from cassandra_spec.golden.file import PackedFile
from cassandra_spec.model.packing.packer import Recipe, open_packed, pack_model
from cassandra_spec.model.weights.sources import Shared, Source, Tensor
from cassandra_spec.toolkit.workers.pool import Workers
from cassandra_spec.verif.decoder.bulk import RtlCodec, Statistics

RECIPES = {
    "unary": Recipe(
        format=Format(scheme="unary", truncated=4), prune=0.4, prune_scores="magnitude"
    ),
    "mx": Recipe(format=Format(scheme="mx", truncated=4, group=32, fill="midpoint")),
    "exact": Recipe(
        format=Format(scheme="exact", truncated=4, group=64, fill="midpoint"),
        group_exponents="chosen",
    ),
}
"""Recipes by scheme: the paper's for unary; for the others 4 magnitude bits, nothing pruned."""

LOSSLESS = ("unary", "exact")
REPLY_SCHEME = "exact"  # whose target weights the model answers with
_PART = 1 << 20  # values that a worker checks at once


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Part:
    """Whole segments of one packed tensor."""

    name: str
    first: int  # segment
    segments: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Files:
    """Files of a worker: the packed parts, their original weights, and the output."""

    shared: Shared
    packed: Path
    written: int  # when `packed` was, in ns: another file may have had its name before
    keep: DecodedWeights | None

    def read(self, part: _Part) -> Packed:
        whole = _packed_tensor(self.packed, self.written, part.name)
        return whole.part(part.first, part.first + part.segments)


@functools.lru_cache(maxsize=1)
def _packed_tensor(path: Path, written: int, name: str) -> Packed:
    return PackedFile(path).read_packed(name)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Check:
    """Results of one part in the gateware, or of all parts of a scheme."""

    values: int = 0
    draft: Statistics = dataclasses.field(default_factory=Statistics.none)
    target: Statistics = dataclasses.field(default_factory=Statistics.none)
    mismatches: int = 0  # gateware against golden, draft and target
    lost: int = 0  # target values that are not the original ones

    def __add__(self, other: Check) -> Check:
        return Check(
            **{
                field.name: getattr(self, field.name) + getattr(other, field.name)
                for field in dataclasses.fields(self)
            }
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Work:
    """The workers: processes of this machine, or a cluster."""

    jobs: int | None = None
    cluster: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Checked:
    """One scheme: what came of each tensor, and its bits per weight by stream."""

    checks: dict[str, Check]
    bits: dict[str, dict[str, float]]

    @property
    def total(self) -> Check:
        """All tensors together."""
        return sum(self.checks.values(), Check())

    @property
    def mean_bits(self) -> dict[str, float]:
        """Bits per weight over all tensors."""
        count, mean = self.total.values, dict[str, float]()
        for name, bits in self.bits.items():
            for stream, share in bits.items():
                mean[stream] = mean.get(stream, 0.0) + share * self.checks[name].values / count
        return mean


@functools.cache
def gateware() -> RtlCodec:
    """Return this process's decoder, which supports every scheme."""
    return RtlCodec()


def _check(part: _Part, *, files: _Files) -> tuple[str, Check]:
    """Decode one part in the gateware in both modes; keep the target's values if requested."""
    golden, decoder, packed = GoldenCodec(), gateware(), files.read(part)
    draft = decoder.decode_draft(packed)
    draft_cost = decoder.latest
    target = decoder.decode_target(packed)
    mismatches = np.count_nonzero(draft != golden.decode_draft(packed))
    mismatches += np.count_nonzero(target != golden.decode_target(packed))
    start = part.first * packed.format.segment
    original = files.shared.source.read(part.name, start, start + packed.count)
    if files.keep is not None:
        files.keep.put(part.name, start, target)
    check = Check(
        values=packed.count,
        draft=draft_cost,
        target=decoder.latest,
        mismatches=int(mismatches),
        lost=int(np.count_nonzero(target != original)),
    )
    return part.name, check


def _parts(packed: PackedFile) -> Iterator[_Part]:
    for name, spec in packed.tensors.items():
        step = max(_PART // spec.format.segment, 1)
        for first in range(0, spec.segments, step):
            yield _Part(name=name, first=first, segments=step)


class DecodedWeights:
    """Tensors as they come out of the gateware, in one file that workers write."""

    def __init__(self, folder: Path, tensors: Sequence[Tensor]) -> None:
        ends = np.cumsum([0, *(tensor.count for tensor in tensors)])
        self._place = {
            tensor.name: slice(int(start), int(stop))
            for tensor, start, stop in zip(tensors, ends[:-1], ends[1:], strict=True)
        }
        self._path, self._count = folder.absolute() / "decoded", int(ends[-1])
        with self._path.open("xb") as file:
            file.truncate(2 * self._count)

    def _map(self, mode: Literal["r", "r+"]) -> NDArray[np.uint16]:
        return np.memmap(self._path, np.uint16, mode, shape=(self._count,))

    def put(self, name: str, start: int, values: NDArray[np.uint16]) -> None:
        """Store values [count] of a tensor from its value ``start`` on."""
        self._map("r+")[self._place[name]][start : start + values.size] = values

    def read(self, name: str) -> NDArray[np.uint16]:
        """Read all values of a tensor, uint16 [count]."""
        return self._map("r")[self._place[name]]

    def __contains__(self, name: str) -> bool:
        return name in self._place

    def __len__(self) -> int:
        return len(self._place)


def _check_scheme(
    source: Source, packed: PackedFile, workers: Workers, keep: DecodedWeights | None
) -> Checked:
    checks = dict.fromkeys(packed.tensors, Check())
    count = sum(spec.count for spec in packed.tensors.values())
    shown = sys.stderr.isatty()
    path = packed.path.absolute()
    files = _Files(shared=Shared(source), packed=path, written=path.stat().st_mtime_ns, keep=keep)
    with tqdm(
        desc="gateware ", total=count, unit=" values", unit_scale=True, disable=not shown
    ) as bar:
        for name, check in workers.map(partial(_check, files=files), _parts(packed)):
            checks[name] += check
            bar.update(check.values)
    bits = {name: packed.read_packed(name).bits() for name in packed.tensors}
    return Checked(checks=checks, bits=bits)


def pack_and_check(
    source: Source, scheme: str, folder: Path, work: Work, keep: DecodedWeights | None
) -> Checked:
    """Pack one scheme, decode it in both modes, compare."""
    recipe = RECIPES[scheme]
    print(f"\nscheme {scheme}, {describe(recipe)}", flush=True)
    start = time.monotonic()
    shown = sys.stderr.isatty()
    pack_model(source, folder, recipe, jobs=work.jobs, cluster=work.cluster, progress=shown)
    print(f"  packed in {time.monotonic() - start:.0f} s", flush=True)
    packed = open_packed(folder)
    start = time.monotonic()
    with Workers(work.jobs, cluster=work.cluster) as workers:
        found = _check_scheme(source, packed, workers, keep)
    total = found.total
    cycles = total.draft.cycles + total.target.cycles
    print(
        f"  through the gateware and compared in {time.monotonic() - start:.0f} s:"
        f" {cycles:,} cycles, {total.mismatches:,} mismatches",
        flush=True,
    )
    return found


def describe(recipe: Recipe) -> str:
    """Describe a recipe in a few words."""
    fmt = recipe.format
    parts = [f"t = {fmt.truncated}", f"fill {fmt.fill}"]
    if fmt.scheme != "unary":
        parts.append(f"groups of {fmt.group}")
    parts.append(f"{recipe.prune:.0%} pruned by magnitude" if recipe.prune else "nothing pruned")
    return ", ".join(parts)


def one_of_each_kind(tensors: Sequence[Tensor]) -> list[str]:
    """Return the first tensor of each kind of linear layer, by the last two parts of its name."""
    first = {".".join(tensor.name.split(".")[-2:]): tensor.name for tensor in reversed(tensors)}
    return sorted(first.values())
