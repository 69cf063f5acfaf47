"""Shared parts of both paths' suites: configurations, beats by the format, a bench."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

import cocotb
import numpy as np
from amaranth.lib import data
from numpy.typing import NDArray

from cassandra_spec.golden.format import SCHEMES, Format, Scheme
from cassandra_spec.rtl.common.command import DecoderConfig
from cassandra_spec.rtl.common.superblock_reader import BUS_ROWS
from cassandra_spec.verif.decoder.jobs import Job, jobs_of, sizes_of
from cassandra_spec.verif.library.bank import care_of, fields_of, number_of
from cassandra_spec.verif.library.models import (
    bits_of,
    kept_field,
    lane_choices,
    names_of_bits,
    number_of_bits,
)
from cassandra_spec.verif.library.packets import codebook_packet, region_packet
from cassandra_spec.verif.library.patterns import PATTERNS
from cassandra_spec.verif.library.payloads import draw, kinds_of, random_format
from cassandra_spec.verif.library.streams import Agent, Bench, Port, Sink, Source
from cassandra_spec.verif.library.workloads import PACES

CONFIGS = {
    "l8": DecoderConfig(lanes=8, codebook=32, window=1, superblock=256, coded=True),
    "l32": DecoderConfig(lanes=32),
}
"""Decoders at both ends of the parameter ranges, by the name of the instance."""

VERIFICATION_CONFIGS = {**CONFIGS, "full": DecoderConfig(lanes=8, target_rate="full")}
"""These decoders, and one with targets at full rate."""

LIMIT = 100_000
"""Cycle limit for hangs; no working test comes near it."""


def _format(config: DecoderConfig, rng: np.random.Generator, scheme: Scheme) -> Format:
    """Draw a random format that the decoder reads."""
    return random_format(
        rng,
        lanes=config.lanes,
        scheme=scheme,
        segment=512,
        coded=config.coded,
        **sizes_of(config),
    )


def crossed_jobs(
    config: DecoderConfig, rng: np.random.Generator, modes: Sequence[bool]
) -> Iterator[tuple[str, str, list[Job]]]:
    """Yield jobs for each pair of idle and back-pressure: tensors of every kind and size."""
    kinds = [(scheme, kind) for scheme in SCHEMES for kind in kinds_of(scheme)]
    order = itertools.cycle(rng.permutation(len(kinds)))
    for idle, pressure in itertools.product(PACES, PACES):
        jobs: list[Job] = []
        while len(jobs) < 3:
            scheme, kind = kinds[next(order)]
            fmt = _format(config, rng, scheme)
            count = int(rng.integers(1, 16 * fmt.beat + 2))
            jobs.extend(jobs_of(draw(rng, fmt, count, kind), modes))
        yield idle, pressure, [jobs[place] for place in rng.permutation(len(jobs))]


def words_of(
    region: NDArray[np.uint8], lanes: int, rows: int = BUS_ROWS
) -> Iterator[dict[str, int]]:
    """Return a region as bus payloads of ``rows`` rows: data and, above it, ``last``."""
    size = rows * lanes // 8
    for word in region_packet(region.tobytes(), size):
        yield {"payload": word["tdata"] | word["tlast"] << 8 * size}


def cut_short(words: Sequence[dict[str, int]], count: int, lanes: int) -> list[dict[str, int]]:
    """Return the first ``count`` words; the last of them ends the packet."""
    end = {"payload": words[count - 1]["payload"] | 1 << BUS_ROWS * lanes}
    return [*words[: count - 1], end]


def beats_of(job: Job) -> list[dict[str, Any]]:
    """Compute the beats at the speculation path's output, value by value from the tensor itself."""
    payload, fmt, span = job.payload, job.payload.format, job.span
    values = [int(value) for value in payload.values[span]]
    kept = [bool(flag) for flag in payload.fate[span]]
    groups = [0] * len(values) if fmt.scheme == "unary" else payload.groups[span].tolist()
    lanes = [
        _lane(fmt, value, group) if flag else None
        for value, flag, group in zip(values, kept, groups, strict=True)
    ]
    starts = range(0, len(lanes), fmt.beat)
    beats = [_beat(fmt, lanes[i : i + fmt.beat], groups[i]) for i in starts]
    beats[-1]["last"] = 1
    return list(_with_blocks(fmt, beats, target=job.target))


def _with_blocks(
    fmt: Format, beats: list[dict[str, Any]], *, target: bool
) -> Iterator[dict[str, Any]]:
    """Mark the beats that begin a block by the rule ``blocked`` of docs/format.md, section 6.

    In targets also mark the values of the block that the lanes take.
    """
    available = used = 0
    for beat in beats:
        kept = beat["kept"].bit_count()
        begins = available < kept
        available += fmt.beat * begins - kept
        choices = lane_choices(fmt.beat, 2 * fmt.beat, beat["kept"], used) if target else None
        yield {**beat, "begins": int(begins), "choices": choices}
        used += kept


def _lane(fmt: Format, value: int, group: int) -> tuple[int, int]:
    """Return the planes of ``sign_high`` as one number, and the exponent."""
    sign, magnitude, exponent = kept_field(fmt.scheme, value, group)
    bits = bits_of(magnitude, fmt.magnitude_bits)
    return number_of_bits([sign, *reversed(bits[fmt.truncated :])]), exponent


