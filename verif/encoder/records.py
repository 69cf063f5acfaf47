"""The beat records of a tensor, from golden's numbers: a naive model of the encoder's front end.

Lane by lane and value by value from docs/format.md, section 4; what a record says of a lane that
does not count is noise.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from cassandra_spec.golden.arrays import arithmetic
from cassandra_spec.golden.arrays.encoder import MISSING, ranks_of
from cassandra_spec.golden.format import SCHEMES
from cassandra_spec.golden.packed import Segment
from cassandra_spec.verif.library.payloads import Payload, exponents_of

__all__ = ["Record", "records_of"]

Record = dict[str, Any]
"""Fields of ``cassandra_spec.rtl.encode.types.RecordBeat``."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Tensor:
    """What a payload's records are cut from, all [values]."""

    field: Any
    rank: Any
    residue: Any
    width: Any
    kept: Any
    stored: Any
    shared: Any


def _tensor(payload: Payload) -> _Tensor:
    fmt, values, kept = payload.format, payload.values, payload.fate
    exponents = exponents_of(values)
    shared = np.zeros(len(values), np.uint8) if fmt.scheme == "unary" else payload.groups
    field = arithmetic.magnitudes(values, exponents, shared, fmt.scheme)
    width = np.zeros(len(values), np.uint8)
    residue, stored = width.copy(), ~kept
    if fmt.scheme == "exact":
        residue, width = arithmetic.residues(values, field)
        width = np.where(kept, width, 0)
        residue = np.where(width > 0, residue, 0)
        tiny = (field == 0) & (values & 0x7FFF != 0)
        stored = stored | (kept & (tiny | (field == arithmetic.ESCAPE_WINDOW)))
    ranks = ranks_of(payload.packed.codebook)[exponents]
    rank = np.where(ranks == MISSING, 0, ranks)
    return _Tensor(
        **{"field": field, "rank": rank, "residue": residue, "width": width},
        **{"kept": kept, "stored": stored, "shared": shared},
    )


def records_of(payload: Payload, segment: Segment) -> Iterator[Record]:
    """Records of one segment of a payload, in order."""
    fmt, tensor = payload.format, _tensor(payload)
    first = segment.index * fmt.segment
    for start in range(first, first + segment.count, fmt.beat):
        stop = min(start + fmt.beat, first + segment.count)
        record = _beat(payload, tensor, start, stop)
        record["begins"] = int((start - first) % fmt.group == 0)
        record["last"] = int(stop == first + segment.count)
        record["mask"] = int(segment.has_mask)
        yield record


def _beat(payload: Payload, tensor: _Tensor, start: int, stop: int) -> Record:
    fmt, part = payload.format, slice(start, stop)
    pad = fmt.beat - (stop - start)
    record: Record = {
        name: [*map(int, getattr(tensor, name)[part]), *[0] * pad]
        for name in ("field", "rank", "residue", "width")
    }
    record["raw"] = [*map(int, payload.values[part]), *[0xDEAD] * pad]
    for lane in range(stop - start):
        if not tensor.kept[start + lane]:  # arbitrary
            record["field"][lane] = 0xA5
            record["rank"][lane] = 9
    for name in ("kept", "stored"):
        record[name] = sum(int(bit) << i for i, bit in enumerate(getattr(tensor, name)[part]))
    return record | {
        "present": (1 << (stop - start)) - 1,
        "count": record["kept"].bit_count(),
        "shared": int(tensor.shared[start]),
        "scheme": SCHEMES.index(fmt.scheme),
        "truncated": fmt.truncated,
        "abort": 0,
        "errors": 0,
        "saturated": (start * 7919) % (1 << 17),
    }
