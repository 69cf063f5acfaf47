"""A tensor in pieces: runs of whole segments that workers pack, each on its own."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.golden import CassandraError, Format, Packed, Packer, concatenate, encode
from cassandra_spec.golden.file import PackedTensor
from cassandra_spec.golden.file.description import Spec
from cassandra_spec.model.packing.calibration import Norms
from cassandra_spec.model.packing.masks import importance, kept_by_magnitude, kept_by_wanda
from cassandra_spec.model.packing.parts import Codebooks, write_part
from cassandra_spec.model.packing.plan import Recipe
from cassandra_spec.model.packing.statistics import Counts, exponent_counts
from cassandra_spec.model.weights.sources import Shared, Source, Tensor, Values, fingerprint

_PIECE = 1 << 20  # values; a piece is at least one segment


@dataclasses.dataclass(frozen=True, kw_only=True)
class Piece:
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
        """BF16 patterns, uint16 [count]."""
        return self.rows.reshape(-1)[self._place]

    @property
    def kept(self) -> NDArray[np.bool_] | None:
        """Return the mask of kept values, [count]; None: all."""
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
        """Choose the exponent of each group; None if the recipe takes the largest."""
        recipe, weights = self.recipe, None
        if recipe.group_exponents == "largest":
            return None
        if recipe.group_exponents == "weighted":
            assert self.norms is not None
            weights = np.tile(importance(self.norms), len(self.rows))[self._place]
        return codec.choose_group_exponents(
            self.values, recipe.format, kept=kept, importance=weights
        )


_PARTS_VERSION = 3  # changes when a source, recipe and norms pack to other bytes
_NORMS_MISSING = (
    "calibration must be there for prune_scores 'wanda' and group_exponents 'weighted', and is not"
)


class Task:
    """A model to pack, and its plan."""

    def __init__(self, source: Source, recipes: Mapping[str, Recipe], norms: Norms | None) -> None:
        self._shared = Shared(source)
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

    @property
    def source(self) -> Source:
        """Return the source of the weights."""
        return self._shared.source

    def only(self, tensor: Tensor) -> Task:
        """Restrict the task to one tensor."""
        one = copy.copy(self)
        one.recipes = {tensor.name: self.recipes[tensor.name]}
        one.tensors, one._norms = [tensor], None
        one.norms = {tensor.name: self.norms[tensor.name]}
        return one

    def key(self) -> str:
        """Return a hash of all inputs of the packed bytes."""
        used = any(norms is not None for norms in self.norms.values())
        digest = self._norms.digest() if used and self._norms else None
        recipes = {name: recipe.to_dict() for name, recipe in self.recipes.items()}
        body = [_PARTS_VERSION, fingerprint(self.source), recipes, digest]
        return hashlib.sha256(json.dumps(body).encode()).hexdigest()

    def plan(self) -> dict[str, Spec]:
        """Return the specs of all tensors of the file, in order."""
        specs: dict[str, Spec] = {name: tensor.raw for name, tensor in self.source.tensors.items()}
        specs |= {tensor.name: self.spec(tensor) for tensor in self.tensors}
        return storage_order(specs)

    def spec(self, tensor: Tensor) -> PackedTensor:
        """Return the packed file's spec of a tensor."""
        return PackedTensor(format=self.recipes[tensor.name].format, shape=tensor.shape)

    def pieces(
        self, tensors: Iterable[Tensor], books: Mapping[str, Codebooks] | None = None
    ) -> Iterator[Piece]:
        """Yield all pieces of some tensors, read lazily."""
        for tensor in tensors:
            book = (books or {}).get(tensor.name, Codebooks())
            format = self.recipes[tensor.name].format
            step = piece_segments(format) * format.segment
            for start in range(0, tensor.count, step):
                yield self._piece(tensor, start, min(start + step, tensor.count), book)

    def _piece(self, tensor: Tensor, start: int, stop: int, book: Codebooks) -> Piece:
        columns = tensor.shape[1]
        first, last = start // columns, -(-stop // columns)
        rows = self.source.read(tensor.name, first * columns, last * columns)
        return Piece(
            name=tensor.name,
            start=start,
            count=stop - start,
            rows=rows.reshape(-1, columns),
            recipe=self.recipes[tensor.name],
            norms=self.norms[tensor.name],
            codebooks=book,
        )


def storage_order(
    plan: Mapping[str, Spec],
) -> dict[str, Spec]:
    """Sort by item size, largest first, so that each tensor starts at a multiple of its own."""

    def item_bytes(spec: Spec) -> int:
        if isinstance(spec, PackedTensor):
            return 4  # its directory is of 32-bit numbers
        return spec.nbytes // max(math.prod(spec.shape), 1)

    return dict(sorted(plan.items(), key=lambda item: -item_bytes(item[1])))


def piece_segments(format: Format) -> int:
    """Return the segments per piece; the last piece of a tensor may have fewer."""
    return max(_PIECE // format.segment, 1)


def encode_piece(piece: Piece, codec: Packer) -> Packed:
    """Pack a piece; an error says where in the tensor it is."""
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


def count_piece(piece: Piece) -> tuple[str, Counts]:
    """Count the exponents of kept values, and of all (int64 [2, 256])."""
    kept = exponent_counts(piece.values, piece.kept)
    return piece.name, np.stack([kept, exponent_counts(piece.values)])


def count_tensor(task: Task) -> tuple[str, Counts]:
    """Count the exponents of a whole tensor."""
    (tensor,) = task.tensors
    return tensor.name, sum(
        (count_piece(piece)[1] for piece in task.pieces([tensor])), np.zeros((2, 256), np.int64)
    )


TensorJob = tuple[Task, Codebooks, Path]
"""One tensor, its codebooks, and the file to write."""


def pack_tensor(job: TensorJob, *, codec: Packer) -> int:
    """Pack a whole tensor into a file; returns the number of saturated values."""
    task, books, path = job
    (tensor,) = task.tensors
    pieces = task.pieces([tensor], {tensor.name: books})
    packed = joined((encode_piece(piece, codec) for piece in pieces), task.spec(tensor).format)
    write_part(path, tensor.name, packed)
    return packed.saturated


def joined(parts: Iterable[Packed], format: Format) -> Packed:
    """Join the pieces of a tensor; a tensor without values has no pieces."""
    return (
        concatenate(pieces) if (pieces := list(parts)) else encode(np.zeros(0, np.uint16), format)
    )
