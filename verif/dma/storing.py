"""Suite of the store alone: a stand-in for the encoder, a memory at any pace."""

from __future__ import annotations

import dataclasses
from collections import deque
from typing import Any

import cocotb

from cassandra_spec.golden.format import ENCODE_ERROR_CAUSES
from cassandra_spec.rtl.dma.config import IN_FLIGHT, LENGTH_BITS, REGIONS, StoreConfig
from cassandra_spec.rtl.dma.store import CassandraStore, entry_layout
from cassandra_spec.rtl.dma.write_master import place_layout
from cassandra_spec.rtl.encode.region_writer import LENGTH_WIDTH
from cassandra_spec.rtl.encode.regions import EncodeResult
from cassandra_spec.rtl.encode.types import EncoderConfig
from cassandra_spec.verif.dma.axi_models import Response
from cassandra_spec.verif.dma.bench import MemoryBench
from cassandra_spec.verif.dma.memory import WriteMemory, WriteTiming
from cassandra_spec.verif.library.axi import Ruled
from cassandra_spec.verif.library.packets import region_packet
from cassandra_spec.verif.library.patterns import ALWAYS, NEVER, PATTERNS, Kind, Pattern
from cassandra_spec.verif.library.streams import Agent, Bench, Port, Source


def design() -> Ruled:
    """Build a small store with one open burst and gathered words, beside the AXI rules."""
    return Ruled(CassandraStore(SMALL))


SMALL = StoreConfig(
    encoder=EncoderConfig(lanes=8), bus=32, burst=1024, buffer=1024, outstanding=1, address=48
)
SUPERBLOCK = 128


@dataclasses.dataclass(kw_only=True)
class Stored:
    """A segment: its regions, their places, and the expected entry."""

    regions: tuple[bytes, bytes]
    lengths: tuple[int, int]  # superblocks of the regions, as the result reports
    bases: tuple[int, int]
    rooms: tuple[int, int]  # bytes left for the region
    follow: bool
    offsets: tuple[int, int]  # superblocks
    reported: dict[str, Any]  # reported mask, errors, saturated


class Encoder(Agent):
    """Stand-in for an encoder: sends both regions of a segment, its result, then the next segment.

    The result of a segment is offered at the latest in the cycle of the next segment's first words.
    """

    def __init__(self, bench: Bench, words: list[Source], results: Source) -> None:
        self._bench, self._words, self._results = bench, words, results
        self.waiting: deque[Stored] = deque()
        self._current: Stored | None = None
        self._lanes = len(bench.dut.s_axis_speculation_tdata) // 8

    @property
    def idle(self) -> bool:
        """True if everything has been taken."""
        return not self.waiting and self._current is None and self._results.idle

    def drive(self) -> None:
        """Offer the results and words that are due."""
        if self._current is not None and self._taken() and self._bench.rng.random() < 0.5:
            self._results.send([{"tdata": _result(self._current)}])
            self._current = None
        if self._current is None and self.waiting and self._results_offered():
            self._current = self.waiting.popleft()
            for source, region in zip(self._words, self._current.regions, strict=True):
                source.send(region_packet(region, self._lanes))

    def _taken(self) -> bool:
        return self._results.idle and all(source.idle for source in self._words)

    def _results_offered(self) -> bool:
        """Return True if all queued results are offered in this cycle."""
        return len(self._results.queue) <= 1

    def reset(self) -> None:
        """Drop everything."""
        self.waiting.clear()
        self._current = None


def _result(segment: Stored) -> int:
    lengths = dict(zip(REGIONS, segment.lengths, strict=True))
    return int(EncodeResult().const({**lengths, **segment.reported}).as_bits())


