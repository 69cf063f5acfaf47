"""Count the weight bytes that passes read from a packed model file."""

from __future__ import annotations

from collections.abc import Collection

from cassandra_spec.drafting.counters import ReadBytes
from cassandra_spec.drafting.report import Costs
from cassandra_spec.golden.file import PackedFile

_BF16_BYTES = 2


def pass_costs(
    packed: PackedFile, *, linear: Collection[str], head: str, embedding: str, position: int
) -> Costs:
    """Return the bytes that passes read, given the matrix names and the values per position.

    Both passes read a matrix that is not packed in full. An embedding that is not also the head
    is read one row at a time, which is not counted.
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
