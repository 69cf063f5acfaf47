"""Bad arguments of ``encode`` are one line that names them, in codec and oracle alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cassandra_spec.golden import (
    CassandraError,
    Format,
    decode_draft_segment,
    decode_target_segment,
    encode,
    encode_parts,
    oracle,
)

VALUES = np.array([0x3F80, 0x0001, 0x4000], dtype=np.uint16)
ONE = np.array([127], dtype=np.uint8)


@pytest.mark.parametrize(
    ("fields", "options", "message"),
    [
        (
            {},
            {"values": VALUES.astype(np.int16)},
            "values must be a 1-D array of uint16, not int16 [3]",
        ),
        (
            {},
            {"values": VALUES.reshape(1, 3)},
            "values must be a 1-D array of uint16, not uint16 [1, 3]",
        ),
        ({}, {"values": [1, 2]}, "values must be a 1-D array of uint16, not [1, 2]"),
        (
            {},
            {"kept": np.ones(2, bool)},
            "kept must be a 1-D array of bool of 3 elements, not bool [2]",
        ),
        ({}, {"kept": np.ones(3, np.uint8)}, "kept must be a 1-D array of bool of 3 elements"),
        (
            {},
            {"codebook": range(17)},
            "codebook must be at most 16 distinct exponents from 0 to 255",
        ),
        ({}, {"codebook": (1, 1)}, "codebook must be at most 16 distinct exponents"),
        ({}, {"codebook": (256,)}, "not (256,)"),
        ({}, {"codebook": ("1",)}, "codebook must be at most 16 distinct exponents"),
        (
            {},
            {"pruned_codebook": (1,)},
            "pruned_codebook must be None unless pruned_exponent is 'coded'",
        ),
        (
            {"pruned_exponent": "coded"},
            {"pruned_codebook": range(16)},
            "pruned_codebook must be at most 15 distinct",
        ),
        ({"scheme": "mx"}, {"codebook": (1,)}, "codebook must be None unless the scheme is unary"),
        (
            {},
            {"group_exponents": ONE},
            "group_exponents must be None in scheme unary, not uint8 [1]",
        ),
        (
            {"scheme": "mx"},
            {"group_exponents": np.array([1, 2], np.uint8)},
            "group_exponents must be a 1-D array of uint8 of 1 elements, not uint8 [2]",
        ),
        (
            {"scheme": "mx"},
            {"group_exponents": np.array([255], np.uint8)},
            "group_exponents must be from 1 to 254, not 255 (group 0)",
        ),
        (
            {"scheme": "exact"},
            {"group_exponents": np.array([0], np.uint8)},
            "group_exponents must be from 1 to 255, not 0 (group 0)",
        ),
        (
            {"scheme": "exact"},
            {"group_exponents": np.array([8], np.uint8)},
            "group_exponents must be at least 9 in a group with a kept subnormal, not 8 (group 0)",
        ),
        ({}, {"nonfinite": "clip"}, "nonfinite must be 'error' or 'saturate', not 'clip'"),
    ],
)
def test_what_is_wrong_is_named(
    fields: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    rest = {name: value for name, value in options.items() if name != "values"}
    values = options.get("values", VALUES)
    for function in (encode, oracle.encode):
        with pytest.raises(CassandraError) as raised:
            function(values, Format(**fields), **rest)
        assert message in str(raised.value)
        assert "\n" not in str(raised.value)


def test_a_pruned_subnormal_does_not_bind_the_group_exponent() -> None:
    kept = np.array([True, False, True])
    low = np.array([8], dtype=np.uint8)
    packed = encode(VALUES, Format(scheme="exact"), kept=kept, group_exponents=low)
    assert packed.speculation[2] == 8  # after a row of mask


def test_the_arguments_are_left_as_they_are() -> None:
    values = np.array([0x7F80, 0x3F80], dtype=np.uint16)
    values.flags.writeable = False
    kept = np.array([True, False])
    kept.flags.writeable = False
    for scheme in ("unary", "mx", "exact"):
        encode(values, Format(scheme=scheme), kept=kept, nonfinite="saturate")


def test_parts_are_checked_before_the_first_is_asked_for() -> None:
    with pytest.raises(CassandraError, match="kept must be"):
        encode_parts(VALUES, Format(), kept=np.ones(2, bool))


@pytest.mark.parametrize("index", [-1, 1, 7])
def test_a_segment_that_is_not_there_is_named(index: int) -> None:
    packed = encode(VALUES, Format())
    for function in (decode_draft_segment, decode_target_segment):
        with pytest.raises(CassandraError, match=f"index must be less than 1 .*, not {index}"):
            function(packed, index)
