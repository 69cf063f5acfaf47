"""Zero counters: every chunk with every carry, and random and directed windows of chunks."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import cocotb

from cassandra_spec.rtl.zero_counter import CHUNK, ParallelZeroCounter, ZeroCounter
from cassandra_spec.verif.library.bank import Bank, Case, play, rng_of
from cassandra_spec.verif.library.coverage import FOLDER, Coverage, legal_chunks
from cassandra_spec.verif.library.models import bits_of, count_zeros

# Width and limit of each counter of one chunk, and of each counter of several chunks.
CHUNKS = [
    *((width, limit) for width in range(1, 9) for limit in (16, 32)),
    *((9, 16), (1, 1), (2, 3), (8, 8), (9, 9)),
]
WINDOWS = [
    *((width, 16) for width in (1, 7, 8, 9, 16, 24, 32, 64)),
    *((9, 32), (32, 32), (64, 32), (16, 8)),
]
RANDOM_WINDOWS = 600


def design() -> Bank:
    """Build all counters side by side."""
    chunks = {_chunk_name(w, n): ZeroCounter(w, limit=n) for w, n in CHUNKS}
    windows = {_window_name(w, n): ParallelZeroCounter(w, limit=n) for w, n in WINDOWS}
    return Bank({**chunks, **windows})


def _chunk_name(width: int, limit: int) -> str:
    return f"chunk_{width}_{limit}"


def _window_name(width: int, limit: int) -> str:
    return f"window_{width}_{limit}"


def case_of(bits: int, carry: int, width: int, limit: int) -> Case:
    """Return a chunk or window, a carry, and the result of a count bit by bit."""
    zeros = count_zeros(bits_of(bits, width), carry, limit)
    outputs = {
        "runs": [run if bits >> place & 1 else None for place, run in enumerate(zeros.runs)],
        "ones": zeros.ones,
        "carry_out": zeros.carry_out,
        "overflow": zeros.overflow,
    }
    return Case({"bits": bits, "carry_in": carry}, outputs)


def every_chunk(width: int, limit: int) -> Iterator[Case]:
    """Yield all chunks with all carries."""
    for carry in range(limit + 1):
        for bits in range(1 << width):
            yield case_of(bits, carry, width, limit)


def directed_windows(width: int, limit: int) -> Iterator[Case]:
    """Yield no one, a single one, all ones but one, and runs at the limit, at every place."""
    for carry in (0, 1, limit - 1, limit):
        yield case_of(0, carry, width, limit)
        yield case_of((1 << width) - 1, carry, width, limit)
        for place in range(width):
            yield case_of(1 << place, carry, width, limit)
            yield case_of((1 << width) - 1 ^ 1 << place, carry, width, limit)
    for place in range(width):
        for length in (limit - 1, limit):
            run = ((1 << length) - 1) << place
            yield case_of(((1 << width) - 1) & ~run, 0, width, limit)


def random_windows(rng: random.Random, width: int, limit: int) -> Iterator[Case]:
    """Yield ones of every density, with any carry."""
    for _ in range(RANDOM_WINDOWS):
        density = rng.choice((0.03, 0.1, 0.3, 0.5, 0.9))
        bits = sum((rng.random() < density) << place for place in range(width))
        yield case_of(bits, rng.randrange(limit + 1), width, limit)


@cocotb.test()
async def every_chunk_with_every_carry(dut: Any) -> None:
    """Exhaustive: all widths of a chunk from 1 to 9, both code limits, limits equal to widths."""
    bank = design()
    scripts = {_chunk_name(w, n): every_chunk(w, n) for w, n in CHUNKS}
    await play(dut, bank, scripts, clocked=False)
    coverage = Coverage()
    for carry, chunk in legal_chunks():
        assert not count_zeros(bits_of(chunk, CHUNK), carry, 16).overflow
        coverage.sample(f"chunk.{carry}.{chunk:02x}")
    coverage.require("chunk.*")
    coverage.save(FOLDER / "block_zero_counter.json")


@cocotb.test()
async def windows_at_the_edges(dut: Any) -> None:
    """Ones and runs of zeros at every place of a window, across the borders of chunks."""
    scripts = {_window_name(w, n): directed_windows(w, n) for w, n in WINDOWS}
    await play(dut, design(), scripts, clocked=False)


@cocotb.test()
async def windows_at_random(dut: Any) -> None:
    """Random windows."""
    scripts = {
        _window_name(w, n): random_windows(rng_of("windows", w, n), w, n) for w, n in WINDOWS
    }
    await play(dut, design(), scripts, clocked=False)