def _beat(fmt: Format, lanes: list[tuple[int, int] | None], shared: int) -> dict[str, Any]:
    unary = fmt.scheme == "unary"
    absent = [None] * (fmt.beat - len(lanes))
    kept = [lane is not None for lane in lanes]
    return {
        "high": [lane and lane[0] for lane in lanes] + absent,
        "exponent": [lane and lane[1] for lane in lanes] + absent if unary else None,
        "shared": None if unary else shared,
        "kept": number_of_bits(kept),
        "last": 0,
        "abort": 0,
    }


def noisy(rng: np.random.Generator, shape: data.StructLayout, beat: Mapping[str, Any]) -> int:
    """Return the bits of a beat, with noise where any value is allowed."""
    noise = int.from_bytes(rng.bytes(-(-shape.size // 8)), "little")
    care = care_of(shape, beat)
    return number_of(shape, beat) | noise & ~care & ((1 << shape.size) - 1)


def mismatch(shape: data.StructLayout, got: int, expected: Mapping[str, Any]) -> str:
    """Describe a difference from the expected fields; return an empty text if they are equal."""
    if not (got ^ number_of(shape, expected)) & care_of(shape, expected):
        return ""
    return f"{fields_of(shape, got)} must be {dict(expected)}"


class _Pulses(Agent):
    """Records the bits of a port that were set in some cycle."""

    def __init__(self, signal: Any, names: tuple[str, ...]) -> None:
        self._signal = signal
        self._names = names
        self._seen = 0

    def sample(self) -> None:
        self._seen |= int(self._signal.value)

    def reset(self) -> None:
        self._seen = 0

    def take(self) -> set[str]:
        """Return the bits set since the last call, by name."""
        seen, self._seen = self._seen, 0
        return set(names_of_bits(seen, self._names))


class PathBench:
    """One instance of a block: its streams by name, its errors, and the clock's loop."""

    causes: tuple[str, ...] = ()  # bits of ``errors``; empty: the block has no such port

    def __init__(
        self,
        dut: Any,
        instance: str,
        shape: data.StructLayout,
        *,
        sources: Sequence[str],
        sink: str,
    ) -> None:
        self.shape = shape
        self.bench = Bench(dut, cocotb.RANDOM_SEED)
        self.rng = self.bench.rng
        self.sources: dict[str, Source] = {
            name: self.bench.source(Port.amaranth(dut, f"{instance}__{name}")) for name in sources
        }
        self.sink: Sink = self.bench.sink(Port.amaranth(dut, f"{instance}__{sink}"))
        self._dut = dut
        self._instance = instance
        self._codebook: tuple[int, ...] = ()

    async def started(self) -> Self:
        """Start the clock, and reset."""
        if self.causes:
            self.errors = _Pulses(self._dut[f"{self._instance}__errors"], self.causes)
            self.bench.agents.append(self.errors)
        await self.bench.started()
        return self

    def use(self, idle: str, pressure: str) -> None:
        """Set the patterns of all sources and of the sink."""
        self._dut._log.info("idle %s, back-pressure %s", idle, pressure)
        for source in self.sources.values():
            source.use(PATTERNS[idle])
        self.sink.use(PATTERNS[pressure])

    async def taken(self, name: str) -> None:
        """Wait until this source has sent everything."""
        await self.bench.until(lambda: self.sources[name].idle, LIMIT, f"the end of {name}")

    async def load(self, codebook: tuple[int, ...], *, wait: bool = True) -> None:
        """Send a codebook if it changes; with ``wait``, until it is taken."""
        if codebook and codebook != self._codebook:
            self._codebook = codebook
            words = codebook_packet(codebook)
            self.sources["codebook"].send(
                {"payload": word["tdata"] | word["tlast"] << 8} for word in words
            )
            if wait:
                await self.taken("codebook")

    async def compare(self, expected: Sequence[tuple[object, Mapping[str, Any]]]) -> None:
        """Wait for these beats and compare them; each names what it belongs to."""
        received = self.sink.received
        await self.bench.until(lambda: len(received) >= len(expected), LIMIT, "all beats")
        for (owner, beat), item in zip(expected, list(received), strict=True):
            wrong = mismatch(self.shape, item["payload"], beat)
            assert not wrong, f"{owner}: {wrong}"
        received.clear()

    async def compare_broken(
        self, owner: object, end: Mapping[str, Any], beats: Iterable[Mapping[str, Any]]
    ) -> None:
        """Wait for a packet that ends with ``end``, after a prefix of ``beats``."""
        packet = await self.packet()
        assert mismatch(self.shape, packet[-1], end) == "", owner
        for got, beat in zip(packet[:-1], beats, strict=False):
            wrong = mismatch(self.shape, got, beat)
            assert not wrong, f"{owner}: {wrong}"

    async def packet(self) -> list[int]:
        """Return the next packet of the sink, up to a payload with ``last``; then check for
        silence.
        """
        received, last = self.sink.received, self.shape["last"].offset
        await self.bench.until(
            lambda: bool(received) and bool(received[-1]["payload"] >> last & 1), LIMIT, "last"
        )
        packet = [item["payload"] for item in received]
        received.clear()
        return packet
