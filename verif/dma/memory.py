"""Memories behind AXI4 ports.

They answer late, in their own order where AXI allows it, and with errors where tests request them.
They check the master beyond AXI's rules, which are simulated beside it
(:mod:`cassandra_spec.verif.library.axi`): allowed addresses; for a writer also whole words, and no
word written twice.
"""

from __future__ import annotations

import dataclasses
import enum
from collections import defaultdict, deque
from collections.abc import Coroutine
from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import RisingEdge
from cocotb.utils import get_sim_time

from cassandra_spec.rtl.dma.config import PAGE
from cassandra_spec.verif.dma.axi_models import Channel, Response, read_channels, write_channels
from cassandra_spec.verif.library.patterns import ALWAYS, Pattern
from cassandra_spec.verif.library.streams import CYCLE


class Memory:
    """Allowed words, broken words, and the processes of the channels."""

    owed: int  # what is asked for and not answered: beats of a reader, bursts of a writer

    def __init__(
        self,
        dut: Any,
        rng: np.random.Generator,
        channels: list[Channel],
        *,
        data: int,  # bits
        address: int,
    ) -> None:
        self._dut, self._rng, self._channels = dut, rng, channels
        self.word = data // 8  # bytes
        self._pages = (1 << address) // PAGE
        self.before = 0  # bytes: regions begin one word before a multiple of it; 0: anywhere
        self._tasks: list[Any] = []
        self._free = PAGE  # the first address behind all allocations
        self.reset()

    def pace(self, *patterns: Pattern) -> None:
        """Set the cycles in which each channel moves."""
        for channel, pattern in zip(self._channels, patterns, strict=True):
            channel.pace(None if pattern is ALWAYS else pattern.cycles(self._rng))

    def reset(self) -> None:
        """Drop data, errors and everything in flight."""
        for task in self._tasks:
            task.cancel()
        for channel in self._channels:
            channel.clear()
        self._named: set[int] = set()  # numbers of allowed words
        self.broken: dict[int, Response] = {}  # by word number
        self.bursts: list[tuple[int, int]] = []  # address and beats, in order
        self.overtaken = 0  # answers sent before those of an earlier burst
        self._forget()
        self._tasks = [cocotb.start_soon(task) for task in (self._take(), self._answer())]

    def _forget(self) -> None:
        raise NotImplementedError

    def _take(self) -> Coroutine[Any, Any, None]:
        raise NotImplementedError

    async def _answer_next(self) -> bool:
        """Send the next answer, if one is due."""
        raise NotImplementedError

    def allocate(self, size: int) -> int:
        """Allocate ``size`` bytes at a random multiple of the bus word.

        Most allocations lie behind all others; half of these begin shortly before the border of a
        page, some before one of 4 GiB. The others are anywhere in the upper half of the address
        space.
        """
        if self.before:
            self._free = -(-self._free // self.before - 1) * self.before - self.word
        elif self._rng.random() < 0.2:
            return self._allocate_high(size)
        page = 1 << 32 if self._rng.random() < 0.1 else PAGE
        start = -(-self._free // self.word) * self.word
        border = -(-start // page) * page
        near = max(start, border - self.word * int(self._rng.integers(0, 20)))
        base = near if self._rng.random() < 0.5 and not self.before else start
        self.allow(base, size)
        self._free = base + size + self.word
        return base

    def _allocate_high(self, size: int) -> int:
        room = self._pages // 2 - 1 - size // PAGE
        page = self._pages // 2 + int(self._rng.integers(room))
        base = page * PAGE + self.word * int(self._rng.integers(PAGE // self.word))
        self.allow(base, size)
        return base

    def allow(self, address: int, size: int) -> None:
        """Allow access to ``size`` bytes from ``address``; both are multiples of the bus word."""
        words = range(address // self.word, (address + size) // self.word)
        assert not self._named.intersection(words), "allowed twice"
        self._named.update(words)

    def fail(self, address: int, response: Response) -> None:
        """Answer accesses to the word at ``address`` with this error."""
        self.broken[address // self.word] = response

    def _burst(self, asked: Any, channel: str) -> tuple[int, int]:
        """Check that a burst is allowed; return its address and beats."""
        address, beats = (int(getattr(asked, f"{channel}{name}")) for name in ("addr", "len"))
        beats += 1
        first = address // self.word
        words = range(first, first + beats)
        assert self._named.issuperset(words), f"burst of {beats} at {address:#x}: not allowed"
        self.bursts.append((address, beats))
        return address, beats

    def _late(self, shortest: int, longest: int) -> int:
        """Return the cycle in which an answer is due."""
        return self._cycle + int(self._rng.integers(shortest, longest + 1))

    @property
    def _cycle(self) -> int:
        """The number of the current cycle; a process that counts edges costs more."""
        return int(get_sim_time("ns")) // CYCLE

    async def _answer(self) -> None:
        edge = RisingEdge(self._dut.clk)
        while True:
            if not await self._answer_next():
                await edge


class Order(enum.Enum):
    """The order in which bursts of different IDs are answered; those of one ID stay in order."""

    ASKED = "as they were asked for"
    BURSTS = "any ID next, a burst at a time"
    BEATS = "any ID next, a beat at a time"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Timing:
    """Timing of a memory's answers."""

    shortest: int = 0  # minimum cycles from an address to its first beat
    longest: int = 0  # maximum cycles, if no other burst is in the way
    order: Order = Order.ASKED
    addresses: Pattern = ALWAYS  # cycles in which an address is taken
    beats: Pattern = ALWAYS  # cycles in which a beat is offered


@dataclasses.dataclass(kw_only=True)
class _Burst:
    identity: int
    address: int
    beats: int
    due: int  # cycle
    number: int  # in request order


class ReadMemory(Memory):
    """A memory that answers reads. Only placed data may be read."""

    def __init__(self, dut: Any, rng: np.random.Generator) -> None:
        self._ar, self._r = read_channels(dut)
        self._data: dict[int, int] = {}  # by word number
        sizes = {"data": len(dut.m_axi_rdata), "address": len(dut.m_axi_araddr)}
        super().__init__(dut, rng, [self._ar, self._r], **sizes)
        self.use(Timing())

    def use(self, timing: Timing) -> None:
        """Use this timing from now on."""
        self.timing = timing
        self.pace(timing.addresses, timing.beats)

    def _forget(self) -> None:
        self._data.clear()
        self.beats = self.interleaved = 0
        self.owed = 0  # beats of requested bursts that have not been offered
        self._queues: dict[int, deque[_Burst]] = defaultdict(deque)
        self._latest: _Burst | None = None

    def place(self, content: bytes, *, end: int | None = None) -> int:
        """Place data at an address of their own, padded to whole bus words; return the address.

        ``end`` sets the address behind the data.
        """
        content += bytes(-len(content) % self.word)
        if end is None:
            address = self.allocate(len(content))
        else:
            address = end - len(content)
            self.allow(address, len(content))
        for place in range(0, len(content), self.word):
            word = int.from_bytes(content[place : place + self.word], "little")
            self._data[(address + place) // self.word] = word
        return address

    async def _take(self) -> None:
        """Queue requests by ID."""
        while True:
            asked = await self._ar.take()
            number = len(self.bursts)
            address, beats = self._burst(asked, "ar")
            burst = _Burst(
                identity=int(asked.arid),
                address=address,
                beats=beats,
                due=self._late(self.timing.shortest, self.timing.longest),
                number=number,
            )
            self._queues[burst.identity].append(burst)
            self.owed += beats

    async def _answer_next(self) -> bool:
        burst = self._next()
        if burst is not None:
            await self._send(burst)
        return burst is not None

    def _next(self) -> _Burst | None:
        """Return the burst whose beat comes next."""
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
        self._note(burst)
        beat = {
            "rid": burst.identity,
            "rdata": self._data[word],
            "rresp": self.broken.get(word, Response.OKAY),
            "rlast": int(burst.beats == 1),
        }
        burst.address += self.word
        burst.beats -= 1
        self._latest = burst
        if not burst.beats:
            self._queues[burst.identity].popleft()
        await self._r.offer(**beat)
        self.owed -= 1

    def _note(self, burst: _Burst) -> None:
        """Count answers in another order than the requests, so that a test can require them."""
        self.beats += 1
        latest = self._latest
        if latest is not None and latest is not burst:
            self.interleaved += bool(latest.beats)
            waiting = (queue[0].number for queue in self._queues.values() if queue)
            self.overtaken += min(waiting) < burst.number


@dataclasses.dataclass(frozen=True, kw_only=True)
class WriteTiming:
    """Timing of a memory that takes words and responds."""

    shortest: int = 0  # minimum cycles from the last word of a burst to its response
    longest: int = 0  # maximum cycles
    shuffled: bool = False  # responses of different IDs in any order
    addresses: Pattern = ALWAYS  # cycles in which an address is taken
    words: Pattern = ALWAYS  # cycles in which a word is taken
    responses: Pattern = ALWAYS  # cycles in which a response is offered


@dataclasses.dataclass(kw_only=True)
class _Answer:
    identity: int
    response: Response
    due: int  # cycle


class WriteMemory(Memory):
    """A memory that stores writes, word by word. Only words that :meth:`allow` names may be
    written.
    """

    def __init__(self, dut: Any, rng: np.random.Generator) -> None:
        self._aw, self._w, self._b = write_channels(dut)
        sizes = {"data": len(dut.m_axi_wdata), "address": len(dut.m_axi_awaddr)}
        super().__init__(dut, rng, [self._aw, self._w, self._b], **sizes)
        self.use(WriteTiming())

    def use(self, timing: WriteTiming) -> None:
        """Use this timing from now on."""
        self.timing = timing
        self.pace(timing.addresses, timing.words, timing.responses)

    def _forget(self) -> None:
        self.data: dict[int, int] = {}  # by word number
        self.owed = 0  # bursts whose address was taken and whose response was not
        self.failed: list[int] = []  # addresses of bursts that were answered with an error
        self._answers: dict[int, deque[_Answer]] = defaultdict(deque)
        self._order: list[_Answer] = []

    def read(self, address: int, size: int) -> bytes:
        """Return written bytes; raise KeyError if some were not written."""
        words = range(address // self.word, -(-(address + size) // self.word))
        return b"".join(self.data[place].to_bytes(self.word, "little") for place in words)[:size]

    async def _take(self) -> None:
        """Take bursts in the order of their addresses."""
        while True:
            asked = await self._aw.take()
            self.owed += 1
            address, beats = self._burst(asked, "aw")
            response = Response.OKAY
            for beat in range(beats):
                word = await self._w.take()
                what = f"beat {beat} of {beats} at {address:#x}"
                assert int(word.wstrb) == (1 << self.word) - 1, f"{what}: not a whole word"
                place = address // self.word + beat
                assert place not in self.data, f"{what}: written twice"
                self.data[place] = int(word.wdata)
                response = self.broken.get(place, response)
            self._queue(int(asked.awid), address, response)

    def _queue(self, identity: int, address: int, response: Response) -> None:
        due = self._late(self.timing.shortest, self.timing.longest)
        answer = _Answer(identity=identity, response=response, due=due)
        if response is not Response.OKAY:
            self.failed.append(address)
        self._answers[identity].append(answer)
        self._order.append(answer)

    async def _answer_next(self) -> bool:
        answer = self._next()
        if answer is None:
            return False
        self.overtaken += answer is not self._order[0]
        self._order.remove(answer)
        self._answers[answer.identity].popleft()
        await self._b.offer(bid=answer.identity, bresp=answer.response)
        self.owed -= 1
        return True

    def _next(self) -> _Answer | None:
        heads = [queue[0] for queue in self._answers.values() if queue]
        due = [answer for answer in heads if answer.due <= self._cycle]
        if not self.timing.shuffled:
            return self._order[0] if self._order and self._order[0] in due else None
        return due[int(self._rng.integers(len(due)))] if due else None