class StoreBench(MemoryBench[WriteMemory]):
    """A store between its stand-in and a memory, with the expected results."""

    def __init__(self, dut: Any, seed: int) -> None:
        super().__init__(dut, seed, WriteMemory)
        lanes = len(dut.s_axis_speculation_tdata) // 8
        self.config = StoreConfig(address=len(dut.m_axi_awaddr), bus=self.memory.word)
        self.place_layout = place_layout(self.config)
        self.places = self.source(Port.axis(dut, "s_axis_place"))
        self.results = Source(Port.axis(dut, "s_axis_result"), self.rng)
        self.words = [
            Source(Port.axis(dut, f"s_axis_{name}", ("tdata", "tlast")), self.rng)
            for name in REGIONS
        ]
        self.encoder = Encoder(self, self.words, self.results)
        self.agents += [self.encoder, self.results, *self.words]  # in the order of driving
        self.entries = self.sink(Port.axis(dut, "m_axis_entry"))
        assert SUPERBLOCK % lanes == 0
        self._previous: list[tuple[int, int, int]] | None = None  # address, room, offset of both

    async def reset(self, cycles: int = 2) -> None:
        """Reset the design; then the memory forgets everything."""
        await super().reset(cycles)
        self._previous = None

    def draw(
        self,
        *,
        most: int = 12,
        follow: bool | None = None,
        room: int = 0,
        more: int = 0,
        lengths: tuple[int, int] | None = None,
    ) -> Stored:
        """Draw a segment of random lengths; ``room``: superblocks beyond the need of the regions.

        The result reports regions with words as longer by up to ``more`` superblocks.
        """
        rng = self.rng
        sizes = lengths or self._lengths(most)
        regions = [rng.bytes(SUPERBLOCK * size) for size in sizes]
        said_lengths = [size and size + int(rng.integers(more + 1)) for size in sizes]
        follow = bool(rng.random() < 0.4) if follow is None else follow
        follow = follow and self._previous is not None
        if not follow:
            spare = SUPERBLOCK * (room or int(rng.integers(0, 30)))
            self._previous = [
                (self.memory.allocate(len(region) + spare), len(region) + spare, 0)
                for region in regions
            ]
        assert self._previous is not None
        bases, rooms, offsets = zip(*self._previous, strict=True)
        self._previous = [
            (base + min(size, left), left - min(size, left), offset + length)
            for (base, left, offset), size, length in zip(
                self._previous, map(len, regions), said_lengths, strict=True
            )
        ]
        said = {
            "mask": int(rng.integers(2)),
            "errors": {name: int(rng.integers(2)) for name in ENCODE_ERROR_CAUSES},
            "saturated": int(rng.integers(1 << 17)),
        }
        return Stored(
            regions=(regions[0], regions[1]),
            lengths=(said_lengths[0], said_lengths[1]),
            bases=bases,
            rooms=rooms,
            follow=follow,
            offsets=offsets,
            reported=said,
        )

    def _lengths(self, most: int) -> tuple[int, int]:
        """Return the superblocks of both regions; some have none."""
        kind = self.rng.random()
        if kind < 0.1:
            return 0, 0
        first, second = (int(self.rng.integers(low, most + 1)) for low in (1, 0))
        return first, 0 if kind < 0.3 else second

    def send(self, segments: list[Stored]) -> None:
        """Queue segments: places at once, regions as the store takes them."""
        for segment in segments:
            places = [
                {
                    "address": base // self.memory.word,
                    "room": room // self.memory.word,
                    "follow": int(segment.follow),
                }
                for base, room in zip(segment.bases, segment.rooms, strict=True)
            ]
            if segment.follow:  # the place's other fields are ignored
                for place in places:
                    place["address"] ^= 0x55
                    place["room"] ^= 0x33
            number = 0
            for which, place in enumerate(places):
                ones = sum(number.bit_count() for number in place.values())
                place["check"] = 1 - ones % 2
                bits = int(self.place_layout.const(place).as_bits())
                number |= bits << which * self.place_layout.size
            self.places.send([{"tdata": number}])
        self.encoder.waiting.extend(segments)

    async def finish(self, segments: list[Stored], limit: int = 100_000) -> list[dict[str, Any]]:
        """Run until every entry has arrived; check entries and memory."""
        count = len(segments)
        await self.until(lambda: len(self.entries.received) >= count, limit, "the last entry")
        await self.run(20)
        assert len(self.entries.received) == count, "entries that nothing asked for"
        found = [_entry(self.entries.received.popleft()["tdata"]) for _ in range(count)]
        for segment, entry in zip(segments, found, strict=True):
            self._check(segment, entry)
        return found

    def _check(self, segment: Stored, entry: dict[str, Any]) -> None:
        fits = True
        for place, region in enumerate(segment.regions):
            assert entry["lengths"][place] == segment.lengths[place]
            assert entry["offsets"][place] == segment.offsets[place]
            written = min(len(region), segment.rooms[place])
            fits &= written == len(region)
            assert self.memory.read(segment.bases[place], written) == region[:written]
        assert entry["room"] == (not fits)
        assert entry["mask"] == segment.reported["mask"]
        assert entry["errors"] == segment.reported["errors"]
        assert entry["saturated"] == segment.reported["saturated"]

    def written(self, segments: list[Stored]) -> int:
        """Return the number of bus words in the regions, as far as they fit."""
        return sum(
            min(len(region), room) // self.memory.word
            for segment in segments
            for region, room in zip(segment.regions, segment.rooms, strict=True)
        )


