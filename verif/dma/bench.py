"""A bench for a DMA: memory, host and scoreboard."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import cocotb
import numpy as np
from cocotb.triggers import FallingEdge

from cassandra_spec.verif.decoder.bulk import Request
from cassandra_spec.verif.decoder.faults import Fault
from cassandra_spec.verif.decoder.jobs import Job
from cassandra_spec.verif.decoder.scoreboard import Scoreboard
from cassandra_spec.verif.dma.axi_models import Response
from cassandra_spec.verif.dma.host import Host, compose
from cassandra_spec.verif.dma.memory import Memory, ReadMemory
from cassandra_spec.verif.library.axi import PORTS
from cassandra_spec.verif.library.streams import (
    Agent,
    Bench,
    Item,
    Port,
    ProtocolError,
)

M = TypeVar("M", bound=Memory)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Broken:
    """A segment with a word that cannot be read."""

    job: Job
    region: str  # speculation, verification
    word: int  # index in the region, in bus words
    response: Response

    @property
    def request(self) -> Request:
        """The request of the segment."""
        return self.job.request


@dataclasses.dataclass(frozen=True, kw_only=True)
class Placed:
    """A segment in memory: the contents of its descriptor."""

    item: Job | Fault | Broken
    bases: tuple[int, int]
    lengths: tuple[int, int]


def codebooks(request: Request) -> list[tuple[int, ...]]:
    """Return the codebooks of a segment's slots; every slot that is named must be defined."""
    if request.format.scheme != "unary":
        return []
    coded = request.format.pruned_exponent == "coded"
    return [request.codebook or (0,), *([request.pruned_codebook] if coded else [])]


class RuleMonitor(Agent):
    """Checks every AXI port of a design by the rules that are simulated beside it."""

    def __init__(self, dut: Any) -> None:
        self._broken = dut.broken
        self._rules = [
            (getattr(dut, name), kind.DESIGN + kind.OTHERS)
            for wire, (name, kind) in PORTS.items()
            if hasattr(dut, wire)
        ]
        self.waived: frozenset[str] = frozenset()  # rules that a test breaks on purpose

    def sample(self) -> None:
        """Check the rules of a cycle."""
        if not self._broken.value:
            return
        for output, names in self._rules:
            if broken := int(output.value):
                which = [name for place, name in enumerate(names) if broken >> place & 1]
                if wrong := [name for name in which if name not in self.waived]:
                    raise ProtocolError(f"AXI: {', '.join(wrong)} must hold in every cycle")


class Pin(Agent):
    """An input that a test sets; it changes at the next cycle of the bench."""

    def __init__(self, signal: Any) -> None:
        self._signal = signal
        self._driven: int | None = None  # the level that the input has
        self.level = 0

    def drive(self) -> None:
        """Set the input, if its level has changed."""
        if self.level != self._driven:
            self._signal.value = self._driven = self.level

    def reset(self) -> None:
        """Set it to 0."""
        self.level = 0
        self.drive()


class MemoryBench(Bench, Generic[M]):
    """A design with a memory, in a top with the rules of its AXI ports (``Ruled``)."""

    def __init__(
        self, dut: Any, seed: int, memory: Callable[[Any, np.random.Generator], M]
    ) -> None:
        super().__init__(dut, seed)
        self.memory: M = memory(dut, self.rng)
        self.rules = RuleMonitor(dut)
        self.agents.append(self.rules)

    async def reset(self, cycles: int = 2) -> None:
        """Reset the design, then clear the memory."""
        await super().reset(cycles)
        self.memory.reset()


class PeripheralBench(MemoryBench[M]):
    """A design with a memory and a register port, and the software behind that port."""

    values: Any  # the sink or the source of values

    def __init__(
        self, dut: Any, seed: int, memory: Callable[[Any, np.random.Generator], M]
    ) -> None:
        super().__init__(dut, seed, memory)
        self.host = Host(dut)
        self.core_rst, self.quiesce = Pin(dut.core_rst), Pin(dut.quiesce_request)
        self.agents += [self.core_rst, self.quiesce]
        self.codebooks: dict[tuple[int, ...], int] = {}  # slots of the loaded codebooks

    async def reset(self, cycles: int = 2) -> None:
        """Reset the design, then memory and host."""
        await super().reset(cycles)
        self.host.reset()
        self.codebooks.clear()

    async def pulse(self, pin: Pin, cycles: int = 1) -> None:
        """Set a pin for some cycles."""
        pin.level = 1
        await self.run(cycles)
        pin.level = 0

    async def soft_reset(self, *, pin: bool, fresh: bool = False) -> None:
        """Reset the core by its pin or its register, and await the end.

        What memory owed is then paid.
        """
        if pin:
            await self.pulse(self.core_rst, int(self.rng.integers(1, 4)))
        else:
            await self.do(self.host.write("control", compose("control", reset=1, fresh=fresh)))
        self.host.reset()
        self.codebooks.clear()

        async def ended() -> None:
            while await self.host.field("status", "draining"):
                pass

        await self.do(ended())

    async def hard_reset(self) -> None:
        """Pulse ``rst`` and reset what is at the port of values; memory is not reset."""
        pin = Pin(self.dut.rst)
        self.agents.insert(0, pin)
        pin.level = 1
        await self.run(1)
        await self.reset_values()
        await self.run(1)
        pin.level = 0
        await self.run(1)
        self.agents.remove(pin)
        self.host.reset()
        self.codebooks.clear()

    async def reset_values(self) -> None:
        """Drop the values that are offered, queued or taken."""
        await FallingEdge(self.dut.clk)
        self.values.reset()

    async def quiet(self) -> None:
        """Ask for a quiet bus; when it is, nothing is owed and nothing moves."""
        self.quiesce.level = 1
        await self.until(lambda: bool(self.dut.quiesce_done.value), 4000, "quiesce_done")
        assert self.memory.owed == 0
        bursts = len(self.memory.bursts)
        await self.run(40)
        assert len(self.memory.bursts) == bursts
        assert bool(self.dut.quiesce_done.value)

    async def do(self, work: Any, limit: int = 200_000) -> Any:
        """Let the host finish its work while the ports move."""
        task = cocotb.start_soon(work)
        await self.until(task.done, limit, "the end of the host's work")
        return task.result()

    async def enable(self, on: bool = True) -> None:
        """Enable or disable the queue of descriptors."""
        await self.do(self.host.write("control", compose("control", enable=int(on))))

    async def slots(self, wanted: Sequence[tuple[int, ...]], room: int) -> list[int]:
        """Return the slots of ``room`` that hold some codebooks.

        If not all of them fit, wait until everything is idle and write all of them again.
        """
        missing = [book for book in dict.fromkeys(wanted) if book not in self.codebooks]
        if len(self.codebooks) + len(missing) > room:
            while await self.host.field("status", "busy"):
                pass
            self.codebooks.clear()
            missing = list(dict.fromkeys(wanted))
        for book in missing:
            self.codebooks[book] = len(self.codebooks)
            await self.host.load_codebook(self.codebooks[book], book)
        return [self.codebooks[book] for book in wanted]


