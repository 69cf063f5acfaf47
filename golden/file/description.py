"""Descriptions of a file's tensors, known before tensor data is read or written."""

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
"""A number with the maximum digits of a length."""

LENGTH = struct.Struct("<Q")
"""Bytes of the header's length, at the start of a file."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RawTensor:
    """A tensor that is stored unchanged."""

    dtype: str  # safetensors' name, such as "BF16"
    shape: tuple[int, ...]
    nbytes: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class PackedTensor:
    """Description of a packed tensor; the last four fields are set when it is packed."""

    format: Format
    shape: tuple[int, ...]
    codebook: tuple[int, ...] = ()  # exponents by rank (unary)
    pruned_codebook: tuple[int, ...] = ()  # exponents of pruned values by rank (unary, coded)
    crc32: Mapping[str, int] = dataclasses.field(default_factory=dict)  # by part
    stream_bits: Mapping[str, int] = dataclasses.field(default_factory=dict)  # without padding

    @property
    def count(self) -> int:
        """Number of values in the tensor."""
        return math.prod(self.shape)

    @property
    def segments(self) -> int:
        """Number of segments in the tensor."""
        return -(-self.count // self.format.segment)


Spec = RawTensor | PackedTensor


def canonical(body: Mapping[str, Any]) -> str:
    """Return the canonical text of a description, which its checksum covers."""
    return json.dumps(body, sort_keys=True, separators=(",", ":"))
