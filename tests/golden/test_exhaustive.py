"""Every BF16 pattern in every scheme, and every entry of every table."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from cassandra_spec.golden import Format, decode_draft, decode_target, encode, oracle
from cassandra_spec.golden.arrays import arithmetic
from cassandra_spec.golden.format import Scheme
from cassandra_spec.golden.oracle import numbers
from tests.golden.cases import ALL_PATTERNS, FINITE, assert_same

SHUFFLED = np.random.default_rng(11).permutation(ALL_PATTERNS)
HALF = np.random.default_rng(12).random(ALL_PATTERNS.size) < 0.5

FORMATS = [
    Format(),
    Format(truncated=0, beat=8, group=8, codebook=32, window=1),
    Format(truncated=7, fill="midpoint", beat=32, window=4, segment=4096),
    Format(pruned_exponent="coded"),
    Format(pruned_exponent="coded", codebook=32, truncated=5, beat=8, lead=3, segment=1024),
    Format(pruned_exponent="coded", beat=32, window=1, superblock=4096),
    Format(scheme="exact"),
    Format(scheme="exact", truncated=0, fill="midpoint", group=256),
    Format(scheme="exact", truncated=7, beat=8, group=8, segment=4096, lead=4),
    Format(scheme="exact", truncated=5, fill="midpoint", beat=32, group=64, superblock=256),
]


@pytest.mark.parametrize("format", FORMATS, ids=repr)
@pytest.mark.parametrize("kept", [None, HALF], ids=["all", "half"])
@pytest.mark.parametrize("values", [ALL_PATTERNS, SHUFFLED], ids=["in order", "shuffled"])
def test_every_pattern_comes_back(
    format: Format, kept: NDArray[np.bool_] | None, values: NDArray[np.uint16]
) -> None:
    packed = encode(values, format, kept=kept)
    np.testing.assert_array_equal(decode_target(packed), values)


@pytest.mark.parametrize(
    "format",
    [
        Format(codebook=32),
        Format(pruned_exponent="coded", truncated=2, fill="midpoint"),
        Format(scheme="mx", fill="midpoint"),
        Format(scheme="mx", significand=7, truncated=3, fill="midpoint"),
        Format(scheme="exact", truncated=5),
    ],
    ids=lambda format: f"{format.scheme} {format.pruned_exponent} {format.significand}",
)
def test_every_pattern_packs_and_decodes_as_in_the_oracle(format: Format) -> None:
    options = {"kept": HALF, "nonfinite": "saturate"}
    packed = encode(ALL_PATTERNS, format, **options)  # type: ignore[arg-type]
    assert_same(packed, oracle.encode(ALL_PATTERNS, format, **options))  # type: ignore[arg-type]
    np.testing.assert_array_equal(decode_draft(packed), oracle.decode_draft(packed))
    np.testing.assert_array_equal(decode_target(packed), oracle.decode_target(packed))


@pytest.mark.parametrize(("scheme", "significand"), [("mx", 8), ("mx", 7), ("mx", 2), ("exact", 8)])
@pytest.mark.parametrize("group", [1, 2, 8, 9, 100, 127, 254, 255])
def test_every_pattern_in_a_group_of_a_chosen_exponent(
    scheme: Scheme, significand: int, group: int
) -> None:
    values = FINITE if scheme == "mx" else ALL_PATTERNS
    values = values[values < 0x8000]
    exponents = arithmetic.exponents_of(values)
    groups = np.full(values.size, group, dtype=np.uint8)
    format = Format(scheme=scheme, significand=significand, truncated=7)
    found = arithmetic.magnitudes(values, exponents, groups, format)
    of = map(numbers.Number.of, values.tolist())
    if scheme == "mx":
        expected = [numbers.aligned(number, group, significand) for number in of]
    else:
        expected = [numbers.windowed(number, group) for number in of]
    np.testing.assert_array_equal(found, expected)


def test_every_value_of_a_shared_exponent_and_a_magnitude() -> None:
    groups, magnitudes = np.divmod(np.arange(256, 65536), 256)
    for sign in (0, 1):
        signs = np.full(groups.size, sign, dtype=np.uint8)
        found = arithmetic.values_of(signs, groups.astype(np.uint8), magnitudes.astype(np.uint8))
        expected = [
            numbers.value_of(sign, group, magnitude)
            for group, magnitude in zip(groups.tolist(), magnitudes.tolist(), strict=True)
        ]
        np.testing.assert_array_equal(found, expected)


def test_every_residue() -> None:
    normal = np.arange(1 << 7, 2 << 7, dtype=np.uint16)  # all mantissas
    for shift in range(10):
        groups = np.full(normal.size, 1 + shift, dtype=np.uint8)
        exponents = arithmetic.exponents_of(normal)
        windows = arithmetic.magnitudes(normal, exponents, groups, Format(scheme="exact"))
        fields, widths = arithmetic.residues(normal, windows)
        for value, window, field, width in zip(normal, windows, fields, widths, strict=True):
            bits = numbers.residue_bits(numbers.Number.of(int(value)), int(window))
            assert len(bits) == width
            assert numbers.from_bits(bits) == field & ((1 << int(width)) - 1)
