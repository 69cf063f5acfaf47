"""What a file says about its tensors, before anything of them is read or written."""

from __future__ import annotations

import dataclasses
import json
import math
import struct
from collections.abc import Mapping
from typing import Any

from cassandra_spec.golden.format import Format

VERSION = 1

PARTS = {"speculation": "U8", "verification": "U8", "directory": "U32"}
"""The three arrays of a packed tensor, with safetensors' names of their dtypes."""

LONGEST = (1 << 63) - 1
"""A number of as many digits as a length can have."""

LENGTH = struct.Struct("<Q")
"""Of the header, in the first 8 bytes of a file."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RawTensor:
    """A tensor that is stored as it is."""

    dtype: str  # safetensors' name, such as "BF16"
    shape: tuple[int, ...]
    nbytes: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class PackedTensor:
    """What a file says about a packed tensor; the last four are known once it is packed."""

    format: Format
    shape: tuple[int, ...]
    codebook: tuple[int, ...] = ()  # exponents by rank (unary)
    pruned_codebook: tuple[int, ...] = ()  # exponents of pruned values by rank (unary, coded)
    crc32: Mapping[str, int] = dataclasses.field(default_factory=dict)  # by part
    stream_bits: Mapping[str, int] = dataclasses.field(default_factory=dict)  # without padding

    @property
    def count(self) -> int:
        """Values of the tensor."""
        return math.prod(self.shape)

    @property
    def segments(self) -> int:
        """Segments of the tensor."""
        return -(-self.count // self.format.segment)


Spec = RawTensor | PackedTensor


def canonical(body: Mapping[str, Any]) -> str:
    """The text of a description that its checksum covers."""
    return json.dumps(body, sort_keys=True, separators=(",", ":"))
