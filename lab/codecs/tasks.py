"""Share configurations, weights and tasks between the benchmarks of codecs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.golden import Format, Packed, Packer
from cassandra_spec.lab.rounds import Task
from cassandra_spec.model.weights.sources import open_source, packed_tensors

_PRUNED = 0.4  # of the weights, as in the paper
CONFIGURATIONS: dict[str, tuple[Format, float]] = {
    "unary": (Format(scheme="unary"), 0.0),
    "unary, pruned": (Format(scheme="unary"), _PRUNED),
    "unary, pruned, coded": (Format(scheme="unary", pruned_exponent="coded"), _PRUNED),
    "mx": (Format(scheme="mx"), 0.0),
    "mx, pruned": (Format(scheme="mx"), _PRUNED),
    "exact": (Format(scheme="exact"), 0.0),
    "exact, pruned": (Format(scheme="exact"), _PRUNED),
}
"""Format and share of pruned weights, by name."""


def take_weights(location: str, count: int, columns: int | None = None) -> NDArray[np.uint16]:
    """``count`` weights of linear layers, or all, as BF16 patterns [count].

    With ``columns``, of layers with that many inputs alone, and whole rows.
    """
    parts, left = [], count // columns * columns if columns else count
    source = open_source(location)
    for tensor in packed_tensors(source):
        if tensor.kind == "linear" and left and columns in (None, tensor.shape[1]):
            parts.append(source.read(tensor.name, 0, min(tensor.count, left)))
            left -= parts[-1].size
    return np.concatenate(parts)


def codec_tasks(
    values: NDArray[np.uint16],
    codec: Packer,
    name: str,
    format: Format,
    kept: NDArray[np.bool_] | None,
) -> tuple[Packed, dict[str, Task]]:
    """Return packed values and the tasks of a table's row; check their target once."""
    packed = codec.encode(values, format, kept=kept)
    if format.scheme != "mx" and not np.array_equal(codec.decode_target(packed), values):
        raise AssertionError(f"{name}: the target must be the original")
    return packed, {
        f"{name}: encode": lambda: codec.encode(values, format, kept=kept),
        f"{name}: draft": lambda: codec.decode_draft(packed),
        f"{name}: target": lambda: codec.decode_target(packed),
    }
