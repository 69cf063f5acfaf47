"""Drivers and checks of valid/ready streams for cocotb, one clock cycle at a time.

A :class:`Bench` owns the clock's loop: in each cycle every source and sink drives its port at the
falling edge, the design settles, and every port is read. One coroutine serves all ports, because a
trigger costs more than the rest of a cycle.

:class:`Sink` and :class:`HandshakeChecker` check these rules: once valid is high it stays high,
with the same payload, until ready is high at a rising clock edge. A separate test checks that valid
does not wait for ready (keep ready low: :meth:`Bench.until` valid).
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, ReadOnly

from cassandra_spec.verif.library.patterns import ALWAYS, Pattern

Item = Mapping[str, int]

CYCLE = 2
"""Nanoseconds of a clock cycle."""


class ProtocolError(AssertionError):
    """A design broke a rule of valid/ready streams."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Port:
    """The signals of one stream at the top of the design under test."""

    name: str
    valid: Any
    ready: Any
    payload: Mapping[str, Any]  # signal by field

    @classmethod
    def axis(cls, dut: Any, name: str, fields: Sequence[str] = ("tdata",)) -> Port:
        """Find an AXI4-Stream: ``name_tvalid``, ``name_tready`` and ``name_FIELD``."""
        return cls(
            name=name,
            valid=dut[f"{name}_tvalid"],
            ready=dut[f"{name}_tready"],
            payload={field: dut[f"{name}_{field}"] for field in fields},
        )

    @classmethod
    def amaranth(cls, dut: Any, name: str) -> Port:
        """Find a stream of an Amaranth component; a structured payload is one number."""
        return cls(
            name=name,
            valid=dut[f"{name}__valid"],
            ready=dut[f"{name}__ready"],
            payload={"payload": dut[f"{name}__payload"]},
        )