def _entry(number: int) -> dict[str, Any]:
    """Return the fields of an entry."""
    view = entry_layout().from_bits(number)
    return {
        "offsets": [view.offsets[place] for place in range(len(REGIONS))],
        "lengths": [view.lengths[place] for place in range(len(REGIONS))],
        "errors": {name: int(view.errors[name]) for name in ENCODE_ERROR_CAUSES},
        **{name: int(view[name]) for name in ("mask", "failed", "room", "saturated")},
    }


async def start(dut: Any) -> StoreBench:
    """Return a bench with a running clock, after a reset."""
    return await StoreBench(dut, cocotb.RANDOM_SEED).started()


async def store(bench: StoreBench, segments: list[Stored]) -> list[dict[str, Any]]:
    """Send segments and wait for their entries; no other word may be written."""
    before = len(bench.memory.data)
    bench.send(segments)
    found = await bench.finish(segments)
    assert len(bench.memory.data) - before == bench.written(segments)
    return found


@cocotb.test()
@cocotb.parametrize(idle=list(PATTERNS), pressure=list(PATTERNS))
async def idle_by_back_pressure(dut: Any, idle: str, pressure: str) -> None:
    """Segments are stored with each pair of an idle pattern and a back-pressure pattern."""
    bench = await start(dut)
    for source in bench.words:
        source.use(PATTERNS[idle])
    bench.entries.use(PATTERNS[idle])
    pattern = PATTERNS[pressure]
    bench.memory.use(
        WriteTiming(longest=40, shuffled=True, addresses=pattern, words=pattern, responses=pattern)
    )
    found = await store(bench, [bench.draw() for _ in range(12)])
    assert not any(entry["failed"] for entry in found)


@cocotb.test()
@cocotb.parametrize(latest=[0, 7, 150], shuffled=[False, True])
async def order_by_latency(dut: Any, latest: int, shuffled: bool) -> None:
    """Late responses, in every order that AXI allows."""
    bench = await start(dut)
    bench.memory.use(WriteTiming(longest=latest, shuffled=shuffled))
    for _ in range(4):
        await store(bench, [bench.draw(most=24) for _ in range(10)])
    assert bool(bench.memory.overtaken) <= shuffled
    assert latest < 100 or not shuffled or bench.memory.overtaken


@cocotb.test()
@cocotb.parametrize(late=[0, 60])
async def ends_that_nobody_takes_are_not_lost(dut: Any, late: int) -> None:
    """Entries wait forever: the store stops with its maximum of segments, and loses none."""
    bench = await start(dut)
    bench.memory.use(WriteTiming(longest=late, shuffled=True))
    for _ in range(4):
        bench.entries.use(NEVER)
        segments = [bench.draw(most=6) for _ in range(3 * IN_FLIGHT)]
        bench.send(segments)
        await bench.run(1500)
        places = bench.places.moved
        await bench.run(200)
        assert bench.places.moved == places, "places are taken without end"
        assert bench.entries.valid
        assert not bench.encoder.idle
        bench.entries.use(PATTERNS["rare"])
        await bench.finish(segments)


@cocotb.test()
async def one_region_far_ahead_of_the_other(dut: Any) -> None:
    """Every response of one region waits; those of the other continue, and none is lost."""
    bench = await start(dut)
    slow = Pattern(kind=Kind.PERIODIC, on=1, off=40)
    for which in (0, 1, 0, 1):
        bench.words[which].use(slow)
        bench.words[1 - which].use(ALWAYS)
        await store(bench, [bench.draw(most=5) for _ in range(12)])


@cocotb.test()
async def regions_that_do_not_fit(dut: Any) -> None:
    """Segments follow each other beyond their room: only the part that fits is written."""
    bench = await start(dut)
    bench.memory.use(WriteTiming(longest=20, shuffled=True))
    full = 0
    for _ in range(12):
        first = bench.draw(most=6, follow=False, room=int(bench.rng.integers(1, 12)))
        segments = [first, *(bench.draw(most=6, follow=True) for _ in range(6))]
        found = await store(bench, segments)
        assert not found[0]["room"]
        full += any(entry["room"] for entry in found)
    assert full


