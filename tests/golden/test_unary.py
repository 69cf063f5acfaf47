"""Parallel zero counting: the corrected Algorithm 1, and the printed one as a counterexample."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cassandra_spec.golden import CassandraError
from cassandra_spec.golden.arrays.unary import count_chunk, parallel_decode, reorganize


def code(ranks: list[int]) -> list[int]:
    """Return chunks of the codes, completed with zeros."""
    bits = [bit for rank in ranks for bit in [0] * rank + [1]]
    bits += [0] * (-len(bits) % 8)
    return [sum(bits[i + j] << j for j in range(8)) for i in range(0, len(bits), 8)]


def serial_decode(bits: list[int], carry: int) -> tuple[list[int], int]:
    ranks = []
    for bit in bits:
        if bit:
            ranks.append(carry)
        carry = 0 if bit else carry + 1
    return ranks, carry


def as_printed(chunks: list[int], numel: int) -> list[int]:
    """Algorithm 1 line by line, ranks instead of exponents.

    Mended where it would not run at all: ``cnt`` is kept for each chunk, and ``l`` is counted. A
    result of more than ``numel`` elements (line 23) is cut.
    """
    reorganized, counts, outputs = [], [], []
    for chunk in chunks:  # lines 3 to 11
        bits = [chunk >> j & 1 for j in range(8)]
        cnt = 0
        output = []
        reorganized.append(bits[7])
        for bit in bits:
            if bit == 0:
                cnt += 1
            else:
                output.append(cnt)
                cnt = 0
        counts.append(cnt)
        outputs.append(output)
    total = 0
    for k in range(len(chunks)):  # lines 12 to 18
        if reorganized[k] == 0:
            total += counts[k]
        else:
            outputs[k][0] += total
            total = 0
    return [rank for output in outputs for rank in output][:numel]  # lines 19 to 24


@pytest.mark.parametrize("carry", range(33))
def test_every_chunk_with_every_carry(carry: int) -> None:
    for chunk in range(256):
        bits = [chunk >> place & 1 for place in range(8)]
        assert reorganize(*count_chunk(chunk), carry) == serial_decode(bits, carry)


@pytest.mark.parametrize(
    ("ranks", "chunks", "printed"),
    [
        ([0, 3, 5, 0, 1], ["10001000", "00110100"], [0, 3, 2, 0, 1]),
        ([9, 0], ["00000000", "01100000"], [1, 0]),
    ],
)
def test_the_printed_algorithm_loses_carries(
    ranks: list[int], chunks: list[str], printed: list[int]
) -> None:
    stream = [int(chunk[::-1], 2) for chunk in chunks]
    assert code(ranks) == stream
    assert as_printed(stream, len(ranks)) == printed != ranks
    assert parallel_decode(stream, len(ranks), limit=16) == ranks


def test_the_printed_algorithm_is_right_only_where_no_carry_enters_a_chunk_that_ends_in_zero() -> (
    None
):
    assert as_printed(code([2, 4, 3, 0, 2]), 5) == [2, 4, 3, 0, 2]  # 00100001 00011001
    assert as_printed(code([2, 5, 2, 0, 2]), 5) == [2, 5, 2, 0, 2]  # 00100000 10011001
    assert as_printed(code([2, 5, 2, 0, 1]), 5) == [2, 0, 2, 0, 1]  # 00100000 10011010


@settings(max_examples=200)
@given(
    ranks=st.lists(st.integers(0, 31), max_size=60),
    spare=st.lists(st.integers(0, 255), max_size=3),
)
def test_any_ranks_come_back(ranks: list[int], spare: list[int]) -> None:
    stream = code(ranks) + spare
    for count in {0, len(ranks) // 2, len(ranks)}:
        assert parallel_decode(stream, count, limit=32) == ranks[:count]


@pytest.mark.parametrize("limit", [8, 16, 32])
def test_a_run_at_the_limit_is_found_where_it_is(limit: int) -> None:
    legal = [limit - 1, 0, limit - 1]
    assert parallel_decode(code(legal), 3, limit=limit) == legal
    with pytest.raises(CassandraError, match=rf"fewer than {limit} zeros, not {limit} at bits"):
        parallel_decode(code([1, limit, 0]), 3, limit=limit)
    assert parallel_decode(code([1, limit, 0]), 1, limit=limit) == [1]  # no longer wanted
    with pytest.raises(CassandraError, match="fewer than"):
        parallel_decode([255, 0, 0, 0, 0, 0], 9, limit=limit)


def test_a_stream_that_ends_early_says_where() -> None:
    with pytest.raises(CassandraError, match="stream must hold 4 codes, not 3 in 16 bits"):
        parallel_decode(code([3, 4, 1]), 4, limit=16)


def test_most_random_streams_break_the_printed_algorithm() -> None:
    rng = np.random.default_rng(2)
    failures = 0
    for _ in range(200):
        ranks = np.minimum(rng.geometric(0.5, 32) - 1, 15).tolist()
        assert parallel_decode(code(ranks), 32, limit=16) == ranks
        failures += as_printed(code(ranks), 32) != ranks
    assert failures > 100
