"""Parallel decoding of unary codes: Algorithm 1 of the paper, corrected.

Chunks of 8 bits are counted independently (Figure 9); the part of a code in earlier chunks is added
afterwards. The algorithm as printed loses that part whenever the next chunk does not end in a one;
docs/format.md describes the error, and a test keeps the printed version as a counterexample. The
codec uses another method (:mod:`cassandra_spec.golden.arrays.decoder`); this module is the
reference for the zero counter of the gateware.
"""

from __future__ import annotations

from collections.abc import Iterable

from cassandra_spec.golden.errors import CassandraError

CHUNK = 8
"""Bits in a chunk (paper, V.A)."""


def count_chunk(chunk: int) -> tuple[list[int], int]:
    """Count the zeros before each one of a chunk, from the previous one, and after the last one.

    Bit 0 of ``chunk`` (0..255) is the first bit of the stream. A chunk without a one has no runs
    and a tail of 8 zeros.
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
    """Return the ranks of the codes that end in a chunk, and the zeros carried to the next chunk.

    ``runs`` and ``tail`` come from :func:`count_chunk`; ``carry`` is the number of zeros carried
    from the previous chunk.
    """
    if not runs:
        return [], carry + tail
    return [runs[0] + carry, *runs[1:]], tail


def parallel_decode(chunks: Iterable[int], count: int, *, limit: int) -> list[int]:
    """Return the first ``count`` ranks of a unary-coded stream of 8-bit chunks.

    Raises :class:`CassandraError` with the position if ``limit`` (at least 8) or more zeros in a
    row precede the last requested rank, or if the stream ends early.
    """
    if not count:
        return []
    counted = [count_chunk(chunk) for chunk in chunks]  # independent: parallel in hardware
    ranks: list[int] = []
    carry = 0
    for place, (runs, tail) in enumerate(counted):
        chunk_ranks, carry = reorganize(runs, tail, carry)
        ranks += chunk_ranks[: count - len(ranks)]
        if len(ranks) == count:
            _check_runs(chunk_ranks[:1], limit, place)
            break
        _check_runs([*chunk_ranks[:1], carry], limit, place)
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
