"""Lossy compression to compare with: rounding to 8 bits, and pruning for good.

Each function makes weights of others. Linear weights are changed; the head and all
else stays, as is usual for these methods.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.golden import bf16
from cassandra_spec.model.packing.calibration import Norms
from cassandra_spec.model.packing.masks import kept_by_wanda, kept_in_fours
from cassandra_spec.model.reply import ReadWeights
from cassandra_spec.model.weights.sources import Source, Tensor, Values

_LARGEST = 127


def rounded_to_8_bits(source: Source) -> ReadWeights:
    """Round to nearest: integers of -127 to 127 times a scale for each output channel."""

    def rounded(tensor: Tensor, rows: NDArray[np.uint16]) -> NDArray[np.uint16]:
        values = as_float(rows)
        scale = np.abs(values).max(axis=1, keepdims=True) / np.float32(_LARGEST)
        scale[scale == 0] = 1
        return bf16.from_f32((np.rint(values / scale) * scale).view(np.uint32))

    return _changed(source, rounded)


def wanda_pruned(source: Source, norms: Norms, *, fours: bool = False) -> ReadWeights:
    """Set half of each output row to zero by Wanda's scores; ``fours``: two of every four.

    The norms are those of the whole model. Wanda itself prunes layer by layer and gathers the norms
    of a layer behind the pruned ones.
    """

    def pruned(tensor: Tensor, rows: NDArray[np.uint16]) -> NDArray[np.uint16]:
        own = norms.of(tensor.name, rows.shape[1])
        kept = kept_in_fours(rows, own) if fours else kept_by_wanda(rows, own, 0.5)
        return np.where(kept, rows, np.uint16(0))

    return _changed(source, pruned)


def as_float(patterns: NDArray[np.uint16]) -> NDArray[np.float32]:
    """BF16 patterns as float32 numbers, without error."""
    return (patterns.astype(np.uint32) << 16).view(np.float32)


def _changed(
    source: Source, change: Callable[[Tensor, NDArray[np.uint16]], NDArray[np.uint16]]
) -> ReadWeights:
    tensors: Mapping[str, Tensor] = source.tensors

    def read(name: str) -> Values:
        values, tensor = source.read(name), tensors[name]
        if tensor.kind != "linear":
            return values
        return change(tensor, values.reshape(tensor.shape)).reshape(-1)

    return ReadWeights(tensors, read)
