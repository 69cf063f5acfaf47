"""A memory behind an AXI4 write port, on the channel models of cocotbext-axi.

It takes addresses and words at any pace, answers late, responses of different IDs in an order of
its own, and with errors where it is told to. It holds the master to the rules: whole bus words,
incrementing bursts inside a page, ``WLAST`` in the last beat, addresses that somebody allowed, and
no word written twice.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict, deque
from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import RisingEdge
from cocotbext.axi import AxiResp, AxiWriteBus
from cocotbext.axi.axi_channels import AxiAWSink, AxiBSource, AxiWSink

from cassandra_spec.rtl.dma.config import PAGE
from cassandra_spec.verif.library.patterns import ALWAYS, Pattern

__all__ = ["WriteMemory", "WriteTiming"]

_INCR = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class WriteTiming:
    """How the memory behaves."""

    shortest: int = 0  # cycles from the last word of a burst to its response, at least
    longest: int = 0  # and at most
    shuffled: bool = False  # responses of different IDs in any order
    addresses: Pattern = ALWAYS  # cycles in which an address is taken
    words: Pattern = ALWAYS  # cycles in which a word is taken
    responses: Pattern = ALWAYS  # cycles in which a response is offered


@dataclasses.dataclass(kw_only=True)
class _Answer:
    identity: int
    response: AxiResp
    due: int  # cycle


class WriteMemory:
    """What was written, word by word. Only words that :meth:`allow` names may be."""

    def __init__(self, dut: Any, rng: np.random.Generator, *, prefix: str = "m_axi") -> None:
        bus = AxiWriteBus.from_prefix(dut, prefix)
        self._dut, self._rng = dut, rng
        self._aw = AxiAWSink(bus.aw, dut.clk, dut.rst)
        self._w = AxiWSink(bus.w, dut.clk, dut.rst)
        self._b = AxiBSource(bus.b, dut.clk, dut.rst)
        for channel in (self._aw, self._w, self._b):
            channel.queue_occupancy_limit = 2
        self.word = len(dut[f"{prefix}_wdata"]) // 8  # bytes
        self._strobes = (1 << self.word) - 1
        self._tasks: list[Any] = []
        self._cycle = 0
        self.use(WriteTiming())
        self.reset()

    def use(self, timing: WriteTiming) -> None:
        """Behave like this from now on."""
        self.timing = timing
        for channel, pattern in (
            (self._aw, timing.addresses),
            (self._w, timing.words),
            (self._b, timing.responses),
        ):
            channel.clear_pause_generator()
            channel.pause = False
            if pattern is not ALWAYS:
                channel.set_pause_generator(not active for active in pattern.cycles(self._rng))

    def reset(self) -> None:
        """Forget data, errors and what is on its way."""
        for task in self._tasks:
            task.cancel()
        for channel in (self._aw, self._w, self._b):
            channel.clear()
        self.data: dict[int, int] = {}  # by number of a word
        self._allowed: set[int] = set()  # likewise
        self.broken: dict[int, AxiResp] = {}  # likewise
        self.bursts: list[tuple[int, int]] = []  # address and beats, in order
        self.failed: list[int] = []  # addresses of bursts that were answered with an error
        self.overtaken = 0  # responses before one of an earlier burst
        self._answers: dict[int, deque[_Answer]] = defaultdict(deque)
        self._order: list[_Answer] = []
        work = (self._count(), self._take(), self._answer())
        self._tasks = [cocotb.start_soon(task) for task in work]

    def allow(self, address: int, size: int) -> None:
        """Let ``size`` bytes from ``address`` be written; both are multiples of the bus word."""
        words = range(address // self.word, (address + size) // self.word)
        assert not self._allowed.intersection(words), "allowed twice"
        self._allowed.update(words)

    def fail(self, address: int, response: AxiResp) -> None:
        """Answer the burst that writes the word at ``address`` with this error."""
        self.broken[address // self.word] = response

    def read(self, address: int, size: int) -> bytes:
        """Bytes that were written; KeyError if some were not."""
        words = range(address // self.word, -(-(address + size) // self.word))
        return b"".join(self.data[place].to_bytes(self.word, "little") for place in words)[:size]

    async def _take(self) -> None:
        """Bursts, in the order of their addresses."""
        while True:
            asked = await self._aw.recv()
            address, beats = int(asked.awaddr), int(asked.awlen) + 1
            self._check(asked, address, beats)
            self.bursts.append((address, beats))
            response = AxiResp.OKAY
            for beat in range(beats):
                word = await self._w.recv()
                what = f"beat {beat} of {beats} at {address:#x}"
                assert int(word.wlast) == (beat == beats - 1), f"{what}: wlast {word.wlast}"
                assert int(word.wstrb) == self._strobes, f"{what}: not a whole word"
                place = address // self.word + beat
                assert place not in self.data, f"{what}: written twice"
                self.data[place] = int(word.wdata)
                response = self.broken.get(place, response)
            self._queue(int(asked.awid), address, response)

    def _check(self, asked: Any, address: int, beats: int) -> None:
        what = f"burst of {beats} at {address:#x}"
        assert int(asked.awburst) == _INCR, f"{what}: not incrementing"
        assert 1 << int(asked.awsize) == self.word, f"{what}: not whole bus words"
        assert address % self.word == 0, f"{what}: not aligned"
        last = address + beats * self.word - 1
        assert address // PAGE == last // PAGE, f"{what}: crosses a page"
        words = range(address // self.word, last // self.word + 1)
        assert self._allowed.issuperset(words), f"{what}: nobody allowed it"

    def _queue(self, identity: int, address: int, response: AxiResp) -> None:
        late = int(self._rng.integers(self.timing.shortest, self.timing.longest + 1))
        answer = _Answer(identity=identity, response=response, due=self._cycle + late)
        if response is not AxiResp.OKAY:
            self.failed.append(address)
        self._answers[identity].append(answer)
        self._order.append(answer)

    async def _count(self) -> None:
        edge = RisingEdge(self._dut.clk)
        while True:
            await edge
            self._cycle += 1

    async def _answer(self) -> None:
        edge = RisingEdge(self._dut.clk)
        while True:
            answer = self._next()
            if answer is None:
                await edge
                continue
            self.overtaken += answer is not self._order[0]
            self._order.remove(answer)
            self._answers[answer.identity].popleft()
            await self._b.send(
                self._b._transaction_obj(bid=answer.identity, bresp=int(answer.response))
            )

    def _next(self) -> _Answer | None:
        heads = [queue[0] for queue in self._answers.values() if queue]
        due = [answer for answer in heads if answer.due <= self._cycle]
        if not self.timing.shuffled:
            return self._order[0] if self._order and self._order[0] in due else None
        return due[int(self._rng.integers(len(due)))] if due else None
