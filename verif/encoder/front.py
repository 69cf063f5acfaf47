"""The encoder's front end: takes segments of every kind, gives records, at every pace."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import cocotb

from cassandra_spec.golden.format import ENCODE_ERROR_CAUSES
from cassandra_spec.rtl.encode.front import EncoderFront
from cassandra_spec.rtl.encode.types import EncoderConfig, RecordBeat, TensorWord
from cassandra_spec.verif.blocks.paths import LIMIT, PathBench, mismatch
from cassandra_spec.verif.encoder.cases import every_kind
from cassandra_spec.verif.encoder.model import Segment, records_of
from cassandra_spec.verif.formal.harness import Together
from cassandra_spec.verif.library.bank import number_of
from cassandra_spec.verif.library.models import names_of_bits
from cassandra_spec.verif.library.workloads import PACES

CONFIGS = {
    "l8": EncoderConfig(lanes=8, codebook=32, group=64),
    "l16": EncoderConfig(vector=64),
    "l16_c4": EncoderConfig(vector=64, values_per_cycle=4),
}
"""Encoders by the name of the instance."""


def design() -> Together:
    """Build a front end of each configuration."""
    return Together({name: EncoderFront(config) for name, config in CONFIGS.items()})


def words_of(values: Sequence[int], pace: int) -> Iterator[dict[str, int]]:
    """Yield a packet of values, ``pace`` in a word; absent lanes carry the first value.

    Some words do not mark their first lane as present; it counts all the same.
    """
    shape = TensorWord(pace)
    for start in range(0, len(values), pace):
        part = list(values[start : start + pace])
        word = {
            "values": part + [values[0]] * (pace - len(part)),
            "keep": (1 << len(part)) - 1 & ~(part[0] & 1),
            "last": int(start + pace >= len(values)),
        }
        yield {"payload": number_of(shape, word)}


class _Front(PathBench):
    """One instance, its streams, and its expected output."""

    def __init__(self, dut: Any, instance: str) -> None:
        self.config = CONFIGS[instance]
        sources = ("command", "codebook", "values")
        super().__init__(dut, instance, RecordBeat(self.config), sources=sources, sink="records")

    async def command(self, segment: Segment) -> None:
        """Send the codebook, if it changes, and the command, until it is taken."""
        await self.load(segment.codebook)
        self.sources["command"].send([{"payload": segment.word}])
        await self.taken("command")

    def values(self, segment: Segment) -> None:
        """Queue the packet of values."""
        self.sources["values"].send(words_of(segment.values.tolist(), self.config.pace))

    async def records(self, count: int) -> list[int]:
        """Return the next records; nothing may follow."""
        received = self.sink.received
        await self.bench.until(lambda: len(received) >= count, LIMIT, "all records")
        items = [item["payload"] for item in received]
        received.clear()
        assert len(items) == count, f"{len(items)} records must be {count}"
        return items

    def expected(self, segment: Segment) -> list[dict[str, Any]]:
        """Return the expected records of a segment."""
        return records_of(segment, pace=self.config.pace)

    async def check(self, segments: list[Segment]) -> int:
        """Send commands as early as possible; compare record by record. Return the cycles."""
        start = self.bench.cycle
        for segment in segments:
            self.values(segment)
        for segment in segments:
            await self.command(segment)
        await self.compare([(s, record) for s in segments for record in self.expected(s)])
        return self.bench.cycle - start


@cocotb.test()
@cocotb.parametrize(instance=list(CONFIGS))
async def records_of_every_kind_of_segment(dut: Any, instance: str) -> None:
    """Idle x back-pressure x values of all kinds in all schemes."""
    front = await _Front(dut, instance).started()
    segments = every_kind(front.bench.rng, front.config)
    for idle, pressure in itertools.product(PACES, PACES):
        front.use(idle, pressure)
        await front.check([next(segments) for _ in range(6)])


def _causes(front: _Front, record: int) -> set[str]:
    return set(names_of_bits(record >> front.shape["errors"].offset, ENCODE_ERROR_CAUSES))


def _flag(front: _Front, record: int, name: str) -> int:
    return record >> front.shape[name].offset & 1


async def _faulty(front: _Front, segment: Segment, packet: list[dict[str, int]]) -> list[int]:
    """Compare the records of a segment with a broken packet, and of the next, correct one."""
    front.sources["values"].send(packet)
    await front.command(segment)
    return await front.packet()


@cocotb.test()
@cocotb.parametrize(instance=list(CONFIGS))
async def packets_of_another_length(dut: Any, instance: str) -> None:
    """Too short: encoded with fewer values. Too long: the rest is drained. Both set their cause."""
    front = await _Front(dut, instance).started()
    segments = every_kind(front.bench.rng, front.config)
    for idle, pressure in itertools.product(("always", "half"), PACES):
        front.use(idle, pressure)
        for segment in itertools.islice(segments, 6):
            count, pace = segment.values.size, front.config.pace
            values = segment.values.tolist()
            other = int(front.bench.rng.integers(1, count + 3 * front.config.lanes))
            given = (values * (other // count + 1))[:other]
            shorter = dataclasses.replace(segment, values=segment.values[:other])
            records = await _faulty(front, segment, list(words_of(given, pace)))
            expected = front.expected(shorter)
            causes = {"short"} if other < count else {"long"} if other > count else set()
            assert _causes(front, records[-1]) == causes, (other, count)
            for beat, record in zip(expected, records, strict=True):
                wrong = mismatch(front.shape, record, beat | {"errors": None})
                assert not wrong, f"{segment}, {other} values: {wrong}"
            await front.check([next(segments)])


@cocotb.test()
@cocotb.parametrize(instance=list(CONFIGS))
async def commands_that_cannot_be_obeyed(dut: Any, instance: str) -> None:
    """A single record with ``abort``; the packet is drained, and the next segment is right."""
    front = await _Front(dut, instance).started()
    config = front.config
    segments = every_kind(front.bench.rng, config)
    low, group, vector = (config.lanes - 1).bit_length(), 23, 27
    faults = [
        ("scheme", 16, 2, 3),
        ("group", group, 4, low - 1),
        ("group", group, 4, config.group.bit_length()),
        ("vector", vector, 8, 2 * config.lanes - 2),
        ("vector", vector, 8, config.vector + config.lanes - 1),
    ]
    for name, place, width, value in faults:
        segment = next(segments)
        ones = (1 << width) - 1
        word = segment.word & ~(ones << place) | value << place
        front.values(segment)
        front.sources["command"].send([{"payload": word}])
        (record,) = await front.records(1)
        assert _causes(front, record) == {"command"}, name
        assert _flag(front, record, "last"), name
        assert _flag(front, record, "abort"), name
        assert not record >> front.shape["present"].offset & 1, name
        await front.check([next(segments)])


@cocotb.test()
@cocotb.parametrize(instance=list(CONFIGS))
async def causes_in_the_values(dut: Any, instance: str) -> None:
    """Values that mx without saturation, or unary or k without a mask, cannot code set a cause."""
    front = await _Front(dut, instance).started()
    segments = every_kind(front.bench.rng, front.config)
    met = set()
    for segment in itertools.islice(segments, 60):
        whole = dataclasses.replace(segment, keep=None, mask=False, saturate=False)
        await front.check([whole])
        met.add((whole.format.scheme, whole.errors()))
    assert {("mx", 8), ("unary", 16)} <= met
    pruned = dataclasses.replace(whole, keep=whole.vector - 1)
    front.values(pruned)
    front.sources["command"].send([{"payload": pruned.word}])
    (record,) = await front.records(1)
    assert _causes(front, record) == {"command"}
