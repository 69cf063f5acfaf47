"""Parallel decoding of unary codes: Algorithm 1 of the paper, corrected.

Chunks of 8 bits are counted on their own, all at once (Figure 9); what a code has in earlier
chunks is added afterwards. The algorithm as printed loses that part whenever the next chunk does
not end in a one; docs/format.md says what is wrong with it, and a test keeps it as a
counterexample. The codec uses another way (:mod:`cassandra_spec.golden.arrays.decoder`); this is
the reference for the zero counter of the gateware.
"""

from __future__ import annotations

from collections.abc import Iterable

from cassandra_spec.golden.errors import CassandraError

CHUNK = 8
"""Bits in a chunk (paper, V.A)."""


def count_chunk(chunk: int) -> tuple[list[int], int]:
    """Zeros before each one of a chunk since the one before it (or the start), and after the last.

    Bit 0 of ``chunk`` (0..255) is the first bit of the stream. A chunk without a one has no runs
    and 8 zeros at its end.
    """
    runs: list[int] = []
    zeros = 0
    for place in range(CHUNK):
        if chunk >> place & 1:
            runs.append(zeros)
            zeros = 0
        else:
            zeros += 1
    return runs, zeros


def reorganize(runs: list[int], tail: int, carry: int) -> tuple[list[int], int]:
    """Ranks of the codes that end in a chunk, and the zeros that it hands on.

    ``runs`` and ``tail`` are those of :func:`count_chunk`, ``carry`` the zeros handed on by the
    chunk before.
    """
    if not runs:
        return [], carry + tail
    return [runs[0] + carry, *runs[1:]], tail


def parallel_decode(chunks: Iterable[int], count: int, *, limit: int) -> list[int]:
    """The first ``count`` ranks of a unary-coded stream of 8-bit chunks.

    Raises :class:`CassandraError` that says where: if a run of ``limit`` (at least 8) or more zeros
    comes before the last rank that is wanted, or the stream ends early.
    """
    if not count:
        return []
    counted = [count_chunk(chunk) for chunk in chunks]  # independent of each other: in parallel
    ranks: list[int] = []
    carry = 0
    for place, (runs, tail) in enumerate(counted):
        found, carry = reorganize(runs, tail, carry)
        ranks += found[: count - len(ranks)]
        if len(ranks) == count:
            _check_runs(found[:1], limit, place)
            break
        _check_runs([*found[:1], carry], limit, place)
    if len(ranks) < count:
        end = CHUNK * len(counted)
        raise CassandraError(f"stream must hold {count} codes, not {len(ranks)} in {end} bits")
    return ranks


def _check_runs(runs: list[int], limit: int, chunk: int) -> None:
    if max(runs, default=0) >= limit:
        first, last = CHUNK * chunk, CHUNK * chunk + CHUNK - 1
        raise CassandraError(
            f"code must have fewer than {limit} zeros, not {max(runs)} at bits {first} to {last}"
        )
