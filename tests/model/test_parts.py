from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cassandra_spec.golden import CassandraError, Format, Packed, concatenate
from cassandra_spec.golden.codec import decode_draft, decode_target, encode

FORMATS = [Format(scheme=scheme, segment=64) for scheme in ("unary", "mx", "exact")]


def sample(format_: Format, count: int) -> Packed:
    rng = np.random.default_rng(count)
    values = rng.integers(0x3C00, 0x4000, count).astype(np.uint16)
    return encode(values, format_, kept=rng.random(count) < 0.7)


@given(
    format_=st.sampled_from(FORMATS),
    count=st.sampled_from([1, 63, 64, 65, 128, 500]),
    cuts=st.lists(st.integers(0, 8), max_size=4),
)
def test_parts_decode_alone_and_make_the_whole_again(
    format_: Format, count: int, cuts: list[int]
) -> None:
    whole = sample(format_, count)
    places = sorted({0, *(min(cut, len(whole.directory)) for cut in cuts), len(whole.directory)})
    parts = [whole.part(a, b) for a, b in itertools.pairwise(places)]
    for decode in (decode_draft, decode_target):
        np.testing.assert_array_equal(
            np.concatenate([decode(part) for part in parts]), decode(whole)
        )
    joined = concatenate(parts)
    assert joined.count == whole.count
    for name in ("speculation", "verification", "directory"):
        np.testing.assert_array_equal(getattr(joined, name), getattr(whole, name))


def test_a_part_of_no_segments_is_empty() -> None:
    part = sample(FORMATS[0], 500).part(3, 3)
    assert (part.count, part.speculation.size, len(part.directory)) == (0, 0, 0)


def test_bits_and_replaced_values_add_up() -> None:
    one = dataclasses.replace(sample(FORMATS[1], 64), stream_bits={"low": 3}, saturated=2)
    two = dataclasses.replace(one, stream_bits={"low": 4, "mask": 0})
    joined = concatenate([one, two])
    assert dict(joined.stream_bits) == {"low": 7, "mask": 0}
    assert joined.saturated == 4


def test_parts_of_different_codebooks_are_refused() -> None:
    one = sample(FORMATS[0], 64)
    with pytest.raises(CassandraError, match="must share one format and its codebooks"):
        concatenate([one, dataclasses.replace(one, codebook=(1,))])


def test_a_short_part_can_only_be_the_last() -> None:
    short = sample(FORMATS[1], 65)
    with pytest.raises(CassandraError, match="must be a multiple of 64, not 65"):
        concatenate([short, short])
