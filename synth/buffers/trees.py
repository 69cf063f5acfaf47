"""Buffer trees behind flip-flops: what placement tools do, for a mapped netlist of Yosys.

abc sizes and buffers logic between registers but takes registers as drivers of any strength, so a
pointer that drives hundreds of multiplexers shows up as one cell with a delay of many nanoseconds.
:func:`buffer_registers` gives such nets a tree: the sinks with the longest remaining path stay
closest to the register.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import re
from collections.abc import Mapping, Sequence

from cassandra_spec.synth.buffers.cells import Cells
from cassandra_spec.synth.buffers.netlist import INSTANCE, PIN, instance, instances_of

ROOT_LOAD = 7
"""Maximum load of a flip-flop, in inputs of the smallest two-input NAND."""

BUFFER_LOAD = 30
"""Maximum load of a buffer, in the same unit."""

BUFFER_STEPS = 3
"""Delay that a buffer adds to a path, in cells of average delay."""


@dataclasses.dataclass(order=True)
class _Sink:
    """A pin of a net, or a buffer of its tree; least urgent first."""

    steps: float  # cells between the pin and the next register
    order: int
    load: float = dataclasses.field(compare=False)
    pin: tuple[str, str] = dataclasses.field(compare=False)


def buffer_registers(netlist: str, cells: Cells) -> tuple[str, int]:
    """Return the netlist with a buffer tree behind every overloaded flip-flop, and their number.

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


def _sinks(
    instances: Mapping[str, tuple[str, Mapping[str, str]]], cells: Cells
) -> dict[str, list[_Sink]]:
    """Return the loads of every net, each with the length of its remaining path."""
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
    """Count cells from each instance (included) to the farthest register behind it."""
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
            ends = {a: net, y: f"{pin[0]}_y"}
            added[place] = f"  wire {pin[0]}_y;\n{instance(buffer, pin[0], ends)}"
        else:
            moved[pin] = net


def _rewired(found: re.Match[str], moved: Mapping[tuple[str, str], str]) -> str:
    name = found["name"]
    return PIN.sub(
        lambda pin: (
            f".{pin['pin']}({moved[name, pin['pin']]})" if (name, pin["pin"]) in moved else pin[0]
        ),
        found[0],
    )
