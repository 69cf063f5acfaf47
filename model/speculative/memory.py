"""Memory that a model needs in torch, known before anything large is read."""

from __future__ import annotations

from cassandra_spec.golden.file import PackedFile
from cassandra_spec.golden.model_types import EMBEDDING, HEAD

_BF16_BYTES = 2
_WORK_BYTES = 12
"""Bytes per value of the largest tensor during decoding: packed, patterns, two copies."""


def model_memory(packed: PackedFile, *, products: int) -> int:
    """Return the bytes of a loaded model, with ``products`` BF16 copies of each matrix.

    A packed embedding adds one BF16 copy if it is also the head; otherwise it has one copy in all.
    """
    counts = {name: tensor.count for name, tensor in packed.tensors.items()}
    copies = sum(products * count for count in counts.values())
    if EMBEDDING in counts:
        tied = HEAD not in {*counts, *packed.others}
        copies += counts[EMBEDDING] * (1 if tied else 1 - products)
    others = sum(raw.nbytes for raw in packed.others.values())
    return copies * _BF16_BYTES + others + _WORK_BYTES * max(counts.values(), default=0)
