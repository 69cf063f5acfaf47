"""Seal keys and values: their layout in segments, and their encoder (kv.md)."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cassandra_spec.golden import (
    CassandraError,
    Codec,
    Encoder,
    Format,
    GoldenEncoder,
    Packed,
    encode,
    keep_largest,
)
from cassandra_spec.golden.packed import Values
from cassandra_spec.model.packing.masks import kept_by_magnitude
from cassandra_spec.model.packing.statistics import exponent_counts, frequent_exponents
from cassandra_spec.native.key_values import Order, SealedFormat

LAG = 8
"""Lag of a rounded target by default; a round can have as many nodes."""

_SEGMENT_MAX = 1 << 16


@dataclasses.dataclass(frozen=True, kw_only=True)
class KeyValueFormat(SealedFormat):
    """The format and layout of sealed keys and values in torch.

    :class:`~cassandra_spec.native.key_values.SealedFormat` documents the other fields. Raises
    :class:`CassandraError` that names the field.
    """

    segment: int = _SEGMENT_MAX  # most values in a segment: the heads that go into one
    lag: int | None = None  # positions after a block that do not see it sealed; None: as needed

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.segment <= _SEGMENT_MAX:
            raise CassandraError(f"segment must be 1 to {_SEGMENT_MAX}, not {self.segment}")
        lag = (0 if self.lossless else LAG) if self.lag is None else self.lag
        object.__setattr__(self, "lag", lag)
        if lag < 0:
            raise CassandraError(f"lag must be at least 0, not {self.lag}")

    def check_nodes(self, nodes: int) -> None:
        """Refuse rounds in which a query may see a block sealed that its own pass computes."""
        assert self.lag is not None
        if not self.lossless and nodes > self.lag:
            raise CassandraError(
                f"gamma and rows must be at most {self.lag} (the lag of the keys and values),"
                f" not {nodes}"
            )

    def sealed_for(self, position: int) -> int:
        """Return the number of blocks that a query at ``position`` sees sealed.

        It depends on the position alone, and not on how many positions a pass has: that makes
        decoding with a rounded target lossless, too.
        """
        assert self.lag is not None
        return max(position - self.lag, 0) // self.block

    def check_rows(self, rows: int) -> None:
        """Refuse tiles in which a query may see a block sealed that the same tile computes."""
        for start in range(0, 0 if self.lossless else rows * self.block, rows):
            if self.sealed_for(start + rows - 1) * self.block > start:
                raise CassandraError(
                    f"lag must be larger than {self.lag} for tiles of {rows} rows"
                    f" and blocks of {self.block} positions"
                )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sealed:
    """Consecutive blocks of the keys, or of the values, of all layers."""

    packed: Packed
    draft: torch.Tensor  # draft values, float32 [layers, positions, heads, dimensions]
    target: torch.Tensor  # likewise
    draft_bytes: NDArray[np.int64]  # [blocks, layers]
    target_bytes: NDArray[np.int64]  # [blocks, layers]


class Sealer:
    """Packs and unpacks blocks of the keys, or of the values, of a sequence.

    ``encoder`` packs them (golden's by default); it is not asked where ``prune`` leaves out values
    of whole positions, which :func:`golden.encode` does by itself.
    """

    def __init__(self, kv: KeyValueFormat, codec: Codec, encoder: Encoder | None = None) -> None:
        if encoder is not None and kv.prune:
            raise CassandraError(
                f"prune must be 0 for an encoder that keeps values by vector, not {kv.prune}"
            )
        self._kv = kv
        self._codec = codec
        self._encoder = GoldenEncoder() if encoder is None else encoder
        self._codebook: tuple[int, ...] | None = None

    def seal(self, values: torch.Tensor) -> Sealed:
        """Seal whole blocks; ``values`` is [layers, positions, heads, dimensions] in BF16.

        In scheme unary the first blocks (those of the prompt, as a rule) choose the codebook.
        """
        patterns = values.contiguous().view(torch.int16).numpy().view(np.uint16)
        packed, target, draft = self.read_back(patterns)
        layers, positions = patterns.shape[:2]
        blocks = positions // self._kv.block, layers
        whole = _stored_bytes(packed, blocks, verification=True)
        return Sealed(
            packed=packed,
            draft=_floats(draft),
            target=_floats(target),
            draft_bytes=whole
            if self._kv.whole
            else _stored_bytes(packed, blocks, verification=False),
            target_bytes=whole,
        )

    def read_back(self, patterns: Values) -> tuple[Packed, Values, Values]:
        """Pack whole blocks, and return what target and draft read of them.

        All values are BF16 patterns, uint16 [layers, positions, heads, dimensions].
        """
        layers, positions, heads, size = patterns.shape
        shape = (layers, positions // self._kv.block, self._kv.block, heads, size)
        packed = self._pack(patterns.reshape(shape))
        if packed.saturated:
            warnings.warn(
                f"{packed.saturated} keys or values were not finite and are saturated",
                RuntimeWarning,
                stacklevel=3,
            )
        self._codebook = packed.codebook or None
        target = self._in_order(self._codec.decode_target(packed), shape)
        if self._kv.whole:
            return packed, target, target
        return packed, target, self._in_order(self._codec.decode_draft(packed), shape)

    def _pack(self, patterns: NDArray[np.uint16]) -> Packed:
        """Pack [layers, blocks, block, heads, dimensions]."""
        heads, size = patterns.shape[-2:]
        format = self._format(heads, size)
        group = format.segment // (self._kv.block * size)  # heads of a segment
        flat = flatten(patterns, self._kv.order, group)
        if self._kv.prune:
            return encode(
                flat,
                format,
                kept=flatten(self._kept(patterns), self._kv.order, group),
                codebook=self._codebook,
                nonfinite="saturate" if format.scheme == "mx" else "error",
            )
        book = self._codebook
        if book is None and format.scheme == "unary":
            book = self._first_book(flat, size)
        vector = size if self._kv.order == "token" else format.group
        return self._encoder.encode(flat, format, vector=vector, keep=self._kv.keep, codebook=book)

    def _first_book(self, values: Values, vector: int) -> tuple[int, ...]:
        """Return the most frequent exponents of the draft's values."""
        keep = self._kv.keep
        seen = values if keep is None else values[keep_largest(values, vector, keep)]
        return frequent_exponents(exponent_counts(seen), self._kv.format.codebook)

    def _format(self, heads: int, size: int) -> Format:
        """Return the format with segments of whole heads, as many as fit and divide their
        number.
        """
        one = self._kv.block * size
        limit = self._kv.segment
        fitting = [n for n in range(1, heads + 1) if heads % n == 0 and n * one <= limit]
        if not fitting:
            raise CassandraError(
                f"block must be at most {limit // size} for heads of {size} dimensions,"
                f" not {self._kv.block}"
            )
        return dataclasses.replace(self._kv.format, segment=max(fitting) * one)

    def _kept(self, patterns: NDArray[np.uint16]) -> NDArray[np.bool_]:
        rows = patterns.reshape(-1, patterns.shape[-2] * patterns.shape[-1])
        return kept_by_magnitude(rows, self._kv.prune).reshape(patterns.shape)

    def _in_order(self, values: Values, shape: tuple[int, ...]) -> Values:
        """Reorder values of the format to [layers, positions, heads, dimensions]."""
        layers, blocks, block, heads, size = shape
        group = self._format(heads, size).segment // (block * size)
        rows = unflatten(values, shape, self._kv.order, group)
        return rows.reshape(layers, blocks * block, heads, size)


def _floats(patterns: Values) -> torch.Tensor:
    return torch.from_numpy(patterns.view(np.int16)).view(torch.bfloat16).float()


def flatten(x: NDArray[Any], order: Order, group: int) -> NDArray[Any]:
    """Reorder [layers, blocks, block, heads, dimensions] to the format's order, flat.

    By block, by layer, by ``group`` of heads (a segment each); within a segment by head and channel
    (order channel), or by position and head (order token).
    """
    layers, blocks, block, heads, size = x.shape
    split = x.reshape(layers, blocks, block, heads // group, group, size)
    return np.ascontiguousarray(split.transpose(_AXES[order])).reshape(-1)


def unflatten(flat: NDArray[Any], shape: tuple[int, ...], order: Order, group: int) -> NDArray[Any]:
    """Reorder the output of :func:`flatten` to ``shape`` [layers, blocks, block, heads, size]."""
    layers, blocks, block, heads, size = shape
    split = (layers, blocks, block, heads // group, group, size)
    axes = _AXES[order]
    ordered = flat.reshape([split[axis] for axis in axes])
    return np.ascontiguousarray(ordered.transpose(np.argsort(axes))).reshape(shape)


_AXES: dict[Order, tuple[int, ...]] = {
    "channel": (1, 0, 3, 4, 5, 2),
    "token": (1, 0, 3, 2, 4, 5),
}
"""Axes [layers, blocks, block, groups, heads of a group, dimensions], outermost first."""


def _stored_bytes(
    packed: Packed, shape: tuple[int, int], *, verification: bool
) -> NDArray[np.int64]:
    """Return the stored bytes, directory included, [blocks, layers]."""
    columns = [1, 3] if verification else [1]
    lengths = packed.directory[:, columns].sum(axis=1, dtype=np.int64)
    entry = packed.directory.itemsize * packed.directory.shape[1]
    return (lengths * packed.format.superblock + entry).reshape(*shape, -1).sum(axis=-1)