class HandshakeChecker:
    """Checks one stream against the rules, cycle by cycle; independent of cocotb."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._waiting: Item | None = None

    def cycle(self, valid: bool, ready: bool, payload: Item | None) -> None:
        """Check the wires before a rising edge; ``payload`` may be None if not valid."""
        if self._waiting is not None:
            if not valid:
                raise ProtocolError(f"{self.name}: valid fell before ready")
            if payload != self._waiting:
                raise ProtocolError(
                    f"{self.name}: the payload changed while it waited, from {self._waiting}"
                    f" to {payload}"
                )
        self._waiting = payload if valid and not ready else None

    def reset(self) -> None:
        """Drop the waiting offer."""
        self._waiting = None


class Agent:
    """A part that a bench steps in each cycle; this base does nothing."""

    def drive(self) -> None:
        """Set inputs of the design for the coming rising edge."""

    def sample(self) -> None:
        """Read the design, settled, just before the rising edge."""

    def reset(self) -> None:
        """Drop the current work and leave the inputs idle."""


class _Counted(Agent):
    """A port, its pattern, and the counts for coverage."""

    def __init__(self, port: Port, rng: np.random.Generator, pattern: Pattern) -> None:
        self.port = port
        self.rng = rng
        self.moved = self.stalled = self.starved = 0  # cycles: both; valid alone; ready alone
        self.use(pattern)

    def use(self, pattern: Pattern) -> None:
        """Drive by ``pattern`` from now on."""
        self._active = pattern.cycles(self.rng)

    def _count(self, valid: bool, ready: bool) -> bool:
        if valid and ready:
            self.moved += 1
            return True
        self.stalled += valid
        self.starved += ready
        return False


class Source(_Counted):
    """Drives a stream into the design. While nothing is offered the payload is noise."""

    def __init__(self, port: Port, rng: np.random.Generator, pattern: Pattern = ALWAYS) -> None:
        super().__init__(port, rng, pattern)
        self.queue: deque[Item] = deque()
        self._offered: Item | None = None
        self._driving = True
        self.reset()

    @property
    def idle(self) -> bool:
        """True if every queued item has been taken."""
        return not self.queue and self._offered is None

    def send(self, items: Iterable[Item]) -> None:
        """Queue transfers: numbers by field of the payload."""
        self.queue.extend(items)

    def drive(self) -> None:
        """Offer the next transfer, if the pattern allows it."""
        active = next(self._active)
        if self._offered is None and active and self.queue:
            self._offered = self.queue.popleft()
            self._put(self._offered)
            self.port.valid.value = 1
            self._driving = True
        elif self._offered is None and self._driving:
            self._withdraw()

    def sample(self) -> None:
        """Record whether the transfer was taken."""
        ready = bool(self.port.ready.value)
        if self._count(self._offered is not None, ready):
            self._offered = None

    def reset(self) -> None:
        """Drop what is queued and offered."""
        self.queue.clear()
        self._offered = None
        self._withdraw()

    def _withdraw(self) -> None:
        noise = {name: self._noise(len(signal)) for name, signal in self.port.payload.items()}
        self._put(noise)
        self.port.valid.value = 0
        self._driving = False

    def _noise(self, width: int) -> int:
        return int.from_bytes(self.rng.bytes(-(-width // 8)), "little") & ((1 << width) - 1)

    def _put(self, item: Item) -> None:
        for name, number in item.items():
            self.port.payload[name].value = number


class Sink(_Counted):
    """Takes a stream from the design and checks the rules."""

    def __init__(self, port: Port, rng: np.random.Generator, pattern: Pattern = ALWAYS) -> None:
        super().__init__(port, rng, pattern)
        self.received: deque[dict[str, int]] = deque()
        self._checker = HandshakeChecker(port.name)
        self._ready = self._valid = False
        self.reset()

    @property
    def valid(self) -> bool:
        """True if the design offers a transfer (as of the last cycle)."""
        return self._valid

    def drive(self) -> None:
        """Set ready by the pattern."""
        ready = next(self._active)
        if ready != self._ready:
            self.port.ready.value = int(ready)
            self._ready = ready

    def sample(self) -> None:
        """Check the rules; collect transfers."""
        self._valid = bool(self.port.valid.value)
        payload = self._payload() if self._valid else None
        self._checker.cycle(self._valid, self._ready, payload)
        if self._count(self._valid, self._ready) and payload is not None:
            self.received.append(payload)

    def reset(self) -> None:
        """Drop received transfers; set ready low."""
        self.received.clear()
        self._checker.reset()
        self._ready = self._valid = False
        self.port.ready.value = 0

    def _payload(self) -> dict[str, int]:
        return {name: int(signal.value) for name, signal in self.port.payload.items()}


class Bench:
    """The clock, the reset and the agents of one design with ``clk`` and ``rst``.

    ``cycle`` counts rising edges. :meth:`started` comes first.
    """

    def __init__(self, dut: Any, seed: int) -> None:
        self.dut = dut
        self.rng = np.random.default_rng(seed)
        self.agents: list[Agent] = []
        self.cycle = 0

    def source(self, port: Port, pattern: Pattern = ALWAYS) -> Source:
        """Add a driver of an input stream."""
        source = Source(port, self.rng, pattern)
        self.agents.append(source)
        return source

    def sink(self, port: Port) -> Sink:
        """Add a receiver of an output stream."""
        sink = Sink(port, self.rng, ALWAYS)
        self.agents.append(sink)
        return sink

    async def reset(self, cycles: int = 2) -> None:
        """Drop all work and hold ``rst`` for some cycles."""
        await FallingEdge(self.dut.clk)
        for agent in self.agents:
            agent.reset()
        self.dut.rst.value = 1
        for _ in range(cycles):
            await FallingEdge(self.dut.clk)
        self.dut.rst.value = 0
        self.cycle += cycles

    async def started(self) -> Self:
        """Start the clock, and reset."""
        Clock(self.dut.clk, CYCLE, unit="ns").start()
        await self.reset()
        return self

    async def until(self, done: Callable[[], bool], limit: int, what: str = "the condition") -> int:
        """Run until ``done()`` after a cycle; raise AssertionError past ``limit`` cycles.

        Returns the number of cycles.
        """
        edge, settled = FallingEdge(self.dut.clk), ReadOnly()
        for spent in range(1, limit + 1):
            await edge
            for agent in self.agents:
                agent.drive()
            await settled
            for agent in self.agents:
                agent.sample()
            self.cycle += 1
            if done():
                return spent
        raise AssertionError(f"cycle {self.cycle}: {what} must come in {limit} cycles")

    async def run(self, cycles: int) -> None:
        """Run for some cycles."""
        if cycles:
            last = self.cycle + cycles
            await self.until(lambda: self.cycle == last, cycles)
