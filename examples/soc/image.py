"""The memory of the SoC: tensors, golden's arrays of them, and checksums of what golden decodes."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.golden import Format, GoldenEncoder, decode_draft, decode_target, encode
from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.golden.format import SCHEMES
from cassandra_spec.golden.packed import Packed, Values

BASE = 0x4000_0000
"""Address of the image."""
RAM = 1 << 20
"""Bytes of the memory."""
AREAS = 5
"""Areas of the firmware behind the image."""
AREA = 1 << 17
"""Bytes of an area; an array has its own."""
ALIGNED = 128
_TENSOR = struct.Struct("<8s20I")
LANES = 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tensor:
    """A packed tensor. Keys and values also have vectors and plain values, which are encoded."""

    name: str
    packed: Packed
    plain: Values | None = None
    vector: int = 0
    keep: int = 0  # values kept of each vector


def checksum(values: NDArray[np.uint16]) -> int:
    """Return the checksum of the firmware."""
    total = 0
    for value in values.tolist():
        total = (31 * total + value) & 0xFFFF_FFFF
    return total


def weights(values: Values, segment: int) -> list[Tensor]:
    """Pack weights by every scheme; in unary a quarter is pruned."""
    kept = np.abs((values & 0x7FFF).astype(int)) > np.quantile((values & 0x7FFF), 0.25)
    return [
        Tensor(
            name=scheme,
            packed=encode(
                values,
                Format(scheme=scheme, beat=LANES, segment=segment),
                kept=kept if scheme == "unary" else None,
            ),
        )
        for scheme in SCHEMES
    ]


def key_values(keys: Values, values: Values, vector: int, segment: int) -> list[Tensor]:
    """Pack keys losslessly, three quarters of each vector for the draft, and values by mx."""
    encoder, keep = GoldenEncoder(), vector * 3 // 4
    formats = {scheme: Format(scheme=scheme, beat=LANES, segment=segment) for scheme in SCHEMES}
    return [
        Tensor(
            name="keys",
            packed=encoder.encode(keys, formats["unary"], vector=vector, keep=keep),
            plain=keys,
            vector=vector,
            keep=keep,
        ),
        Tensor(
            name="values",
            packed=encoder.encode(values, formats["mx"], vector=vector),
            plain=values,
            vector=vector,
            keep=vector,
        ),
    ]


def image(tensors: Sequence[Tensor]) -> bytes:
    """Return the image: where it ends, the count, places of tensors, and the tensors.

    Raises CassandraError if the memory has no room for it and the firmware's areas.
    """
    head = 4 * (2 + len(tensors))
    places, body = _laid_out([_tensor(tensor) for tensor in tensors], head)
    end = -(-(head + len(body)) // ALIGNED) * ALIGNED
    most = max(len(tensor.packed) for tensor in tensors)
    if end + AREAS * AREA > RAM or 2 * most > AREA:
        raise CassandraError(
            f"values must fit a memory of {RAM} bytes with their copies, not {most}"
        )
    words = struct.pack(f"<{2 + len(places)}I", BASE + end, len(places), *places)
    return words + bytes(body) + bytes(end - head - len(body))


def _tensor(tensor: Tensor) -> bytes:
    """Return the struct tensor of the firmware, with its arrays."""
    packed, fmt = tensor.packed, tensor.packed.format
    parts = (
        b"" if tensor.plain is None else tensor.plain.astype("<u2").tobytes(),
        packed.speculation.tobytes(),
        packed.verification.tobytes(),
        packed.directory.astype("<u4").tobytes(),
        bytes(packed.codebook),
    )
    offsets, body = _laid_out(parts, _TENSOR.size)
    return (
        _TENSOR.pack(
            tensor.name.encode(),
            len(packed),
            fmt.segment,
            SCHEMES.index(fmt.scheme),
            fmt.truncated,
            fmt.group.bit_length() - 1,
            len(packed.directory),
            tensor.vector,
            tensor.keep,
            *offsets,
            *map(len, parts),
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
