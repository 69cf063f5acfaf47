"""Records of a segment, one value at a time: a naive model of the encoder's front end."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.golden import Format, Packed, encode, keep_largest
from cassandra_spec.golden.format import ENCODE_ERROR_CAUSES, SCHEMES
from cassandra_spec.verif.library.command import encode_command_word
from cassandra_spec.verif.library.models import kept_field, number_of_bits

_LARGEST = 0x7F7F


@dataclasses.dataclass(frozen=True, kw_only=True)
class Segment:
    """A segment to encode."""

    format: Format
    values: NDArray[np.uint16]
    vector: int
    keep: int | None  # None: all
    mask: bool
    saturate: bool = True
    codebook: tuple[int, ...] = ()
    kept: NDArray[np.bool_] | None = None  # replaces the selection's result

    def __repr__(self) -> str:
        shown = ", ".join(f"{v:#06x}" for v in self.values[:8])
        return (
            f"{self.values.size} values {shown}..., {self.format}, vectors of {self.vector}, "
            f"keep {self.keep}, mask {self.mask}, codebook {self.codebook}"
        )

    @property
    def word(self) -> int:
        """The command word."""
        return encode_command_word(
            self.format,
            self.values.size,
            vector=self.vector,
            keep=self.keep,
            mask=self.mask,
            saturate=self.saturate,
        )

    @property
    def chosen(self) -> NDArray[np.bool_]:
        """The values that the selection keeps."""
        if self.kept is not None:
            return self.kept
        keep = self.vector if self.keep is None else self.keep
        return keep_largest(self.values, self.vector, keep)

    @property
    def packed(self) -> Packed:
        """The segment as golden packs it; its regions are the expected output."""
        unary = self.format.scheme == "unary"
        return encode(
            self.values,
            self.format,
            kept=self.chosen,
            codebook=self.codebook if unary else None,
            nonfinite="saturate",
            always_mask=self.mask,
        )

    def replaced(self) -> int:
        """Count values that mx saturates."""
        infinite = (self.values & 0x7F80) == 0x7F80
        return int(infinite.sum()) if self.format.scheme == "mx" else 0

    def errors(self) -> int:
        """Return error causes, as bits."""
        causes = set()
        if self.replaced() and not self.saturate:
            causes.add("nonfinite")
        if self.format.scheme == "unary" and not self.mask and not all(self._kept()):
            causes.add("miss")
        return number_of_bits(cause in causes for cause in ENCODE_ERROR_CAUSES)

    def _kept(self) -> list[bool]:
        kept = [bool(flag) for flag in self.chosen]
        if self.format.scheme != "unary":
            return kept
        exponents = [int(v) >> 7 & 0xFF for v in self.values]
        return [flag and e in self.codebook for flag, e in zip(kept, exponents, strict=True)]

    def _stored_values(self) -> list[int]:
        """Return the patterns after saturation."""
        values = [int(v) for v in self.values]
        if self.format.scheme != "mx":
            return values
        return [v if v >> 7 & 0xFF != 255 else v & 0x8000 | _LARGEST for v in values]


def _group_exponent(scheme: str, values: list[int]) -> int:
    """Return the exponent of a group's kept values (docs/format.md, sections 4.2 and 4.3)."""
    shared = 1
    for value in values:
        exponent, mantissa = value >> 7 & 0xFF, value & 0x7F
        if scheme == "exact" and exponent == 255:
            continue
        shared = max(shared, exponent)
        if scheme == "exact" and exponent == 0 and mantissa:
            shared = max(shared, 9)
    return shared


def _lane(segment: Segment, value: int, kept: bool, shared: int) -> dict[str, Any]:
    """Return the fields of one lane; None where any value is allowed."""
    scheme = segment.format.scheme
    if not kept:
        return {"raw": value, "kept": 0, "stored": 1} | _no_residue(segment)
    _, magnitude, exponent = kept_field(scheme, value, shared)
    lane: dict[str, Any] = {"raw": value, "field": magnitude, "kept": 1, "stored": 0}
    if scheme == "unary":
        lane["rank"] = segment.codebook.index(exponent)
    if scheme == "exact":
        zero = value & 0x7FFF == 0
        lane["stored"] = int(magnitude == 255 or (magnitude == 0 and not zero))
        distance = shared - max(value >> 7 & 0xFF, 1)
        lane["width"] = {0: 1, 255: 0}.get(magnitude, distance)
        low = value & ((1 << lane["width"]) - 1)
        lane["residue"] = int(zero) if magnitude == 0 else low
    return lane


def _no_residue(segment: Segment) -> dict[str, Any]:
    return {"width": 0} if segment.format.scheme == "exact" else {}


def records_of(
    segment: Segment, groups: Sequence[int] = (), *, pace: int | None = None
) -> list[dict[str, Any]]:
    """Return the pieces of ``cassandra_spec.rtl.encode.types.RecordBeat``, None for any value.

    A piece has ``pace`` values, by default a beat. ``groups`` has the group exponent of each value,
    if it is not the smallest that holds the group's values.
    """
    fmt = segment.format
    values, kept = segment._stored_values(), segment._kept()
    size = pace or fmt.beat
    pieces = []
    for start in range(0, len(values), size):
        group = start // fmt.group * fmt.group
        inside = range(group, min(group + fmt.group, len(values)))
        shared = (
            groups[start]
            if groups
            else _group_exponent(fmt.scheme, [values[i] for i in inside if kept[i]])
        )
        places = range(start, min(start + size, len(values)))
        lanes = [_lane(segment, values[i], kept[i], shared) for i in places]
        lanes += [{"kept": 0, "stored": 0} | _no_residue(segment)] * (size - len(lanes))
        last = start + size >= len(values)
        piece = _piece(segment, lanes, shared, begins=start == group, last=last)
        pieces.append(piece | {"present": (1 << len(places)) - 1})
    return pieces


def _piece(
    segment: Segment, lanes: list[dict[str, Any]], shared: int, *, begins: bool, last: bool
) -> dict[str, Any]:
    fmt = segment.format
    piece: dict[str, Any] = {
        name: [lane.get(name) for lane in lanes]
        for name in ("raw", "field", "rank", "residue", "width")
    }
    piece |= {name: number_of_bits(lane[name] for lane in lanes) for name in ("kept", "stored")}
    return piece | {
        "count": sum(lane["kept"] for lane in lanes),
        "shared": None if fmt.scheme == "unary" else shared,
        "begins": int(begins),
        "last": int(last),
        "abort": 0,
        "scheme": SCHEMES.index(fmt.scheme),
        "truncated": fmt.truncated,
        "mask": int(segment.mask),
        "errors": segment.errors() if last else None,
        "saturated": segment.replaced() if last else None,
    }
