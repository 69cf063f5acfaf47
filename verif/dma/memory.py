"""A memory behind an AXI4 read port, on the channel models of cocotbext-axi.

It answers late, in an order of its own where AXI lets it, and with errors where it is told to. It
holds the master to the rules: whole bus words, incrementing bursts inside a page, addresses that
somebody placed data at.
"""

from __future__ import annotations

import dataclasses
import enum
from collections import defaultdict, deque
from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import RisingEdge
from cocotbext.axi import AxiReadBus, AxiResp
from cocotbext.axi.axi_channels import AxiARSink, AxiRSource
from cocotbext.axi.sparse_memory import SparseMemory

from cassandra_spec.rtl.dma.config import PAGE
from cassandra_spec.verif.library.patterns import ALWAYS, Pattern

__all__ = ["Memory", "Order", "Timing"]

_INCR = 1


class Order(enum.Enum):
    """In which order bursts of different IDs are answered; those of one ID stay in order."""

    ASKED = "as they were asked for"
    BURSTS = "any ID next, a burst at a time"
    BEATS = "any ID next, a beat at a time"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Timing:
    """How the memory answers."""

    shortest: int = 0  # cycles from an address to its first beat, at least
    longest: int = 0  # and at most, before other bursts are in the way
    order: Order = Order.ASKED
    addresses: Pattern = ALWAYS  # cycles in which an address is taken
    beats: Pattern = ALWAYS  # cycles in which a beat is offered


@dataclasses.dataclass(kw_only=True)
class _Burst:
    identity: int
    address: int
    beats: int
    due: int  # cycle
    number: int  # in the order of asking


class Memory:
    """Data, and the processes that answer reads. ``size`` bytes; placed data alone may be read."""

    def __init__(self, dut: Any, rng: np.random.Generator, *, prefix: str = "m_axi") -> None:
        bus = AxiReadBus.from_prefix(dut, prefix)
        self._dut, self._rng = dut, rng
        self._ar = AxiARSink(bus.ar, dut.clk, dut.rst)
        self._r = AxiRSource(bus.r, dut.clk, dut.rst)
        self._r.queue_occupancy_limit = 2
        self.word = len(dut[f"{prefix}_rdata"]) // 8  # bytes
        self._data = SparseMemory(1 << len(dut[f"{prefix}_araddr"]))
        self._cycle = 0
        self._tasks: list[Any] = []
        self.use(Timing())
        self.reset()

    def use(self, timing: Timing) -> None:
        """Answer like this from now on."""
        self.timing = timing
        for channel, pattern in ((self._ar, timing.addresses), (self._r, timing.beats)):
            channel.clear_pause_generator()
            channel.pause = False
            if pattern is not ALWAYS:
                channel.set_pause_generator(not active for active in pattern.cycles(self._rng))

    def reset(self) -> None:
        """Forget data, errors and what was asked for."""
        for task in self._tasks:
            task.cancel()
        self._ar.clear()
        self._r.clear()
        self._data.clear()
        self._placed: set[int] = set()  # numbers of words
        self.broken: dict[int, AxiResp] = {}  # by number of a word
        self.bursts: list[tuple[int, int]] = []  # address and beats of all that were asked for
        self.beats = self.overtaken = self.interleaved = 0
        self._queues: dict[int, deque[_Burst]] = defaultdict(deque)
        self._latest: _Burst | None = None
        work = (self._count(), self._take(), self._answer())
        self._tasks = [cocotb.start_soon(task) for task in work]

    def place(self, address: int, content: bytes) -> None:
        """Put data at an address, both multiples of the bus word."""
        words = range(address // self.word, (address + len(content)) // self.word)
        assert not self._placed.intersection(words), "placed twice"
        self._placed.update(words)
        self._data.write(address, content)

    def fail(self, address: int, response: AxiResp) -> None:
        """Answer reads of the word at ``address`` with this error."""
        self.broken[address // self.word] = response

    async def _take(self) -> None:
        """Queue what is asked for, by ID."""
        while True:
            asked = await self._ar.recv()
            burst = _Burst(
                identity=int(asked.arid),
                address=int(asked.araddr),
                beats=int(asked.arlen) + 1,
                due=self._cycle + self._latency(),
                number=len(self.bursts),
            )
            self._check(asked, burst)
            self.bursts.append((burst.address, burst.beats))
            self._queues[burst.identity].append(burst)

    def _latency(self) -> int:
        return int(self._rng.integers(self.timing.shortest, self.timing.longest + 1))

    def _check(self, asked: Any, burst: _Burst) -> None:
        what = f"burst of {burst.beats} at {burst.address:#x}"
        assert int(asked.arburst) == _INCR, f"{what}: not incrementing"
        assert 1 << int(asked.arsize) == self.word, f"{what}: not whole bus words"
        assert burst.address % self.word == 0, f"{what}: not aligned"
        last = burst.address + burst.beats * self.word - 1
        assert burst.address // PAGE == last // PAGE, f"{what}: crosses a page"
        words = range(burst.address // self.word, last // self.word + 1)
        assert self._placed.issuperset(words), f"{what}: nobody placed data there"

    async def _answer(self) -> None:
        edge = RisingEdge(self._dut.clk)
        while True:
            burst = self._next()
            if burst is None:
                await edge
            else:
                await self._send(burst)

    async def _count(self) -> None:
        edge = RisingEdge(self._dut.clk)
        while True:
            await edge
            self._cycle += 1

    def _next(self) -> _Burst | None:
        """The burst whose beat comes next."""
        heads = [queue[0] for queue in self._queues.values() if queue]
        due = [burst for burst in heads if burst.due <= self._cycle]
        current = self._latest
        if current is not None and current.beats and self.timing.order is not Order.BEATS:
            return current
        if self.timing.order is Order.ASKED:
            first = min(heads, key=lambda burst: burst.number, default=None)
            return first if first in due else None
        return due[int(self._rng.integers(len(due)))] if due else None

    async def _send(self, burst: _Burst) -> None:
        word = burst.address // self.word
        beat = self._r._transaction_obj(
            rid=burst.identity,
            rdata=int.from_bytes(self._data.read(burst.address, self.word), "little"),
            rresp=int(self.broken.get(word, AxiResp.OKAY)),
            rlast=int(burst.beats == 1),
        )
        self._note(burst)
        burst.address += self.word
        burst.beats -= 1
        self._latest = burst
        if not burst.beats:
            self._queues[burst.identity].popleft()
        await self._r.send(beat)

    def _note(self, burst: _Burst) -> None:
        """Count how often the order was its own, so that a test can ask for it."""
        self.beats += 1
        latest = self._latest
        if latest is not None and latest is not burst:
            self.interleaved += bool(latest.beats)
            waiting = (queue[0].number for queue in self._queues.values() if queue)
            self.overtaken += min(waiting) < burst.number
