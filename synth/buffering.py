"""Buffer trees behind flip-flops: what placement tools do, on a mapped netlist of Yosys.

abc sizes and buffers logic between registers and takes the registers themselves as drivers of any
strength, so a pointer that hundreds of multiplexers look at shows as one cell of many nanoseconds.
:func:`buffer_registers` gives such nets a tree: the sinks with the longest way still to go stay
closest to the register.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import re
from collections.abc import Mapping, Sequence

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.synth.liberty import pin_groups
from cassandra_spec.synth.timing import Library

ROOT_LOAD = 7
"""Most that a flip-flop drives, in inputs of the smallest two-input NAND."""

BUFFER_LOAD = 30
"""Most that a buffer drives, in the same unit."""

BUFFER_AREA = 1.5
"""Most area of a buffer in gate equivalents; the largest below is taken."""

BUFFER_STEPS = 3
"""What a buffer adds to a path, in cells of average delay."""

INSTANCE = re.compile(
    r"^  (?P<cell>[A-Za-z]\w*) (?P<name>\S+) \(\n(?P<pins>.*?)\n  \);", re.M | re.S
)
_PIN = re.compile(r"\.(?P<pin>\w+)\((?P<net>.*?)\)(?=,\n|$)", re.S)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cells:
    """What buffering must know of a library."""

    loads: Mapping[tuple[str, str], float]  # capacitance of each input pin, by cell and pin
    unit: float  # capacitance of an input of the smallest NAND
    buffer: tuple[str, str, str]  # cell that drives trees, its input and its output
    flip_flops: frozenset[str]  # cells whose output ``Q`` is a register

    @classmethod
    def of(cls, library: Library) -> Cells:
        """The cells of a library.

        Raises CassandraError if it has no buffer that is small enough.
        """
        text = library.path.read_text(errors="replace")
        loads = input_loads(text)
        small = {
            name: pins
            for name, pins in _buffers(text).items()
            if library.areas[name] <= BUFFER_AREA * library.gate
        }
        if not small:
            raise CassandraError(
                f"LIBERTY must have a buffer of at most {BUFFER_AREA} gates, not {library.path}"
            )
        name = max(small, key=lambda cell: library.areas[cell])
        unit = min(load for (cell, _), load in loads.items() if cell == library.nand2)
        return cls(
            loads=loads, unit=unit, buffer=(name, *small[name]), flip_flops=library.flip_flops
        )


@dataclasses.dataclass(order=True)
class _Sink:
    """A pin of a net, or a buffer of its tree; least urgent first."""

    steps: float  # cells between the pin and the next register
    order: int
    load: float = dataclasses.field(compare=False)
    pin: tuple[str, str] = dataclasses.field(compare=False)


def input_loads(liberty: str) -> dict[tuple[str, str], float]:
    """Capacitance of every input pin in the text of a liberty file, by cell and pin."""
    loads = {}
    for cell, pin, text in pin_groups(liberty):
        load = re.search(r"\bcapacitance\s*:\s*([\d.e+-]+)", text)
        if re.search(r"direction\s*:\s*\"?input", text) and load:
            loads[cell, pin] = float(load[1])
    return loads


def _buffers(liberty: str) -> dict[str, tuple[str, str]]:
    """Input and output of every cell whose function is its only input."""
    pins: dict[str, list[tuple[str, str]]] = {}
    for cell, pin, text in pin_groups(liberty):
        function = re.search(r'function\s*:\s*"\(?\s*([^"]*?)\s*\)?"', text)
        pins.setdefault(cell, []).append((pin, function[1] if function else ""))
    return {
        cell: (found[0][0], found[1][0])
        for cell, found in pins.items()
        if len(found) == 2 and not found[0][1] and found[1][1] == found[0][0]
    }


def buffer_registers(netlist: str, cells: Cells) -> tuple[str, int]:
    """The netlist with a tree of buffers behind every overloaded flip-flop, and their number.

    ``netlist`` is one flat module as ``write_verilog -noattr -noexpr`` writes it.
    """
    instances = instances_of(netlist)
    sinks = _sinks(instances, cells)
    moved: dict[tuple[str, str], str] = {}
    added: list[str] = []
    for cell, pins in instances.values():
        if cell in cells.flip_flops:
            _plant(sinks.get(pins["Q"], []), pins["Q"], cells, moved, added)
    text = INSTANCE.sub(lambda found: _rewired(found, moved), netlist)
    return text.replace("\nendmodule", "\n" + "".join(added) + "endmodule", 1), len(added)


def instances_of(netlist: str) -> dict[str, tuple[str, dict[str, str]]]:
    """Cell and nets by pin of every instance of a flat netlist, by name."""
    return {
        found["name"]: (
            found["cell"],
            {pin: net.strip() for pin, net in _PIN.findall(found["pins"])},
        )
        for found in INSTANCE.finditer(netlist)
    }


def _sinks(
    instances: Mapping[str, tuple[str, Mapping[str, str]]], cells: Cells
) -> dict[str, list[_Sink]]:
    """Loads of every net, with the way each has still to go."""
    users: dict[str, list[tuple[str, str]]] = {}
    drives: dict[str, list[str]] = {}
    for name, (cell, pins) in instances.items():
        inputs = [pin for pin in pins if (cell, pin) in cells.loads and pin != "CLK"]
        drives[name] = [net for pin, net in pins.items() if (cell, pin) not in cells.loads]
        for pin in inputs:
            users.setdefault(pins[pin], []).append((name, pin))
    steps = _steps(instances, users, drives, cells)
    order = itertools.count()
    return {
        net: [
            _Sink(steps[name], next(order), cells.loads[instances[name][0], pin], (name, pin))
            for name, pin in pins
        ]
        for net, pins in users.items()
    }


def _steps(
    instances: Mapping[str, tuple[str, Mapping[str, str]]],
    users: Mapping[str, Sequence[tuple[str, str]]],
    drives: Mapping[str, Sequence[str]],
    cells: Cells,
) -> dict[str, float]:
    """Cells from each instance (itself included) to the farthest register behind it."""
    steps = {name: 0.0 for name, (cell, _) in instances.items() if cell in cells.flip_flops}
    for start in instances:
        stack = [start]
        while stack:
            name = stack[-1]
            if name in steps:
                stack.pop()
                continue
            behind = [user for net in drives[name] for user, _ in users.get(net, [])]
            missing = [user for user in behind if user not in steps]
            if not missing:
                far = max((steps[user] for user in behind), default=0.0)
                steps[name] = 1.0 + len(behind) / 20 + far
            stack += missing
    return steps


def _plant(
    sinks: Sequence[_Sink],
    root: str,
    cells: Cells,
    moved: dict[tuple[str, str], str],
    added: list[str],
) -> None:
    """Move the least urgent sinks behind buffers until the register's load is small enough."""
    buffer, a, y = cells.buffer
    heap = list(sinks)
    heapq.heapify(heap)
    load = sum(sink.load for sink in heap)
    own = cells.loads[buffer, a]
    tree: dict[tuple[str, str], str] = {}
    while load > ROOT_LOAD * cells.unit and len(heap) > 1:
        group = [heapq.heappop(heap)]
        moving = group[0].load
        while (
            heap
            and moving + heap[0].load <= BUFFER_LOAD * cells.unit
            and load + own - moving > ROOT_LOAD * cells.unit
        ):
            group.append(heapq.heappop(heap))
            moving += group[-1].load
        name = f"tree_{len(added)}"
        tree |= {sink.pin: f"{name}_y" for sink in group}
        pin = (name, a)
        urgency = max(sink.steps for sink in group) + BUFFER_STEPS
        heapq.heappush(heap, _Sink(urgency, len(added) + (1 << 30), own, pin))
        added.append(name)
        tree[pin] = root
        load += own - moving
    for pin, net in tree.items():
        if pin[0].startswith("tree_"):
            place = int(pin[0].removeprefix("tree_"))
            added[place] = (
                f"  wire {pin[0]}_y;\n  {buffer} {pin[0]} (\n"
                f"    .{a}({net} ),\n    .{y}({pin[0]}_y)\n  );\n"
            )
        else:
            moved[pin] = net


def _rewired(found: re.Match[str], moved: Mapping[tuple[str, str], str]) -> str:
    name = found["name"]
    return _PIN.sub(
        lambda pin: (
            f".{pin['pin']}({moved[name, pin['pin']]})" if (name, pin["pin"]) in moved else pin[0]
        ),
        found[0],
    )
