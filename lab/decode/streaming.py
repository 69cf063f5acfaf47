"""Measure the cost of a round if the target is streamed from disk, relative to memory."""

from __future__ import annotations

import contextlib
import dataclasses
import mmap
import os
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cassandra_spec.lab.decode.shapes import projected_rate, prompt_of, time_rounds
from cassandra_spec.toolkit.tables import text_table

if TYPE_CHECKING:
    from cassandra_spec.native.engine import Engine

_READ = 4 << 20  # bytes at a time
_MAX_READ = 1 << 29
_MAX_GAMMA = 15
_PROMPT = 32
_CONTEXT = 512


@dataclasses.dataclass(frozen=True, kw_only=True)
class RoundCosts:
    """Seconds and bytes of an engine's rounds."""

    where: str  # the target is
    held: int  # bytes of weights, buffers and keys and values
    read: int  # bytes of the file that a verification reads
    rate: float | None  # bytes a second of reading them, while something is read
    draft: float  # seconds of a draft step
    verify: tuple[float, ...]  # of a verification of gamma tokens, 0 to 15

    def tokens_per_second(self, gamma: int, acceptance: float) -> float:
        """Estimate tokens per second from a conditional acceptance rate."""
        return projected_rate(self.draft, self.verify, gamma, acceptance)

    def best(self, acceptance: float) -> int:
        """Return the gamma with the most tokens per second."""
        rates = [self.tokens_per_second(gamma, acceptance) for gamma in range(_MAX_GAMMA + 1)]
        return rates.index(max(rates))


def file_rate(path: Path) -> float:
    """Measure the bytes per second of sequential reading, bypassing the page cache if possible."""
    with contextlib.closing(mmap.mmap(-1, _READ)) as room, _opened(path) as file:
        size = min(os.fstat(file).st_size, _MAX_READ) // _READ * _READ
        begun = time.perf_counter()
        for place in range(0, size, _READ):
            os.preadv(file, [room], place)
        return size / (time.perf_counter() - begun)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    try:
        file = os.open(path, os.O_RDONLY | os.O_DIRECT)
    except OSError:
        file = os.open(path, os.O_RDONLY)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    try:
        yield file
    finally:
        os.close(file)


def measure(
    source: Path, limits: Sequence[int | None], *, threads: int, rounds: int
) -> list[RoundCosts]:
    """Measure rounds at each memory limit (bytes; None: everything in memory).

    For each gamma ``rounds`` rounds are timed one after another; seconds are medians.
    """
    from cassandra_spec.native.engine import Engine

    found = []
    for limit in limits:
        with Engine.from_packed(
            source, memory_limit=limit, threads=threads, context=_CONTEXT, slots=0
        ) as engine:
            found.append(_measure(engine, rounds))
    return found


def _measure(engine: Engine, rounds: int) -> RoundCosts:
    drafts: list[float] = []
    verify = []
    prompt = prompt_of(_PROMPT, engine.config.vocabulary)
    engine.forward(prompt, last=0)
    before = engine.streamed()
    for gamma in range(_MAX_GAMMA + 1):
        steps, passes = time_rounds(engine, prompt, gamma, rounds)
        drafts += steps
        verify.append(statistics.median(passes))
    after, held = engine.streamed(), engine.memory()
    read = held.pop("streamed", 0)
    rate = None
    if before and after and read:
        rate = (after.read - before.read) / (after.seconds - before.seconds)
    return RoundCosts(
        where="file" if read else "memory",
        held=sum(held.values()) + held["position"] * (engine.context - 1),
        read=read,
        rate=rate,
        draft=statistics.median(drafts),
        verify=tuple(verify),
    )


def costs_table(found: Sequence[RoundCosts], acceptances: Sequence[float]) -> str:
    """Format one line per engine."""
    head = ["target in", "MB held", "MB read", "GB/s", "draft ms", "verify ms", "of 16 rows"]
    head += [f"tokens/s at {acceptance:g}, plain" for acceptance in acceptances]
    rows = []
    for one in found:
        cells = [one.where, f"{one.held / 1e6:,.0f}", f"{one.read / 1e6:,.0f}"]
        cells += ["-" if one.rate is None else f"{one.rate / 1e9:.2f}", f"{one.draft * 1e3:.1f}"]
        cells += [f"{one.verify[gamma] * 1e3:.1f}" for gamma in (0, _MAX_GAMMA)]
        for acceptance in acceptances:
            best = one.best(acceptance)
            fast, plain = (one.tokens_per_second(gamma, acceptance) for gamma in (best, 0))
            cells.append(f"{fast:.1f} (gamma {best}), {plain:.1f}")
        rows.append(cells)
    return text_table(head, rows)


def gammas_table(found: Sequence[RoundCosts], acceptance: float) -> str:
    """Format tokens per second of every gamma, one column per engine."""
    head = ["gamma", *(f"{one.where}, {one.held / 1e6:,.0f} MB" for one in found)]
    rows = [
        [str(gamma), *(f"{one.tokens_per_second(gamma, acceptance):.2f}" for one in found)]
        for gamma in range(_MAX_GAMMA + 1)
    ]
    return text_table(head, rows)