class DmaBench(PeripheralBench[ReadMemory]):
    """Puts segments into memory, queues their descriptors, compares the output.

    Regions lie at random addresses: any multiple of the bus word, near borders of pages and of 4
    GiB.
    """

    def __init__(self, dut: Any, seed: int) -> None:
        super().__init__(dut, seed, ReadMemory)
        self.lanes = len(dut.m_axis_values_tkeep) // 2  # of all decoders together
        self.decoders = 1 << (len(dut.m_axi_arid) - 1)
        ports = ("tdata", "tkeep", "tlast", "tuser")
        self.values = self.sink(Port.axis(dut, "m_axis_values", ports))
        self.scoreboard = _Scoreboard(self)
        self.agents.append(self.scoreboard)

    async def hard_reset(self) -> None:
        """Forget the packets that were expected, too."""
        await super().hard_reset()
        self.scoreboard.reset()

    @property
    def word(self) -> int:
        """Bytes of a bus word."""
        return self.memory.word

    def place(self, item: Job | Fault | Broken) -> Placed:
        """Put a segment into memory."""
        segment = item.request.segment
        regions = (segment.speculation, segment.verification)
        first, second = (self.memory.place(region.tobytes()) for region in regions)
        sizes = (regions[0].size, regions[1].size)
        placed = Placed(item=item, bases=(first, second), lengths=sizes)
        if isinstance(item, Broken):
            base = placed.bases[item.region == "verification"]
            self.memory.fail(base + item.word * self.word, item.response)
        return placed

    async def queue(self, placed: Sequence[Placed]) -> None:
        """Load codebooks as needed and queue descriptors."""
        for entry in placed:
            request, book = entry.item.request, 0
            if wanted := codebooks(request):
                found = await self.slots(wanted, await self.host.field("fetch", "books"))
                names = ("slot", "pruned")[: len(found)]
                book = compose("book", **dict(zip(names, found, strict=True)))
            await self.describe(entry, book)
            self.scoreboard.expected.append(entry)
            await self.host.start()

    async def describe(self, entry: Placed, book: int = 0) -> None:
        """Write the registers of a descriptor."""
        commands = {"command": entry.item.request.word}
        await self.host.describe(commands, book, entry.bases, entry.lengths)

    async def decode(self, items: Sequence[Job | Fault | Broken]) -> list[Placed]:
        """Place and queue segments; run until every packet has arrived and is compared."""
        placed = [self.place(item) for item in items]
        await self.enable()
        await self.do(self.queue(placed))
        await self.finish()
        return placed

    async def finish(self, limit: int = 100_000) -> None:
        """Run until every packet has arrived and ``busy`` is clear; nothing may follow, reads
        included.
        """
        await self.until(lambda: not self.scoreboard.expected, limit, "the last packet")
        await self.do(self._idle(), limit)
        assert not self.memory.owed
        bursts = len(self.memory.bursts)
        await self.run(20)
        assert len(self.memory.bursts) == bursts
        assert not await self.do(self.host.field("status", "busy"))

    async def _idle(self) -> None:
        while await self.host.field("status", "busy"):
            pass


class _Scoreboard(Scoreboard):
    """A scoreboard for segments in memory."""

    def reset(self) -> None:
        super().reset()
        self.cut = False  # a soft reset may have cut the packet that arrives

    def item(self, entry: Placed) -> Job | Fault | Broken:
        return entry.item

    def forget(self) -> None:
        """Expect no more of the packets that a soft reset has dropped."""
        assert not self._beats, "a packet that has begun must end"
        self.expected.clear()
        self.cut = False

    def _end(self, last: Item) -> None:
        """Accept that a cut packet ends flagged, without further values."""
        if not (self.cut and last["tuser"]):
            super()._end(last)
            return
        assert last["tkeep"] == 0, f"the end of a cut packet: tkeep {last['tkeep']:#x}"
        assert len(self._beats) > 1, "a packet that has not begun must not end"
        self.cut = False
