"""Formats, tensors and masks for the tests of the codec, and what "equal" means."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from cassandra_spec.golden import Format, Packed

Values = NDArray[np.uint16]
Flags = NDArray[np.bool_]

ALL_PATTERNS: Values = np.arange(1 << 16, dtype=np.uint16)
FINITE: Values = ALL_PATTERNS[(ALL_PATTERNS & 0x7F80) != 0x7F80]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """Arguments of ``encode``."""

    format: Format
    values: Values
    options: dict[str, Any]

    def __repr__(self) -> str:
        options = {
            k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in self.options.items()
        }
        return f"Case({self.format}, values={self.values.tolist()}, options={options})"


@st.composite
def formats(draw: st.DrawFn, scheme: str | None = None) -> Format:
    """Return every field of a format, with segments of at most 256 values."""
    chosen = scheme or draw(st.sampled_from(["unary", "mx", "exact"]))
    beat = draw(st.sampled_from([8, 16, 32]))
    group = beat * draw(st.sampled_from([1, 2, 4]))
    coded = chosen == "unary" and draw(st.booleans())
    truncated = draw(st.integers(0, 7))
    least = max(8 - truncated, 2) if chosen == "mx" else 8
    return Format(
        scheme=chosen,  # type: ignore[arg-type]
        truncated=truncated,
        significand=draw(st.integers(least, 8)),
        fill=draw(st.sampled_from(["zero", "midpoint"])),
        group=group,
        segment=group * draw(st.integers(1, 256 // group)),
        codebook=draw(st.sampled_from([16, 32])),
        pruned_exponent="coded" if coded else "raw",
        beat=beat,
        window=draw(st.integers(1, 4)),
        lead=draw(st.integers(1, 4)),
        superblock=draw(st.sampled_from([128, 256, 384])),
    )


def counts(format: Format) -> st.SearchStrategy[int]:
    """Return sizes at which something changes, and others."""
    edges = [0, 1, 31, 32, 33]
    for multiple in (format.beat, format.group, format.segment, 2 * format.segment):
        edges += [multiple - 1, multiple, multiple + 1]
    return st.sampled_from(sorted(set(edges))) | st.integers(0, 2 * format.segment + 3)


def _patterns(kind: str, rng: np.random.Generator, count: int) -> Values:
    if kind == "any":
        return rng.integers(0, 1 << 16, count).astype(np.uint16)
    if kind == "weights":
        bits = rng.normal(scale=0.03, size=count).astype(np.float32).view(np.uint32)
        return (bits >> 16).astype(np.uint16)
    if kind == "small":  # subnormals, zeros and the least normals
        return (rng.integers(0, 11 << 7, count) | rng.integers(0, 2, count) << 15).astype(np.uint16)
    edges = np.array([0, 0x8000, 1, 0x7F, 0x80, 0x7F7F, 0x7F80, 0xFF80, 0x7FC1, 0xFFFF, 0x3FFF])
    return rng.choice(edges, count).astype(np.uint16)


def _mask(rng: np.random.Generator, count: int, density: float) -> Flags:
    kept = rng.random(count) < density
    for start in range(0, count, 48):  # runs in which all or nothing is kept
        if rng.random() < 0.2:
            kept[start : start + 48] = rng.random() < 0.5
    return kept


@st.composite
def cases(draw: st.DrawFn, scheme: str | None = None) -> Case:
    """Return arguments that ``encode`` accepts."""
    format = draw(formats(scheme))
    count = draw(counts(format))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    values = _patterns(draw(st.sampled_from(["any", "weights", "small", "edges"])), rng, count)
    options: dict[str, Any] = {}
    density = draw(st.sampled_from([None, 0.0, 0.05, 0.6, 0.95, 1.0]))
    if density is not None:
        options["kept"] = _mask(rng, count, density)
    if format.scheme == "unary" and draw(st.booleans()):
        size = draw(st.integers(0, format.codebook))
        options["codebook"] = tuple(rng.permutation(256)[:size].tolist())
    if format.pruned_exponent == "coded" and draw(st.booleans()):
        size = draw(st.integers(0, format.codebook - 1))
        options["pruned_codebook"] = tuple(rng.permutation(256)[:size].tolist())
    if draw(st.booleans()):
        options["always_mask"] = True
    if format.scheme == "mx":
        options["nonfinite"] = "saturate"
    if format.scheme != "unary" and draw(st.booleans()):
        low, high = (9, 255) if format.scheme == "exact" else (1, 254)
        near = draw(st.booleans())  # to the weights, or anywhere
        ends = (max(low, 118), 124) if near else (low, high)
        groups = -(-count // format.group)
        options["group_exponents"] = rng.integers(ends[0], ends[1] + 1, groups).astype(np.uint8)
    return Case(format=format, values=values, options=options)


def assert_same(one: Packed, other: Packed) -> None:
    """Equal in every field, byte for byte."""
    assert one.format == other.format
    assert one.count == other.count
    assert one.directory.dtype == other.directory.dtype == np.uint32
    np.testing.assert_array_equal(one.directory, other.directory)
    assert one.speculation.dtype == other.speculation.dtype == np.uint8
    assert one.speculation.tobytes() == other.speculation.tobytes()
    assert one.verification.tobytes() == other.verification.tobytes()
    assert (one.codebook, one.pruned_codebook) == (other.codebook, other.pruned_codebook)
    assert dict(one.stream_bits) == dict(other.stream_bits)
    assert one.saturated == other.saturated
