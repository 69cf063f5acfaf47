"""Validation of formats, and their way to a dictionary and back."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given

from cassandra_spec.golden import CassandraError, Format
from cassandra_spec.golden.format import STREAMS
from tests.golden.cases import formats


@given(format=formats())
def test_a_format_survives_json(format: Format) -> None:
    assert Format.from_dict(json.loads(json.dumps(format.to_dict()))) == format


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"scheme": "int8"}, "scheme must be 'unary' or 'mx' or 'exact', not 'int8'"),
        ({"truncated": 8}, "truncated must be an integer from 0 to 7, not 8"),
        ({"truncated": -1}, "truncated must be an integer from 0 to 7, not -1"),
        ({"truncated": True}, "truncated must be an integer from 0 to 7, not True"),
        ({"truncated": 4.0}, "truncated must be an integer from 0 to 7, not 4.0"),
        (
            {"significand": 7},
            "significand must be 8 in scheme unary, not 7",
        ),
        (
            {"scheme": "mx", "significand": 1},
            "significand must be an integer from 2 to 8, not 1",
        ),
        (
            {"scheme": "mx", "significand": 5, "truncated": 2},
            "truncated must be at least 3 with a significand of 5 bits, not 2",
        ),
        ({"fill": "mean"}, "fill must be 'zero' or 'midpoint', not 'mean'"),
        ({"beat": 24}, "beat must be 8 or 16 or 32, not 24"),
        ({"group": 8}, "group must be a multiple of 16 (the beat), at most 256, not 8"),
        ({"group": 512}, "group must be a multiple of 16 (the beat), at most 256, not 512"),
        ({"group": 48}, "group must be a power of two, not 48"),
        ({"segment": 100}, "segment must be a multiple of 32 (the group), at most 65536, not 100"),
        ({"segment": 0}, "segment must be a multiple of 32 (the group), at most 65536, not 0"),
        ({"segment": 1 << 17}, "at most 65536, not 131072"),
        ({"codebook": 64}, "codebook must be 16 or 32, not 64"),
        ({"pruned_exponent": "huffman"}, "pruned_exponent must be 'raw' or 'coded', not 'huffman'"),
        (
            {"scheme": "mx", "pruned_exponent": "coded"},
            "pruned_exponent must be 'raw' in scheme mx, not 'coded'",
        ),
        ({"window": 5}, "window must be an integer from 1 to 4, not 5"),
        ({"lead": 0}, "lead must be an integer from 1 to 4, not 0"),
        ({"superblock": 64}, "superblock must be a multiple of 128 (the cache block)"),
        ({"superblock": 8192}, "at most 4096, not 8192"),
        ({"planes": 3}, "format field must be one of beat, codebook, fill"),
    ],
)
def test_what_is_wrong_is_named(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(CassandraError) as raised:
        Format.from_dict(fields)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_what_is_left_out_has_its_default() -> None:
    assert Format.from_dict({"scheme": "mx", "group": 64}) == Format(scheme="mx", group=64)


def test_a_significand_is_written_where_it_is_narrow() -> None:
    """Readers from before it take files without it, and refuse those that need it."""
    assert "significand" not in Format(scheme="mx").to_dict()
    assert Format(scheme="mx", significand=7).to_dict()["significand"] == 7


def test_a_format_is_frozen_and_keyword_only() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Format().beat = 8  # type: ignore[misc]
    with pytest.raises(TypeError):
        Format("unary")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({}, "mask exponent sign_high low pruned"),
        ({"truncated": 0}, "mask exponent sign_high pruned"),
        ({"pruned_exponent": "coded"}, "mask exponent sign_high low pruned_exponent pruned"),
        ({"scheme": "mx"}, "mask exponent sign_high low pruned"),
        (
            {"scheme": "mx", "significand": 7, "truncated": 1},
            "mask exponent sign_high pruned",
        ),
        ({"scheme": "exact"}, "mask exponent sign_high low residue pruned"),
    ],
)
def test_streams_of_a_format(fields: dict[str, Any], names: str) -> None:
    assert [stream.name for stream in Format(**fields).streams] == names.split()


@given(format=formats())
def test_planes_hold_every_bit_once(format: Format) -> None:
    stored = 7 if format.scheme == "unary" else format.significand
    assert format.high_planes + len(format.low_places) == 1 + stored
    assert 0 <= format.fill_pattern < 1 << format.truncated or not format.truncated
    assert {stream.name for stream in format.streams} <= {stream.name for stream in STREAMS}
