"""Promises of section 6 about the schedule, and the memory of a long tensor."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from cassandra_spec.golden import Format, codec, decode_draft, decode_target, encode, oracle
from cassandra_spec.golden.arrays.schedule import Grid, coded_counts, packed_counts
from cassandra_spec.golden.oracle import streams
from tests.golden.cases import Case, cases


@settings(max_examples=60)
@given(case=cases())
def test_streams_leave_behind_no_more_than_their_buffers_hold(case: Case) -> None:
    beat, window = case.format.beat, case.format.window_bits
    with pytest.MonkeyPatch.context() as patch:
        _bound(patch, streams.PackedStream, "take", "_bits", beat - 1)
        _bound(patch, streams.BlockedStream, "take", "_values", beat - 1)
        _bound(patch, streams.CodedStream, "starve", "_ranks", beat - 1 + window)
        _bound(patch, streams.CodedStream, "prefetch", "_ranks", beat - 1 + window)
        oracle.encode(case.values, case.format, **case.options)


def _bound(patch: pytest.MonkeyPatch, stream: Any, rule: str, buffer: str, most: int) -> None:
    plain = getattr(stream, rule)

    def checked(self: Any, *arguments: Any) -> Any:
        result = plain(self, *arguments)
        assert len(getattr(self, buffer)) <= most
        return result

    patch.setattr(stream, rule, checked)


@settings(max_examples=60)
@given(case=cases())
def test_regions_are_whole_superblocks_one_after_another(case: Case) -> None:
    packed = encode(case.values, case.format, **case.options)
    for column, region in ((0, packed.speculation), (2, packed.verification)):
        offsets, lengths = packed.directory[:, column], packed.directory[:, column + 1]
        np.testing.assert_array_equal(offsets, np.cumsum(lengths) - lengths)
        assert region.size == lengths.sum() * case.format.superblock
    masked = packed.directory[:, 4]
    assert set(masked.tolist()) <= {0, 1}


def test_grid_of_a_short_tensor_and_of_a_long_one() -> None:
    format = Format(beat=8, group=16, segment=64)
    short = Grid(format=format, count=17)
    assert (short.segments, short.beats, short.padded) == (1, 4, 32)
    assert short.existing.tolist() == [[8, 8, 1, 0]]
    long = Grid(format=format, count=130)
    assert (long.segments, long.beats) == (3, 8)
    assert long.sizes.tolist() == [64, 64, 2]
    assert long.existing[2].tolist() == [2] + [0] * 7


def test_packed_streams_take_rows_when_they_run_out() -> None:
    needs = np.array([[3, 5, 0, 1, 24]])
    assert packed_counts(needs, 8).tolist() == [[1, 0, 0, 1, 3]]


def test_coded_streams_read_ahead_by_at_most_one_window_a_slot() -> None:
    needed, wanted = np.array([[1, 4, 4]]), np.array([[3, 6, 6]])
    starve, prefetch = coded_counts(needed, wanted, np.array([[True, True, True]]))
    assert starve.tolist() == [[0, 2, 0]]  # two of the four were read ahead
    assert prefetch.tolist() == [[1, 1, 1]]
    _, prefetch = coded_counts(needed, wanted, np.array([[True, True, False]]))
    assert prefetch.tolist() == [[1, 1, 0]]


@pytest.mark.parametrize(
    "format",
    [
        Format(segment=1024),
        Format(segment=1024, pruned_exponent="coded"),
        Format(segment=1024, scheme="mx"),
        Format(segment=1024, scheme="exact"),
    ],
    ids=lambda format: f"{format.scheme} {format.pruned_exponent}",
)
def test_memory_does_not_grow_with_the_tensor(
    format: Format, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(codec, "RUN_VALUES", 1 << 15)
    monkeypatch.setattr("cassandra_spec.golden.codec._SLICE", 1 << 15)
    monkeypatch.setattr("cassandra_spec.golden.arguments._SLICE", 1 << 15)
    rng = np.random.default_rng(1)
    extra = {}
    for runs in (2, 16):
        values = rng.integers(0x3C00, 0x4000, runs << 15).astype(np.uint16)
        kept = rng.random(values.size) < 0.6
        tracemalloc.start()
        packed = encode(values, format, kept=kept)
        # The parts and their concatenation are there together.
        stored = packed.speculation.nbytes + packed.verification.nbytes
        extra[runs] = [tracemalloc.get_traced_memory()[1] - 2 * stored]
        for decode in (decode_draft, decode_target):
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            decode(packed)
            extra[runs].append(tracemalloc.get_traced_memory()[1] - before - values.nbytes)
        tracemalloc.stop()
    assert all(large < 1.5 * small for small, large in zip(extra[2], extra[16], strict=True))
