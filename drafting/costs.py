"""What the passes of a packed model read of the weights in its file."""

from __future__ import annotations

from collections.abc import Collection

from cassandra_spec.drafting.counters import ReadBytes
from cassandra_spec.drafting.report import Costs
from cassandra_spec.golden.file import PackedFile

_BF16_BYTES = 2


def pass_costs(
    packed: PackedFile, *, linear: Collection[str], head: str, embedding: str, position: int
) -> Costs:
    """Bytes that passes read, by the names of the matrices and the values that a position has.

    A matrix that is not packed is read whole by both. Of an embedding that is not the head a pass
    reads single rows, which are not counted.
    """
    uncounted = {embedding, head, *linear}
    return Costs(
        linear=sum((_weight_bytes(packed, name) for name in linear if name != head), ReadBytes()),
        head=_weight_bytes(packed, head),
        other=sum(raw.nbytes for name, raw in packed.others.items() if name not in uncounted),
        position=position * _BF16_BYTES,
    )


def _weight_bytes(packed: PackedFile, name: str) -> ReadBytes:
    if name in packed.others:
        size = packed.others[name].nbytes
        return ReadBytes(draft=size, target=size, bf16=size)
    stored = packed.stored_bytes(name)
    draft = stored["speculation"] + stored["directory"]
    count = packed.tensors[name].count
    return ReadBytes(draft=draft, target=draft + stored["verification"], bf16=_BF16_BYTES * count)
