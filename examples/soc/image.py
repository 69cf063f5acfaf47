"""The memory of the SoC: packed tensors, and the checksums of what golden decodes."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.golden import Format, decode_draft, decode_target, encode
from cassandra_spec.golden.format import SCHEMES
from cassandra_spec.golden.packed import Packed

BASE = 0x4000_0000
"""Address of the image."""
ALIGNED = 128
_TENSOR = struct.Struct("<8s13I")
LANES = 8


def checksum(values: NDArray[np.uint16]) -> int:
    """Return the checksum of the firmware."""
    total = 0
    for value in values.tolist():
        total = (31 * total + value) & 0xFFFF_FFFF
    return total


def tensors(values: NDArray[np.uint16], segment: int) -> dict[str, Packed]:
    """Pack values by every scheme; in unary a quarter is pruned."""
    kept = np.abs((values & 0x7FFF).astype(int)) > np.quantile((values & 0x7FFF), 0.25)
    return {
        scheme: encode(
            values,
            Format(scheme=scheme, beat=LANES, segment=segment),
            kept=kept if scheme == "unary" else None,
        )
        for scheme in SCHEMES
    }


def image(packed: dict[str, Packed]) -> bytes:
    """Return the image: where output goes, the count, places of tensors, and the tensors."""
    head = 4 * (2 + len(packed))
    places, body = [], bytearray()
    for name, tensor in packed.items():
        start = -(-(head + len(body)) // ALIGNED) * ALIGNED
        body += bytes(start - head - len(body)) + _tensor(name, tensor)
        places.append(start)
    end = -(-(head + len(body)) // ALIGNED) * ALIGNED
    words = struct.pack(f"<{2 + len(places)}I", BASE + end, len(places), *places)
    return words + bytes(body) + bytes(end - head - len(body))


def _tensor(name: str, packed: Packed) -> bytes:
    """Return the struct tensor of the firmware, with its arrays."""
    arrays = (packed.speculation.tobytes(), packed.verification.tobytes())
    parts = (*arrays, packed.directory.astype("<u4").tobytes(), bytes(packed.codebook))
    offsets, body = _laid_out(parts, _TENSOR.size)
    fmt = packed.format
    return (
        _TENSOR.pack(
            name.encode(),
            len(packed),
            fmt.segment,
            SCHEMES.index(fmt.scheme),
            fmt.truncated,
            fmt.group.bit_length() - 1,
            len(packed.directory),
            *offsets,
            len(packed.codebook),
            checksum(decode_draft(packed)),
            checksum(decode_target(packed)),
        )
        + body
    )


def _laid_out(parts: Sequence[bytes], start: int) -> tuple[list[int], bytes]:
    """Put parts behind a header of ``start`` bytes, each aligned; offsets count from the header."""
    offsets, body = [], bytearray()
    for part in parts:
        place = -(-(start + len(body)) // ALIGNED) * ALIGNED
        body += bytes(place - start - len(body)) + part
        offsets.append(place)
    return offsets, bytes(body)
