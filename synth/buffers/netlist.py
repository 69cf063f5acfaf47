"""A flat netlist of cells, as Yosys writes it, whose buffers and sizes can change."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from cassandra_spec.synth.buffers.cells import Cells
from cassandra_spec.synth.gating import LATCH

Pin = tuple[str, str]
"""Instance and pin."""

Undo = Callable[[], object]
"""Takes a change back; the latest change first."""

INSTANCE = re.compile(
    r"^  (?P<cell>[A-Za-z]\w*) (?P<name>\S+) \(\n(?P<pins>.*?)\n  \);\n?", re.M | re.S
)
PIN = re.compile(r"\.(?P<pin>\w+)\((?P<net>.*?)\)(?=,\n|$)", re.S)
_OURS = re.compile(r"_\d+_|(tree|repair)_\d+_y")
"""Nets that Yosys or buffering has named: of no register and no port."""


def instances_of(netlist: str) -> dict[str, tuple[str, dict[str, str]]]:
    """Return cell and nets by pin of every instance of a flat netlist, by name."""
    return {
        found["name"]: (
            found["cell"],
            {pin: net.strip() for pin, net in PIN.findall(found["pins"])},
        )
        for found in INSTANCE.finditer(netlist)
    }


def instance(cell: str, name: str, pins: Mapping[str, str]) -> str:
    """Format an instance as Verilog."""
    escaped = {pin: f"{net} " if net.startswith("\\") else net for pin, net in pins.items()}
    ports = ",\n".join(f"    .{pin}({net})" for pin, net in escaped.items())
    return f"  {cell} {name} (\n{ports}\n  );\n"


class Netlist:
    """Every change returns what takes it back.

    Arguments:
        text: one module, as :func:`~cassandra_spec.synth.buffers.trees.buffer_registers` gives it.
        cells: what buffering must know of the library.
    """

    def __init__(self, text: str, cells: Cells) -> None:
        self._text = text
        self._cells = cells
        self._first = instances_of(text)
        self.instances = {name: (cell, dict(pins)) for name, (cell, pins) in self._first.items()}
        self.sinks: dict[str, set[Pin]] = {}
        self.drivers: dict[str, Pin] = {}
        for name, (cell, pins) in self.instances.items():
            for pin, net in pins.items():
                if (cell, pin) in cells.loads:
                    self.sinks.setdefault(net, set()).add((name, pin))
                else:
                    self.drivers[net] = name, pin
        assigned = re.findall(r"^  assign (.*?) = (.*?);$", text, re.M)
        self._named = {net.strip() for pair in assigned for net in pair}
        self._added = 0

    def text(self, *, open_latches: bool = False) -> str:
        """Format the netlist as Verilog.

        With ``open_latches`` those of clock gates are buffers, so that the paths through them end
        at the gates.
        """
        written = {
            name: self._open(name) if open_latches and cell == LATCH else instance(cell, name, pins)
            for name, (cell, pins) in self.instances.items()
        }
        body = INSTANCE.sub(lambda found: written.pop(found["name"], ""), self._text)
        added = "".join(f"  wire {name}_y;\n{text}" for name, text in written.items())
        return body.replace("\nendmodule", f"\n{added}endmodule", 1)

    def _open(self, latch: str) -> str:
        cell, a, y = self._cells.smallest
        pins = self.pins(latch)
        return instance(cell, latch, {a: pins["D"], y: pins["Q"]})

    def cell(self, name: str) -> str:
        """Return the cell of an instance."""
        return self.instances[name][0]

    def pins(self, name: str) -> dict[str, str]:
        """Return the nets of an instance by pin."""
        return self.instances[name][1]

    def load(self, pins: Iterable[Pin]) -> float:
        """Return the sum of the capacitances of input pins, in pF."""
        return sum(self._cells.loads[self.cell(name), pin] for name, pin in pins)

    def is_buffer(self, name: str) -> bool:
        """Return whether a buffer can be removed: its output has no name of its own."""
        cell, pins = self.instances[name]
        if cell not in self._cells.buffers:
            return False
        net = pins[self._cells.buffers[cell][1]]
        return bool(_OURS.fullmatch(net)) and net not in self._named

    def buffers(self) -> Iterator[str]:
        """Yield the buffers that can be removed."""
        return filter(self.is_buffer, self.instances)

    def ends(self, buffer: str) -> tuple[str, str]:
        """Return input and output net of a buffer."""
        cell, pins = self.instances[buffer]
        a, y = self._cells.buffers[cell]
        return pins[a], pins[y]

    def move(self, pin: Pin, net: str) -> Undo:
        """Connect an input pin to another net."""
        pins = self.pins(pin[0])
        old = pins[pin[1]]
        self.sinks[old].discard(pin)
        pins[pin[1]] = net
        self.sinks.setdefault(net, set()).add(pin)
        return lambda: self.move(pin, old)

    def resize(self, name: str, cell: str) -> Undo:
        """Make a cell another one with the same pins."""
        old, pins = self.instances[name]
        self.instances[name] = cell, pins
        return lambda: self.resize(name, old)

    def insert(self, net: str, sinks: Iterable[Pin]) -> Undo:
        """Put some sinks of a net behind a new buffer, the smallest."""
        cell, a, y = self._cells.smallest
        name = f"repair_{self._added}"
        self._added += 1
        return self._add(name, cell, {a: net, y: f"{name}_y"}, sinks)

    def remove(self, buffer: str) -> Undo:
        """Take a buffer out: its sinks go to its input."""
        cell, pins = self.instances[buffer]
        before, behind = self.ends(buffer)
        sinks = sorted(self.sinks.get(behind, ()))
        for pin in sinks:
            self.move(pin, before)
        self.sinks[before].discard((buffer, self._cells.buffers[cell][0]))
        del self.drivers[behind], self.instances[buffer]
        return lambda: self._add(buffer, cell, pins, sinks)

    def _add(self, name: str, cell: str, pins: dict[str, str], sinks: Iterable[Pin]) -> Undo:
        self.instances[name] = cell, pins
        a, y = self._cells.buffers[cell]
        self.sinks.setdefault(pins[a], set()).add((name, a))
        self.drivers[pins[y]] = name, y
        for pin in list(sinks):
            self.move(pin, pins[y])
        return lambda: self.remove(name)
