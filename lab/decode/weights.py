"""The weights of a benchmark: a model as it is, or as if it had never been quantised."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.bench.decode.run import DEQUANTISED
from cassandra_spec.golden import CassandraError, bf16
from cassandra_spec.model.weights.sources import Source, Tensor, Values

WEIGHTS = (DEQUANTISED, "dithered")
"""The weights as the source has them, and as if they had never been quantised."""

BLOCK = 32
"""Weights of one row that share a quantiser in Q4_1."""

STEPS = 15
"""Steps of such a quantiser from its smallest to its largest value."""


def dither(values: Values, seed: int) -> Values:
    """BF16 patterns [rows, columns], each weight moved by up to half a step of its block.

    A block is 32 weights of a row, its step a fifteenth of what lies between its smallest and its
    largest weight: of a Q4_1 file, the quantiser's own. The noise is uniform, so the result is as
    likely as any model that quantises to this one, and its mantissas are full, where dequantised
    ones repeat 16 values in each block. Columns that do not fill a block make a shorter one.
    """
    floats = (values.astype(np.uint32) << 16).view(np.float32)
    random = np.random.default_rng(seed)
    moved = floats.copy()
    for start in range(0, values.shape[1], BLOCK):
        part = floats[:, start : start + BLOCK]
        step = (part.max(axis=1, keepdims=True) - part.min(axis=1, keepdims=True)) / STEPS
        noise = random.random(part.shape, np.float32) - np.float32(0.5)
        moved[:, start : start + BLOCK] += noise * step
    return bf16.from_f32(moved.view(np.uint32))


class Dithered:
    """A source whose matrices are dithered, the same in every read (:class:`Source`)."""

    def __init__(self, source: Source, *, seed: int = 1) -> None:
        self._source = source
        self._seed = seed
        self._latest: tuple[str, Values] | None = None
        self.label = f"{source.label}, dithered"
        self.files = source.files
        self.notes = (*source.notes, f"matrices are dithered below their steps (seed {seed})")

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        """Return the source's tensors."""
        return self._source.tensors

    def read(self, name: str, start: int = 0, stop: int | None = None) -> Values:
        """Read values of a tensor; vectors are not dithered."""
        shape = self.tensors[name].shape
        if len(shape) != 2:
            return self._source.read(name, start, stop)
        if self._latest is None or self._latest[0] != name:
            whole = self._source.read(name).reshape(shape)
            own = zlib.crc32(name.encode()) + self._seed
            self._latest = name, dither(whole, own).reshape(-1)
        return self._latest[1][start:stop]

    def read_raw(self, name: str) -> NDArray[np.uint8]:
        """Read all bytes of a tensor in BF16."""
        dtype = self.tensors[name].dtype
        if dtype != "BF16":
            raise CassandraError(f"{name} must be BF16 to be dithered, not {dtype}")
        return self.read(name).astype("<u2", copy=False).view(np.uint8)

    def save_companions(self, directory: Path) -> None:
        """Save the source's companions."""
        self._source.save_companions(directory)


def make_source(source: Source, weights: str) -> Source:
    """Return the source of one of :data:`WEIGHTS`."""
    return source if weights == DEQUANTISED else Dithered(source)
