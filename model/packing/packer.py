"""Whole models into the format and back, tensor by tensor, in pieces that workers share.

A piece is a run of whole segments; pieces of a tensor are packed on their own with the tensor's
codebooks and joined (:func:`golden.concatenate`), so that memory is bounded by the packed size of
the largest tensor plus a few pieces for each worker.

Packed tensors are parts in a directory beside the destination
(:mod:`cassandra_spec.model.packing.parts`) until all are there; the model is then written from
them. Packing that was interrupted goes on with the parts.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import math
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from cassandra_spec.golden import (
    CassandraError,
    Codec,
    Format,
    GoldenCodec,
    Packed,
    Packer,
    concatenate,
    encode,
)
from cassandra_spec.golden.errors import FileError
from cassandra_spec.golden.file import PackedFile, PackedTensor, RawTensor, SafetensorsFile, Writer
from cassandra_spec.golden.file.description import Spec
from cassandra_spec.golden.model_config import read_config
from cassandra_spec.model.output import resumable_directory, staged_directory
from cassandra_spec.model.packing.calibration import Norms
from cassandra_spec.model.packing.masks import importance, kept_by_magnitude, kept_by_wanda
from cassandra_spec.model.packing.parts import Codebooks, Parts
from cassandra_spec.model.packing.plan import Override, PackPlan, Recipe
from cassandra_spec.model.packing.statistics import (
    Counts,
    codebook_exponents,
    exponent_counts,
    frequent_exponents,
)
from cassandra_spec.model.parallel import Workers
from cassandra_spec.model.weights.mark import mark_packed, unmark
from cassandra_spec.model.weights.sources import (
    MODEL_FILE,
    Source,
    Tensor,
    Values,
    copy_companions,
    fingerprint,
)

__all__ = [
    "Outcome",
    "Override",
    "PackPlan",
    "Recipe",
    "decode_tensors",
    "open_packed",
    "pack_model",
    "unpack_model",
]

_Part = TypeVar("_Part", Packed, Values)
_PIECE = 1 << 20  # values; a piece is at least one segment


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """What packing or unpacking has done."""

    values: int  # in packed tensors
    bytes: int  # size of the file that was written
    saturated: int = 0  # values that were not finite and were replaced
    resumed: int = 0  # tensors that an interrupted run had packed


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Piece:
    """Segments of one tensor, with what a worker needs to pack them."""

    name: str
    start: int  # first value
    count: int  # values
    rows: NDArray[np.uint16]  # [rows, columns]: the rows that the values lie in
    recipe: Recipe
    norms: NDArray[np.float32] | None = None  # [columns], of the input channels
    codebooks: Codebooks = dataclasses.field(default_factory=Codebooks)

    @property
    def _place(self) -> slice:
        skip = self.start % self.rows.shape[1]
        return slice(skip, skip + self.count)

    @property
    def values(self) -> Values:
        return self.rows.reshape(-1)[self._place]

    @property
    def kept(self) -> NDArray[np.bool_] | None:
        recipe = self.recipe
        if not recipe.prune:
            return None
        if recipe.prune_scores == "magnitude":
            kept = kept_by_magnitude(self.rows, recipe.prune)
        else:
            assert self.norms is not None
            kept = kept_by_wanda(self.rows, self.norms, recipe.prune)
        return kept.reshape(-1)[self._place]

    def group_exponents(
        self, kept: NDArray[np.bool_] | None, codec: Packer
    ) -> NDArray[np.uint8] | None:
        recipe, weights = self.recipe, None
        if recipe.group_exponents == "largest":
            return None
        if recipe.group_exponents == "weighted":
            assert self.norms is not None
            weights = np.tile(importance(self.norms), len(self.rows))[self._place]
        return codec.choose_group_exponents(
            self.values, recipe.format, kept=kept, importance=weights
        )


def pack_model(
    source: Source,
    destination: Path,
    recipe: Recipe | PackPlan,
    *,
    norms: Norms | None = None,
    jobs: int | None = None,
    progress: bool = False,
    fresh: bool = False,
    codec: Packer | None = None,
) -> Outcome:
    """Write ``source`` as a packed model into the new directory ``destination``.

    ``norms`` are needed for pruning by Wanda's scores and for weighted group exponents. ``jobs``
    worker processes, all cores by default; ``codec`` is golden's by default. What an interrupted
    run of the same source, recipe and norms has packed is taken over, unless ``fresh``. Raises
    :class:`CassandraError` (one line), and leaves nothing behind then; ``OSError`` and interrupts
    leave the parts for another try.
    """
    work = _Work(source, PackPlan.of(recipe).recipes(source), norms)
    with (
        resumable_directory(destination, key=work.key(), fresh=fresh) as (folder, store),
        Workers(jobs) as workers,
    ):
        parts = Parts(store)
        if parts.restarted:
            tqdm.write("earlier parts are damaged: packing begins again", file=sys.stderr)
        resumed = len(parts.done)
        _pack_parts(work, parts, workers, progress, codec or GoldenCodec())
        source.save_companions(folder)
        mark_packed(folder)
        _write_model(work, parts, folder / MODEL_FILE, progress)
        size = (folder / MODEL_FILE).stat().st_size
        return Outcome(
            values=_total(work.tensors), bytes=size, saturated=parts.saturated, resumed=resumed
        )


def open_packed(path: Path) -> PackedFile:
    """The file of a packed model, named by its directory or by itself.

    Raises :class:`FileError` that says what to do with a directory that is not packed yet.
    """
    if not path.is_dir():
        return PackedFile(path)
    file = path / MODEL_FILE
    if not file.is_file() or "cassandra" not in SafetensorsFile(file).metadata:
        raise FileError(
            f"{path} must be a packed model: make one with `casspec pack {path} PACKED`"
        )
    return PackedFile(file)


def unpack_model(
    path: Path,
    destination: Path,
    *,
    draft: bool = False,
    jobs: int | None = None,
    progress: bool = False,
    codec: Codec | None = None,
) -> Outcome:
    """Write the target values (or the draft values) of a packed model as plain BF16 safetensors.

    ``path`` is the directory of the packed model. Errors are those of :func:`pack_model`.
    """
    read_config(path)
    packed = open_packed(path)
    plain = {
        name: RawTensor(dtype="BF16", shape=spec.shape, nbytes=2 * spec.count)
        for name, spec in packed.tensors.items()
    }
    plan = _storage_order({**packed.others, **plain})
    with staged_directory(destination) as folder, Workers(jobs) as workers:
        copy_companions(path, folder)
        unmark(folder)
        names = [name for name in plan if name in packed.tensors]
        decode = partial(_decode, draft=draft, codec=codec or GoldenCodec())
        results = workers.map(decode, _parts(packed, names))
        with (
            _bar("unpacking", packed.tensors.values(), progress) as bar,
            Writer(folder / MODEL_FILE, plan) as out,
        ):
            for name in plan:
                if name in packed.others:
                    out.write_raw(name, [packed.read_raw(name)])
                else:
                    parts = _taken(results, packed.tensors[name], bar)
                    out.write_raw(
                        name, (part.astype("<u2", copy=False).view("u1") for part in parts)
                    )
        size = (folder / MODEL_FILE).stat().st_size
    return Outcome(values=_total(packed.tensors.values()), bytes=size)


def decode_tensors(
    packed: PackedFile, *, draft: bool = False, jobs: int | None = None, progress: bool = False
) -> Iterator[tuple[str, Values]]:
    """Every packed tensor by name with its target values (or draft values), BF16 patterns, flat."""
    with Workers(jobs) as workers, _bar("decoding", packed.tensors.values(), progress) as bar:
        decode = partial(_decode, draft=draft, codec=GoldenCodec())
        results = workers.map(decode, _parts(packed, packed.tensors))
        for name, spec in packed.tensors.items():
            parts = list(_taken(results, spec, bar))
            yield name, np.concatenate(parts) if parts else np.zeros(0, np.uint16)


# --- plans --------------------------------------------------------------------------------------

_PARTS_VERSION = 3  # of what packing makes of one source, recipe and norms
_NORMS_MISSING = (
    "calibration must be there for prune_scores 'wanda' and group_exponents 'weighted', and is not"
)


class _Work:
    """What is to be packed, and how."""

    def __init__(self, source: Source, recipes: Mapping[str, Recipe], norms: Norms | None) -> None:
        self.source = source
        self.recipes = recipes
        self.tensors = [source.tensors[name] for name in recipes]
        self._norms = norms
        self.norms = {tensor.name: self._norms_of(tensor) for tensor in self.tensors}

    def _norms_of(self, tensor: Tensor) -> NDArray[np.float32] | None:
        if not self.recipes[tensor.name].needs_norms:
            return None
        if self._norms is None:
            raise CassandraError(_NORMS_MISSING)
        return self._norms.of(tensor.name, tensor.shape[1])

    def key(self) -> str:
        """A hash of all that the packed bytes depend on."""
        used = any(norms is not None for norms in self.norms.values())
        digest = self._norms.digest() if used and self._norms else None
        recipes = {name: recipe.to_dict() for name, recipe in self.recipes.items()}
        body = [_PARTS_VERSION, fingerprint(self.source), recipes, digest]
        return hashlib.sha256(json.dumps(body).encode()).hexdigest()

    def plan(self) -> dict[str, Spec]:
        """Tensors of the file, in its order."""
        specs: dict[str, Spec] = {name: tensor.raw for name, tensor in self.source.tensors.items()}
        specs |= {tensor.name: self.spec(tensor) for tensor in self.tensors}
        return _storage_order(specs)

    def spec(self, tensor: Tensor) -> PackedTensor:
        return PackedTensor(format=self.recipes[tensor.name].format, shape=tensor.shape)

    def pieces(
        self, tensors: Iterable[Tensor], books: Mapping[str, Codebooks] | None = None
    ) -> Iterator[_Piece]:
        """All pieces of some tensors, read as they are asked for."""
        for tensor in tensors:
            book = (books or {}).get(tensor.name, Codebooks())
            format = self.recipes[tensor.name].format
            step = _piece_segments(format) * format.segment
            for start in range(0, tensor.count, step):
                yield self._piece(tensor, start, min(start + step, tensor.count), book)

    def _piece(self, tensor: Tensor, start: int, stop: int, book: Codebooks) -> _Piece:
        columns = tensor.shape[1]
        first, last = start // columns, -(-stop // columns)
        rows = self.source.read(tensor.name, first * columns, last * columns)
        return _Piece(
            name=tensor.name,
            start=start,
            count=stop - start,
            rows=rows.reshape(-1, columns),
            recipe=self.recipes[tensor.name],
            norms=self.norms[tensor.name],
            codebooks=book,
        )


def _storage_order(
    plan: Mapping[str, Spec],
) -> dict[str, Spec]:
    """Largest items first, so that each tensor starts at a multiple of its item size."""

    def item_bytes(spec: Spec) -> int:
        if isinstance(spec, PackedTensor):
            return 4  # the directory
        return spec.nbytes // max(math.prod(spec.shape), 1)

    return dict(sorted(plan.items(), key=lambda item: -item_bytes(item[1])))


# --- packing ------------------------------------------------------------------------------------


def _piece_segments(format: Format) -> int:
    return max(_PIECE // format.segment, 1)


def _taken(results: Iterator[_Part], spec: PackedTensor, bar: tqdm[None]) -> Iterator[_Part]:
    """The pieces of the next tensor as they come."""
    for part in itertools.islice(results, -(-spec.segments // _piece_segments(spec.format))):
        bar.update(len(part))
        yield part


def _pack_parts(work: _Work, parts: Parts, workers: Workers, progress: bool, codec: Packer) -> None:
    """Pack what is not among the parts yet."""
    missing = [tensor for tensor in work.tensors if tensor.name not in parts.done]
    _add_codebooks(work, parts, missing, workers, progress)
    results = workers.map(partial(_encode, codec=codec), work.pieces(missing, parts.codebooks))
    done = _total(work.tensors) - _total(missing)
    with _bar("packing", work.tensors, progress, done) as bar:
        for tensor in missing:
            spec = work.spec(tensor)
            found = list(_taken(results, spec, bar))
            nothing = np.zeros(0, np.uint16)
            parts.add(tensor.name, concatenate(found) if found else encode(nothing, spec.format))


def _write_model(work: _Work, parts: Parts, path: Path, progress: bool) -> None:
    """The file of the model, from the parts and from what is not packed."""
    plan = work.plan()
    with _bar("writing", work.tensors, progress) as bar, Writer(path, plan) as out:
        for name, spec in plan.items():
            if isinstance(spec, RawTensor):
                out.write_raw(name, [work.source.read_raw(name)])
            else:
                out.write_packed(name, parts.read(name))
                bar.update(spec.count)


def _encode(piece: _Piece, codec: Packer) -> Packed:
    kept = piece.kept
    try:
        return codec.encode(
            piece.values,
            piece.recipe.format,
            kept=kept,
            codebook=piece.codebooks.codebook,
            pruned_codebook=piece.codebooks.pruned_codebook,
            group_exponents=piece.group_exponents(kept, codec),
            nonfinite=piece.recipe.nonfinite,
        )
    except CassandraError as error:
        where = f"{piece.name}, from value {piece.start} on"
        raise CassandraError(f"{where}: {error}") from error


# --- codebooks ----------------------------------------------------------------------------------


def _add_codebooks(
    work: _Work, parts: Parts, missing: Iterable[Tensor], workers: Workers, progress: bool
) -> None:
    """Codebooks of tensors in unary, by frequency over all pieces (docs/format.md, 4.1)."""
    recipes = work.recipes
    tensors = [
        tensor
        for tensor in missing
        if recipes[tensor.name].format.scheme == "unary" and tensor.name not in parts.codebooks
    ]
    if not tensors:
        return
    counts: dict[str, Counts] = defaultdict(lambda: np.zeros((2, 256), np.int64))
    with _bar("counting", tensors, progress) as bar:
        for name, found in workers.map(_count, work.pieces(tensors)):
            counts[name] += found
            bar.update(int(found[1].sum()))
    parts.set_codebooks(
        {name: _codebooks(found, recipes[name].format) for name, found in counts.items()}
    )


def _count(piece: _Piece) -> tuple[str, Counts]:
    """Exponents of the values that the mask keeps, and of all (int64 [2, 256])."""
    kept = exponent_counts(piece.values, piece.kept)
    return piece.name, np.stack([kept, exponent_counts(piece.values)])


def _codebooks(counts: Counts, format: Format) -> Codebooks:
    kept, every = counts
    book = codebook_exponents(kept, format.codebook)
    if format.pruned_exponent == "raw":
        return Codebooks(codebook=book)
    pruned = every.copy()
    pruned[list(book)] -= kept[list(book)]
    return Codebooks(codebook=book, pruned_codebook=frequent_exponents(pruned, format.codebook - 1))


# --- unpacking ----------------------------------------------------------------------------------


def _parts(packed: PackedFile, names: Iterable[str]) -> Iterator[tuple[str, int, Packed]]:
    for name in names:
        tensor = packed.read_packed(name)
        step = _piece_segments(tensor.format)
        for start in range(0, len(tensor.directory), step):
            yield name, start, tensor.part(start, start + step)


def _decode(job: tuple[str, int, Packed], *, draft: bool, codec: Codec) -> Values:
    name, start, part = job
    try:
        return codec.decode_draft(part) if draft else codec.decode_target(part)
    except CassandraError as error:
        raise CassandraError(f"{name}, from segment {start} on: {error}") from error


# --- progress -----------------------------------------------------------------------------------


def _total(tensors: Iterable[Tensor | PackedTensor]) -> int:
    return sum(tensor.count for tensor in tensors)


def _bar(
    title: str, tensors: Iterable[Tensor | PackedTensor], progress: bool, done: int = 0
) -> tqdm[None]:
    return tqdm(
        desc=f"{title:9}",
        total=_total(tensors),
        initial=done,
        unit=" values",
        unit_scale=True,
        disable=not progress,
    )
