"""Runs cocotb tests in Amaranth's own simulator: slower per cycle, but without a build.

It finds a fault in a small block within seconds. The tests are those that Verilator runs, with the
same port names and cycles. They may await what :mod:`cassandra_spec.verif.library.streams` and
:mod:`cassandra_spec.verif.library.bank` await: falling edges of ``clk``, and settled signals.
"""

from __future__ import annotations

import contextlib
import logging
import re
import sys
import zlib
from collections.abc import Coroutine, Iterator
from types import ModuleType
from typing import Any
from unittest import mock

import cocotb
from amaranth.hdl import Cat, ClockDomain, Elaboratable, Module, Value
from amaranth.lib import wiring
from amaranth.sim import Simulator

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.verif.formal.harness import Together
from cassandra_spec.verif.tools.runner import choose_seed

LIMIT = 40_000
"""Cycles after which a test counts as hanging."""


class _Wait:
    """An awaitable that the loop of :func:`_run` handles."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __await__(self) -> Iterator[_Wait]:
        yield self

    def start(self) -> None:
        """Start a clock: nothing to do, the simulator has its own."""


class _Edge(_Wait):
    """The start of the next cycle."""


_STAND_INS = {"FallingEdge": _Edge, "ReadOnly": _Wait, "Timer": _Wait, "Clock": _Wait}


class _Port:
    """A port as in cocotb, with ``value`` and a length."""

    def __init__(self, ports: _Ports, name: str, signal: Value) -> None:
        self._ports, self._name, self._signal = ports, name, signal

    def __len__(self) -> int:
        return len(self._signal)

    @property
    def value(self) -> int:
        """The current value, settled."""
        self._ports.settle()
        return int(self._ports.context.get(self._signal))

    @value.setter
    def value(self, number: int) -> None:
        self._ports.pending[self._name] = (self._signal, int(number))


class _Ports:
    """The ports of a design by their Verilog names, and ``clk`` and ``rst``."""

    def __init__(self, design: wiring.Component, reset: Value) -> None:
        self.context: Any = None
        self.pending: dict[str, tuple[Value, int]] = {}  # values to set, all at once
        self._log = logging.getLogger(__name__)
        self._ports = {"rst": _Port(self, "rst", reset), "clk": None}
        for path, _, value in design.signature.flatten(design):
            name = "__".join(map(str, path))
            self._ports[name] = _Port(self, name, Value.cast(value))

    def settle(self) -> None:
        """Set the pending values."""
        if self.pending:
            signals, numbers = zip(*self.pending.values(), strict=True)
            total, place = 0, 0
            for signal, number in zip(signals, numbers, strict=True):
                total |= number << place
                place += len(signal)
            self.context.set(Cat(*signals), total)
            self.pending.clear()

    def __getitem__(self, name: str) -> Any:
        return self._ports[name]

    def __getattr__(self, name: str) -> Any:
        if name not in self._ports:
            raise AttributeError(name)
        return self._ports[name]


def run_simulated(module: ModuleType, testcase: str | None = None) -> list[str]:
    """Run the cocotb tests of a suite's module on its ``design()``; return their names.

    ``testcase`` is a regular expression that selects tests by name. If the design has many blocks
    side by side, only the blocks that the tests name are simulated. An exception of a test is
    raised with its name. Raises CassandraError if no test is selected.
    """
    names = []
    with _standing_in():
        for test in _tests(module, testcase):
            names.append(test.fullname)
            name_seed = zlib.crc32(test.fullname.encode()) ^ choose_seed()
            design = _part_of(module.design(), test.kwargs)
            try:
                with mock.patch.object(cocotb, "RANDOM_SEED", name_seed, create=True):
                    _run(design, test)
            except Exception as error:
                raise AssertionError(f"{test.fullname}: {error}") from error
    if not names:
        raise CassandraError(f"testcase must select a test of {module.__name__}, not {testcase!r}")
    return names


def _tests(module: ModuleType, testcase: str | None) -> Iterator[Any]:
    for item in vars(module).values():
        if hasattr(item, "generate_tests"):
            for test in item.generate_tests():
                if testcase is None or re.search(testcase, test.fullname):
                    yield test


@contextlib.contextmanager
def _standing_in() -> Iterator[None]:
    """Replace the triggers that modules of this package have imported by stand-ins."""
    with contextlib.ExitStack() as stack:
        for name, module in list(sys.modules.items()):
            if (
                name.partition(".")[0] in ("cassandra_spec", "tests")
                and module.__name__ != __name__
            ):
                for trigger in _STAND_INS.keys() & vars(module).keys():
                    stack.enter_context(mock.patch.object(module, trigger, _STAND_INS[trigger]))
        yield


def _part_of(design: wiring.Component, chosen: dict[str, Any]) -> wiring.Component:
    """Return the block that a test is about, if it names one of several."""
    name = chosen.get("instance")
    if isinstance(design, Together) and name in design.parts:
        return Together({name: design.parts[name]})
    return design


class _Clocked(Elaboratable):
    """A design with a reset input."""

    def __init__(self, design: wiring.Component) -> None:
        self.design, self.domain = design, ClockDomain("sync")

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.domains.sync = self.domain
        m.submodules.design = self.design
        return m


def _run(design: wiring.Component, test: Any) -> None:
    top = _Clocked(design)
    ports = _Ports(design, top.domain.rst)

    async def bench(context: Any) -> None:
        ports.context = context
        work: Coroutine[_Wait, None, None] = test.func(ports, *test.args, **test.kwargs)
        cycles = 0
        with contextlib.suppress(StopIteration):
            while True:
                wait = work.send(None)
                ports.settle()
                if isinstance(wait, _Edge):
                    cycles += 1
                    assert cycles <= LIMIT, f"it must end in {LIMIT} cycles"
                    await context.tick()

    simulator = Simulator(top)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
