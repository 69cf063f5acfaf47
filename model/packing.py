"""Whole models into the format and back, tensor by tensor, in pieces that workers share.

A piece is a run of whole segments; pieces of a tensor are packed on their own with the tensor's
codebooks and joined (:func:`golden.concatenate`), so that memory is bounded by the packed size of
the largest tensor plus a few pieces for each worker.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from golden import (
    CassandraError,
    Format,
    Packed,
    choose_group_exponents,
    concatenate,
    decode_draft,
    decode_target,
    encode,
)
from golden.file import PackedFile, PackedTensor, RawTensor, Writer
from model.masks import check_prune, kept_by_magnitude
from model.output import staged_directory
from model.parallel import Workers
from model.sources import (
    MODEL_FILE,
    Source,
    Tensor,
    Values,
    copy_companions,
    packed_tensors,
    read_config,
)
from model.statistics import Counts, exponent_counts, frequent_exponents

__all__ = [
    "Outcome",
    "Recipe",
    "decode_tensors",
    "open_packed",
    "pack_model",
    "pack_values",
    "unpack_model",
]

_PIECE = 1 << 20  # values; a piece is at least one segment


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe:
    """How the tensors of a model are packed."""

    format: Format = dataclasses.field(default_factory=Format)
    prune: float = 0.0  # fraction of each output row, by magnitude, that the draft does without
    group_exponents: Literal["largest", "chosen"] = "largest"  # chosen: for a closer draft (exact)
    nonfinite: Literal["error", "saturate"] = "error"  # saturate: to the largest finite value (mx)

    def __post_init__(self) -> None:
        check_prune(self.prune)
        scheme = self.format.scheme
        if self.group_exponents == "chosen" and scheme != "exact":
            raise CassandraError(f"group_exponents must be 'largest' in scheme {scheme}")
        if self.nonfinite == "saturate" and scheme != "mx":
            raise CassandraError(f"nonfinite must be 'error' in scheme {scheme}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """What packing or unpacking has done."""

    values: int  # in packed tensors
    bytes: int  # size of the file that was written
    saturated: int = 0  # values that were not finite and were replaced


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Piece:
    """Segments of one tensor, with what a worker needs to pack them."""

    name: str
    start: int  # first value
    count: int  # values
    rows: NDArray[np.uint16]  # [rows, columns]: the rows that the values lie in
    recipe: Recipe
    codebook: tuple[int, ...] | None = None
    pruned_codebook: tuple[int, ...] | None = None

    @property
    def _place(self) -> slice:
        skip = self.start % self.rows.shape[1]
        return slice(skip, skip + self.count)

    @property
    def values(self) -> Values:
        return self.rows.reshape(-1)[self._place]

    @property
    def kept(self) -> NDArray[np.bool_] | None:
        if not self.recipe.prune:
            return None
        return kept_by_magnitude(self.rows, self.recipe.prune).reshape(-1)[self._place]


def pack_values(rows: NDArray[np.uint16], recipe: Recipe, *, name: str = "tensor") -> Packed:
    """Pack one tensor that is in memory; ``rows`` is uint16 [rows, columns] of BF16 patterns."""
    return _encode(_Piece(name=name, start=0, count=rows.size, rows=rows, recipe=recipe))


def pack_model(
    source: Source,
    destination: Path,
    recipe: Recipe,
    *,
    jobs: int | None = None,
    progress: bool = False,
) -> Outcome:
    """Write ``source`` as a packed model into the new directory ``destination``.

    ``jobs`` worker processes, all cores by default. Raises :class:`CassandraError` (one line) and
    ``OSError``; then, and when interrupted, nothing is left behind.
    """
    tensors = packed_tensors(source)
    plan = _packing_plan(source, recipe.format)
    with staged_directory(destination) as folder, Workers(jobs) as workers:
        source.save_companions(folder)
        pieces = _pieces(source, tensors, recipe)
        if recipe.format.scheme == "unary":
            books = _choose_codebooks(workers, pieces, tensors, recipe.format, progress)
            pieces = _with_codebooks(_pieces(source, tensors, recipe), books)
        results = workers.map(_encode, pieces)
        saturated = 0
        with _bar("packing", tensors, progress) as bar, Writer(folder / MODEL_FILE, plan) as out:
            for name, spec in plan.items():
                if isinstance(spec, RawTensor):
                    out.write_raw(name, [source.read_raw(name)])
                    continue
                packed = _join(results, spec, bar.update)
                saturated += packed.saturated
                out.write_packed(name, packed)
        size = (folder / MODEL_FILE).stat().st_size
    return Outcome(values=_total(tensors), bytes=size, saturated=saturated)


def open_packed(path: Path) -> PackedFile:
    """The file of a packed model, named by its directory or by itself."""
    return PackedFile(path / MODEL_FILE if path.is_dir() else path)


def unpack_model(
    path: Path,
    destination: Path,
    *,
    draft: bool = False,
    jobs: int | None = None,
    progress: bool = False,
) -> Outcome:
    """Write the target values (or the draft values) of a packed model as plain BF16 safetensors.

    ``path`` is the directory of the packed model. Errors are those of :func:`pack_model`.
    """
    read_config(path)
    packed = open_packed(path)
    plan = _storage_order({**packed.others, **{k: _plain(v) for k, v in packed.tensors.items()}})
    with staged_directory(destination) as folder, Workers(jobs) as workers:
        copy_companions(path, folder)
        names = [name for name in plan if name in packed.tensors]
        results = workers.map(partial(_decode, draft=draft), _parts(packed, names))
        with (
            _bar("unpacking", packed.tensors.values(), progress) as bar,
            Writer(folder / MODEL_FILE, plan) as out,
        ):
            for name in plan:
                if name in packed.others:
                    out.write_raw(name, [packed.read_raw(name)])
                else:
                    out.write_raw(name, _chunks(results, packed.tensors[name], bar.update))
        size = (folder / MODEL_FILE).stat().st_size
    return Outcome(values=_total(packed.tensors.values()), bytes=size)


def decode_tensors(
    packed: PackedFile, *, draft: bool = False, jobs: int | None = None, progress: bool = False
) -> Iterator[tuple[str, Values]]:
    """Every packed tensor by name with its target values (or draft values), BF16 patterns, flat."""
    with Workers(jobs) as workers, _bar("decoding", packed.tensors.values(), progress) as bar:
        results = workers.map(partial(_decode, draft=draft), _parts(packed, packed.tensors))
        for name, spec in packed.tensors.items():
            parts = []
            for part in itertools.islice(results, _piece_count(spec)):
                bar.update(part.size)
                parts.append(part)
            yield name, np.concatenate(parts) if parts else np.zeros(0, np.uint16)


# --- plans --------------------------------------------------------------------------------------


def _packing_plan(source: Source, format: Format) -> dict[str, RawTensor | PackedTensor]:
    return _storage_order(
        {
            name: tensor.raw
            if tensor.kind == "other"
            else PackedTensor(format=format, shape=tensor.shape)
            for name, tensor in source.tensors.items()
        }
    )


def _storage_order(
    plan: Mapping[str, RawTensor | PackedTensor],
) -> dict[str, RawTensor | PackedTensor]:
    """Largest items first, so that each tensor starts at a multiple of its item size."""
    return dict(sorted(plan.items(), key=lambda item: -_item_bytes(item[1])))


def _item_bytes(spec: RawTensor | PackedTensor) -> int:
    if isinstance(spec, PackedTensor):
        return 4  # the directory
    return spec.nbytes // max(int(np.prod(spec.shape, dtype=np.int64)), 1)


def _plain(spec: PackedTensor) -> RawTensor:
    return RawTensor(dtype="BF16", shape=spec.shape, nbytes=2 * spec.count)


# --- packing ------------------------------------------------------------------------------------


def _piece_segments(format: Format) -> int:
    return max(_PIECE // format.segment, 1)


def _piece_count(spec: PackedTensor) -> int:
    return -(-spec.segments // _piece_segments(spec.format))


def _pieces(source: Source, tensors: Iterable[Tensor], recipe: Recipe) -> Iterator[_Piece]:
    for tensor in tensors:
        step = _piece_segments(recipe.format) * recipe.format.segment
        for start in range(0, tensor.count, step):
            yield _read_piece(source, tensor, start, min(start + step, tensor.count), recipe)


def _read_piece(source: Source, tensor: Tensor, start: int, stop: int, recipe: Recipe) -> _Piece:
    columns = tensor.shape[1]
    first, last = start // columns, -(-stop // columns)
    rows = source.read(tensor.name, first * columns, last * columns).reshape(-1, columns)
    return _Piece(name=tensor.name, start=start, count=stop - start, rows=rows, recipe=recipe)


def _encode(piece: _Piece) -> Packed:
    recipe, values, kept = piece.recipe, piece.values, piece.kept
    try:
        chosen = None
        if recipe.group_exponents == "chosen":
            chosen = choose_group_exponents(values, recipe.format, kept=kept)
        return encode(
            values,
            recipe.format,
            kept=kept,
            codebook=piece.codebook,
            pruned_codebook=piece.pruned_codebook,
            group_exponents=chosen,
            nonfinite=recipe.nonfinite,
        )
    except CassandraError as error:
        where = f"{piece.name}, from value {piece.start} on"
        raise CassandraError(f"{where}: {error}") from error


def _join(results: Iterator[Packed], spec: PackedTensor, update: Callable[[int], object]) -> Packed:
    """The next tensor from the pieces that come."""
    if not spec.count:
        return encode(np.zeros(0, np.uint16), spec.format)
    parts = []
    for part in itertools.islice(results, _piece_count(spec)):
        update(part.count)
        parts.append(part)
    return concatenate(parts)


# --- codebooks ----------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Codebooks:
    codebook: tuple[int, ...]
    pruned_codebook: tuple[int, ...] | None


def _choose_codebooks(
    workers: Workers,
    pieces: Iterable[_Piece],
    tensors: list[Tensor],
    format: Format,
    progress: bool,
) -> dict[str, _Codebooks]:
    """Codebooks of every tensor by frequency (docs/format.md, 4.1), over all of its pieces."""
    counts: dict[str, Counts] = defaultdict(lambda: np.zeros((2, 256), np.int64))
    with _bar("counting", tensors, progress) as bar:
        for name, found in workers.map(_count, pieces):
            counts[name] += found
            bar.update(int(found[1].sum()))
    return {name: _codebooks(found, format) for name, found in counts.items()}


def _count(piece: _Piece) -> tuple[str, Counts]:
    """Exponents of the values that the mask keeps, and of all (int64 [2, 256])."""
    kept = exponent_counts(piece.values, piece.kept)
    return piece.name, np.stack([kept, exponent_counts(piece.values)])


def _codebooks(counts: Counts, format: Format) -> _Codebooks:
    kept, every = counts
    book = frequent_exponents(kept, format.codebook)
    if format.pruned_exponent == "raw":
        return _Codebooks(codebook=book, pruned_codebook=None)
    pruned = every.copy()
    pruned[list(book)] -= kept[list(book)]
    return _Codebooks(
        codebook=book, pruned_codebook=frequent_exponents(pruned, format.codebook - 1)
    )


def _with_codebooks(pieces: Iterable[_Piece], books: Mapping[str, _Codebooks]) -> Iterator[_Piece]:
    for piece in pieces:
        book = books[piece.name]
        yield dataclasses.replace(
            piece, codebook=book.codebook, pruned_codebook=book.pruned_codebook
        )


# --- unpacking ----------------------------------------------------------------------------------


def _parts(packed: PackedFile, names: Iterable[str]) -> Iterator[tuple[str, int, Packed]]:
    for name in names:
        tensor = packed.read_packed(name)
        step = _piece_segments(tensor.format)
        for start in range(0, len(tensor.directory), step):
            yield name, start, tensor.part(start, start + step)


def _decode(job: tuple[str, int, Packed], *, draft: bool) -> Values:
    name, start, part = job
    try:
        return decode_draft(part) if draft else decode_target(part)
    except CassandraError as error:
        raise CassandraError(f"{name}, from segment {start} on: {error}") from error


def _chunks(
    results: Iterator[Values], spec: PackedTensor, update: Callable[[int], object]
) -> Iterator[NDArray[np.uint8]]:
    for values in itertools.islice(results, _piece_count(spec)):
        update(values.size)
        yield values.astype("<u2", copy=False).view(np.uint8)


# --- progress -----------------------------------------------------------------------------------


def _total(tensors: Iterable[Tensor | PackedTensor]) -> int:
    return sum(tensor.count for tensor in tensors)


def _bar(title: str, tensors: Iterable[Tensor | PackedTensor], progress: bool) -> tqdm[None]:
    return tqdm(
        desc=f"{title:9}",
        total=_total(tensors),
        unit=" values",
        unit_scale=True,
        disable=not progress,
    )
