"""A DMA with its memory, its host and a scoreboard."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Sequence
from typing import Any

import cocotb
import numpy as np
from cocotbext.axi import AxiResp

from cassandra_spec.verif.decoder.bulk import Request
from cassandra_spec.verif.decoder.faults import Fault
from cassandra_spec.verif.decoder.jobs import Job
from cassandra_spec.verif.dma.host import Host, compose
from cassandra_spec.verif.dma.memory import Memory
from cassandra_spec.verif.library.streams import Bench, HandshakeChecker, Item, Port

__all__ = ["Broken", "DmaBench", "Monitor", "Placed"]

_MONITORED = {
    "m_axi_ar": ("id", "addr", "len", "size", "burst"),
    "s_axil_b": ("resp",),
    "s_axil_r": ("data", "resp"),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Broken:
    """A segment with a word that cannot be read."""

    job: Job
    region: str  # speculation, verification
    word: int  # of the region, in bus words
    response: AxiResp

    @property
    def request(self) -> Request:
        """What would be decoded."""
        return self.job.request


@dataclasses.dataclass(frozen=True, kw_only=True)
class Placed:
    """A segment in memory: what a descriptor says of it."""

    item: Job | Fault | Broken
    bases: tuple[int, int]
    lengths: tuple[int, int]


class Monitor:
    """Holds a channel that somebody else drives or takes to the rules of valid and ready."""

    def __init__(self, dut: Any, prefix: str, fields: Sequence[str]) -> None:
        self._signals = {field: dut[prefix + field] for field in fields}
        self._valid, self._ready = dut[f"{prefix}valid"], dut[f"{prefix}ready"]
        self._checker = HandshakeChecker(prefix)

    def drive(self) -> None:
        """Nothing to drive."""

    def sample(self) -> None:
        """Check a cycle."""
        valid = bool(self._valid.value)
        payload = {name: int(signal.value) for name, signal in self._signals.items()}
        self._checker.cycle(valid, bool(self._ready.value), payload if valid else None)

    def reset(self) -> None:
        """Forget what waits."""
        self._checker.reset()


class DmaBench(Bench):
    """Puts segments into memory, queues their descriptors, compares what comes out.

    Regions lie at random places: any multiple of the bus word, near borders of pages and of 4 GiB.
    """

    def __init__(self, dut: Any, seed: int) -> None:
        super().__init__(dut, seed)
        self.memory = Memory(dut, self.rng)
        self.host = Host(dut)
        self.lanes = len(dut.m_axis_values_tkeep) // 2  # of all decoders together
        self.decoders = 1 << (len(dut.m_axi_arid) - 1)
        for prefix, fields in _MONITORED.items():
            self.agents.append(Monitor(dut, prefix, fields))
        ports = ("tdata", "tkeep", "tlast", "tuser")
        self.values = self.sink(Port.axis(dut, "m_axis_values", ports))
        self.scoreboard = _Scoreboard(self)
        self.agents.append(self.scoreboard)
        self._next = 1 << 12
        self._books: dict[tuple[int, ...], int] = {}

    @property
    def word(self) -> int:
        """Bytes of a bus word."""
        return self.memory.word

    async def reset(self, cycles: int = 2) -> None:
        """Reset the design; then memory and host forget everything."""
        await super().reset(cycles)
        self.memory.reset()
        self.host.reset()
        self._books.clear()

    async def do(self, work: Any, limit: int = 200_000) -> Any:
        """Let the host work to its end, while the ports move."""
        task = cocotb.start_soon(work)
        await self.until(task.done, limit, "the end of the host's work")
        return task.result()

    def place(self, item: Job | Fault | Broken) -> Placed:
        """Put a segment into memory."""
        segment = item.request.segment
        placed = Placed(
            item=item,
            bases=(self._put(segment.speculation), self._put(segment.verification)),
            lengths=(segment.speculation.size, segment.verification.size),
        )
        if isinstance(item, Broken):
            base = placed.bases[item.region == "verification"]
            self.memory.fail(base + item.word * self.word, item.response)
        return placed

    def _put(self, region: np.ndarray[Any, Any]) -> int:
        """At a random place after everything else."""
        page = 1 << (32 if self.rng.random() < 0.1 else 12)
        start = -(-self._next // self.word) * self.word
        border = -(-start // page) * page  # the region may begin a few words before it, or at it
        words = int(self.rng.integers(0, 20))
        base = max(start, border - words * self.word) if self.rng.random() < 0.5 else start
        content = region.tobytes()
        self.memory.place(base, content + bytes(-len(content) % self.word))
        self._next = base + len(content) + self.word
        return base

    async def queue(self, placed: Sequence[Placed]) -> None:
        """Load codebooks as they are needed and queue descriptors."""
        for entry in placed:
            slot = await self._book(entry.item.request)
            await self.describe(entry, slot)
            self.scoreboard.expected.append(entry)
            await self.host.start()

    async def describe(self, entry: Placed, slot: int = 0) -> None:
        """Write the registers of a descriptor."""
        first, second = zip(entry.bases, entry.lengths, strict=True)
        word = entry.item.request.word
        await self.host.describe(word, slot=slot, regions=(first, second))

    async def _book(self, request: Request) -> int:
        """The slot that holds the codebook; a slot is used again when nothing is on its way."""
        if request.format.scheme != "unary":
            return 0
        book = request.codebook or (0,)  # every slot that is named must be defined
        if book not in self._books:
            if len(self._books) == await self.host.field("fetch", "books"):
                while await self.host.field("status", "busy"):
                    pass
                self._books.clear()
            self._books[book] = len(self._books)
            await self.host.load_codebook(self._books[book], book)
        return self._books[book]

    async def enable(self, on: bool = True) -> None:
        """Let descriptors leave the queue, or not."""
        await self.do(self.host.write("control", compose("control", enable=int(on))))

    async def decode(self, items: Sequence[Job | Fault | Broken]) -> list[Placed]:
        """Place, queue, run until every packet is out and compared."""
        placed = [self.place(item) for item in items]
        await self.enable()
        await self.do(self.queue(placed))
        await self.finish()
        return placed

    async def finish(self, limit: int = 100_000) -> None:
        """Run until every packet is out; nothing may follow."""
        await self.until(lambda: not self.scoreboard.expected, limit, "the last packet")
        await self.run(20)
        assert not await self.do(self.host.field("status", "busy"))


class _Scoreboard:
    """Compares packets with golden's values, or asks for their flag."""

    def __init__(self, bench: DmaBench) -> None:
        self._bench = bench
        self.reset()

    def drive(self) -> None:
        """Nothing to drive."""

    def sample(self) -> None:
        """Take beats; compare at the end of a packet."""
        received = self._bench.values.received
        while received:
            beat = received.popleft()
            self._beats.append(beat)
            self.cycles.append(self._bench.cycle)
            if beat["tlast"]:
                self._end(beat)

    def reset(self) -> None:
        """Forget everything."""
        self.expected: deque[Placed] = deque()
        self.ended: list[Placed] = []
        self.values = 0  # of all packets
        self.cycles: list[int] = []  # in which beats left
        self._beats: list[Item] = []

    def _end(self, last: Item) -> None:
        assert self.expected, "a packet that nothing asked for"
        entry = self.expected.popleft()
        for beat in self._beats[:-1]:
            assert not beat["tuser"], "tuser before tlast"
            assert beat["tkeep"] == (1 << 2 * self._bench.lanes) - 1, "a short beat before tlast"
        if isinstance(entry.item, Job):
            self._check_values(entry.item, last)
        else:
            assert last["tuser"], f"{entry.item}: not flagged"
            assert last["tkeep"] == 0, f"{entry.item}: tkeep {last['tkeep']:#x}"
        self.values += sum(beat["tkeep"].bit_count() // 2 for beat in self._beats)
        self.ended.append(entry)
        self._beats = []

    def _check_values(self, job: Job, last: Item) -> None:
        assert not last["tuser"], f"{job}: flagged"
        expected = job.expected
        lanes = (len(expected) - 1) % self._bench.lanes + 1
        assert last["tkeep"] == (1 << 2 * lanes) - 1, f"{job}: tkeep {last['tkeep']:#x}"
        size = 2 * self._bench.lanes
        data = b"".join(beat["tdata"].to_bytes(size, "little") for beat in self._beats)
        values = np.frombuffer(data, np.uint16)[: len(expected)]
        assert len(values) == len(expected), f"{job}: {len(self._beats)} beats"
        wrong = np.flatnonzero(values != expected)
        assert not wrong.size, f"{job}: {wrong.size} wrong values, the first at {wrong[0]}"