@cocotb.test()
async def a_room_with_the_highest_bit(dut: Any) -> None:
    """Much more room than any segment needs: all of it counts."""
    bench = await start(dut)
    room = (1 << LENGTH_BITS - 1) // SUPERBLOCK
    first = bench.draw(follow=False, room=room)
    found = await store(bench, [first, *(bench.draw(follow=True) for _ in range(12))])
    assert not any(entry["room"] for entry in found)


@cocotb.test()
async def offsets_far_behind_the_first(dut: Any) -> None:
    """Results report long regions: offsets add up the reported lengths."""
    bench = await start(dut)
    most = (1 << LENGTH_WIDTH) - 16
    segments = [bench.draw(lengths=(1, 1), follow=False, room=400, more=most)]
    segments += [bench.draw(lengths=(1, 1), follow=True, more=most) for _ in range(400)]
    await store(bench, segments)
    assert min(segments[-1].offsets) > 1 << LENGTH_WIDTH + 6


@cocotb.test()
async def a_memory_that_takes_no_address(dut: Any) -> None:
    """Regions of many lengths wait inside, followed by results of empty ones: none is lost."""
    bench = await start(dut)
    for blocks in range(1, 20):
        for words in (ALWAYS, NEVER):
            bench.memory.use(WriteTiming(addresses=NEVER, words=words))
            segments = [bench.draw(follow=False, lengths=(blocks, blocks))]
            segments += [bench.draw(lengths=(0, 0)) for _ in range(IN_FLIGHT)]
            bench.send(segments)
            await bench.run(50 * blocks)
            assert not bench.memory.bursts
            bench.memory.use(WriteTiming())
            await bench.finish(segments)
            bench.memory.bursts.clear()


@cocotb.test()
@cocotb.parametrize(response=[Response.SLVERR, Response.DECERR])
async def failed_writes_flag_their_segment_alone(dut: Any, response: Response) -> None:
    """Failing bursts among others; the reported address is that of the burst."""
    bench = await start(dut)
    bench.memory.use(WriteTiming(longest=30, shuffled=True))
    seen: list[int] = []
    for _ in range(10):
        segments = [bench.draw(most=10) for _ in range(10)]
        bad = []
        for segment in segments:
            hit = bool(bench.rng.random() < 0.3)
            sizes = [
                min(len(region), room)
                for region, room in zip(segment.regions, segment.rooms, strict=True)
            ]
            which = int(bench.rng.integers(2))
            if hit and sizes[which]:
                offset = int(bench.rng.integers(sizes[which]))
                bench.memory.fail(segment.bases[which] + offset, response)
            bad.append(hit and bool(sizes[which]))
        bench.send(segments)
        watch = cocotb.start_soon(_faults(bench, seen, response is Response.DECERR))
        found = await bench.finish(segments)
        watch.cancel()
        assert [bool(entry["failed"]) for entry in found] == bad
    assert seen
    assert sorted(seen) == sorted(bench.memory.failed)


async def _faults(bench: StoreBench, seen: list[int], decode: bool) -> None:
    """Record reported addresses."""
    dut = bench.dut
    while True:
        await cocotb.triggers.RisingEdge(dut.clk)
        await cocotb.triggers.ReadOnly()
        if int(dut.fault.value) and int(dut.m_axi_bready.value):
            assert bool(int(dut.decode.value)) == decode
            seen.append(int(dut.fault_address.value))


@cocotb.test()
async def reset_with_writes_on_their_way(dut: Any) -> None:
    """Reset at any time; the next segments are right."""
    bench = await start(dut)
    for _ in range(16):
        bench.memory.use(WriteTiming(longest=30, shuffled=True))
        bench.send([bench.draw() for _ in range(6)])
        await bench.run(int(bench.rng.integers(1, 600)))
        await bench.reset()
        await store(bench, [bench.draw() for _ in range(3)])


@cocotb.test()
async def a_beat_in_each_cycle(dut: Any) -> None:
    """Long regions of one kind leave at full speed."""
    bench = await start(dut)
    segments = [bench.draw(follow=False, lengths=(4096 // SUPERBLOCK, 0)) for _ in range(8)]
    bench.send(segments)
    begun = bench.cycle
    await bench.finish(segments)
    words = 8 * 4096 // (len(dut.s_axis_speculation_tdata) // 8)
    assert bench.cycle - begun < 1.15 * words + 120
