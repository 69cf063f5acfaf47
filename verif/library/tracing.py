"""Traces of tops in Amaranth's own simulator: drivers for their ports, and recorded signals."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from amaranth.hdl import ResetInserter, Signal
from amaranth.sim import Simulator

from cassandra_spec.rtl.dma.registers import register_of
from cassandra_spec.verif.dma.host import codebook_words
from cassandra_spec.verif.library.waves import Trace

Access = tuple[int, int | None]
"""A register address and the value to write; None to read."""


class Driver(Protocol):
    """A model at some ports of a top."""

    def drive(self, ctx: Any, top: Any) -> None:
        """Set inputs for the coming edge."""
        ...

    def see(self, cycle: Mapping[str, int]) -> None:
        """Read all ports just before that edge."""
        ...


class Traced:
    """A top in the simulator, which takes longer to build than a trace; each starts anew."""

    def __init__(self, top: Any) -> None:
        self._top, self._rst, self._used = top, Signal(), False
        self._simulator = Simulator(ResetInserter(self._rst)(top))
        self._simulator.add_clock(1e-6)
        self._simulator.add_testbench(self._bench)

    def run(self, drivers: Sequence[Driver], cycles: int, reset: int = 0) -> Trace:
        """Return all ports in each cycle, and ``rst``, which is 1 in the first ``reset``."""
        self._trace, self._drivers, self._cycles, self._reset = Trace(), drivers, cycles, reset
        if self._used:
            self._simulator.reset()
        self._used = True
        self._simulator.run()
        return self._trace

    async def _bench(self, ctx: Any) -> None:
        top = self._top
        for number in range(self._cycles):
            ctx.set(self._rst, int(number < self._reset))
            for driver in self._drivers:
                driver.drive(ctx, top)
            cycle = {name: ctx.get(getattr(top, name)) for name in top.signature.members}
            self._trace.append({**cycle, "rst": int(number < self._reset)})
            for driver in self._drivers:
                driver.see(cycle)
            await ctx.tick()


class Ready:
    """Drives a ready that is 1 in all cycles, or in those that ``when`` selects."""

    def __init__(self, name: str, when: Callable[[int], bool] = lambda cycle: True) -> None:
        self._name, self._when, self._cycle = name, when, 0

    def drive(self, ctx: Any, top: Any) -> None:
        """Set ready."""
        ctx.set(getattr(top, self._name), int(self._when(self._cycle)))

    def see(self, cycle: Mapping[str, int]) -> None:
        """Count cycles."""
        self._cycle += 1


class Packets:
    """Drives words into the AXI4-Stream inputs of a top, as early as possible.

    Commands wait until the codebook has been taken.
    """

    def __init__(self, **streams: Iterable[dict[str, int]]) -> None:
        self._queues = {name: deque(words) for name, words in streams.items()}

    def drive(self, ctx: Any, top: Any) -> None:
        """Offer the first word of each queue."""
        for name, queue in self._queues.items():
            waits = name == "command" and bool(self._queues.get("codebook"))
            ctx.set(getattr(top, f"s_axis_{name}_tvalid"), int(bool(queue) and not waits))
            for field, value in (queue[0] if queue else {}).items():
                ctx.set(getattr(top, f"s_axis_{name}_{field}"), value)

    def see(self, cycle: Mapping[str, int]) -> None:
        """Drop taken words."""
        for name, queue in self._queues.items():
            if cycle[f"s_axis_{name}_tvalid"] and cycle[f"s_axis_{name}_tready"]:
                queue.popleft()


class Host:
    """Software on AXI4-Lite: accesses one by one, each after the answer to the previous one.

    They begin after ``wait`` cycles; those in ``later`` when the top raises its interrupt.
    """

    def __init__(
        self,
        accesses: Iterable[Access],
        later: Iterable[Access] = (),
        wait: int = 0,
    ) -> None:
        self._accesses, self._later = deque(accesses), deque(later)
        self._sent = set[str]()  # channels that the current access has used
        self._wait = wait

    def drive(self, ctx: Any, top: Any) -> None:
        """Set the port."""
        if self._wait:
            return
        address, value = self._accesses[0] if self._accesses else (0, 0)
        writes = bool(self._accesses) and value is not None
        ctx.set(top.s_axil_awaddr, address if writes else 0)
        ctx.set(top.s_axil_awvalid, int(writes and "aw" not in self._sent))
        ctx.set(top.s_axil_wdata, value or 0)
        ctx.set(top.s_axil_wstrb, 15)
        ctx.set(top.s_axil_wvalid, int(writes and "w" not in self._sent))
        ctx.set(top.s_axil_bready, 1)
        ctx.set(top.s_axil_araddr, 0 if writes else address)
        reads = bool(self._accesses) and not writes
        ctx.set(top.s_axil_arvalid, int(reads and "ar" not in self._sent))
        ctx.set(top.s_axil_rready, 1)

    def see(self, cycle: Mapping[str, int]) -> None:
        """Record taken and answered accesses."""
        if self._wait:
            self._wait -= 1
            return
        for name in ("aw", "w", "ar"):
            if cycle[f"s_axil_{name}valid"] and cycle[f"s_axil_{name}ready"]:
                self._sent.add(name)
        if cycle["s_axil_bvalid"] or cycle["s_axil_rvalid"]:
            self._accesses.popleft()
            self._sent.clear()
        if cycle["irq"] and not self._accesses:
            self._accesses, self._later = self._later, deque()


def writes_of(values: Mapping[str, int]) -> list[Access]:
    """Return writes to registers by name, in this order."""
    return [(register_of(name).offset, value) for name, value in values.items()]


def codebook_writes(book: Sequence[int]) -> list[Access]:
    """Return the writes of a codebook to slot 0."""
    offset = register_of("codebook").offset
    return [(offset, word) for word in codebook_words(0, book)]
