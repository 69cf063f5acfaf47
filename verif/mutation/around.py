"""Equivalence of mutants: proves that a fault's effect never leaves the cells around it.

The cells that the fault reaches are doubled: one copy has the fault, both get the same inputs. The
inputs come from *context*, single cells in front, whose own inputs are free. If no output of the
doubled cells ever differs, the rest of the netlist never sees the fault. Where one differs, the
cells that read it are doubled, too. Little context may allow a difference that the design never
shows, so more is tried, and finally all.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.toolkit.programs import run_program
from cassandra_spec.verif.formal.netlist import Bit
from cassandra_spec.verif.mutation.opened import Opened, gate, pins

CONTEXT = (2, 5, 9, 12, 16, 1000)
"""Depth of the context in cells; the last is the whole netlist."""

_MOST = 1000  # maximum number of doubled cells
_FRAMES = 12  # cycles of bounded model checking
_GATES = (
    "flatten; setundef -undriven -zero; opt -full; techmap; opt -fast; dffunmap; simplemap;"
    " setundef -zero; opt_clean; aigmap; opt_clean; write_aiger -zinit beside.aig"
)
_COUNTS = re.compile(r"Properties: +All = (\d+)\. Proved = (\d+)\. Disproved = (\d+)\.")
_ASSERTED = re.compile(r"^Output +(\d+) was (?:trivially )?asserted", re.MULTILINE)


def stays_inside(netlist: Opened, cell: str, change: str, folder: Path, seconds: int) -> int | None:
    """Return the number of cells that the fault never leaves; None: not proved.

    ``change`` is the fault in the syntax of ``mutate``. ABC has ``seconds`` to prove that a set of
    doubled cells with its context shows no difference.
    """
    for steps in CONTEXT:
        doubled, alike = _followed(netlist, cell, change, folder, steps, seconds)
        if alike:
            return len(doubled)
        context = netlist.behind(doubled, steps)
        if netlist.behind(context, 1) == context:  # no further context
            break
    return None


def _followed(
    netlist: Opened, cell: str, change: str, folder: Path, steps: int, seconds: int
) -> tuple[set[str], bool]:
    """Return the cells that a fault reaches with this context, and whether it provably stays
    inside.

    It does not if a difference shows outside, if there are too many cells, or after a timeout.
    """
    doubled = {cell}
    while len(doubled) < _MOST:
        context = netlist.behind(doubled, steps)
        differ, alike = _differences(netlist, doubled, context, change, folder, seconds)
        if not differ:
            return doubled, alike
        if not netlist.observed.isdisjoint(differ):
            break
        doubled.update(user for bit in differ for user in netlist.users[bit])
    return doubled, False


def _differences(
    netlist: Opened, doubled: set[str], context: set[str], change: str, folder: Path, seconds: int
) -> tuple[list[Bit], bool]:
    """Return outputs of the doubled cells that may differ, and whether provably none does.

    Bounded model checking finds nearly all of them, faster than PDR.
    """
    outputs = _outputs(netlist, doubled)
    if not outputs:
        return [], True
    modules = {
        "good": _good(netlist, doubled, outputs),
        "beside": _beside(netlist, doubled, context - doubled, outputs),
    }
    (folder / "beside.json").write_text(json.dumps({"modules": modules}))
    script = (
        f"read_json beside.json; copy good faulty; mutate -module faulty {change};"
        f" hierarchy -top beside; {_GATES}"
    )
    run_program(["yosys", "-q", "-p", script], folder, error=CassandraError)
    differ, alike = _shown(folder, seconds // 10 + 1), False
    if not differ:
        differ, alike = _decided(folder, seconds, len(outputs))
    return [outputs[place] for place in differ], alike


def _shown(folder: Path, seconds: int) -> list[int]:
    """Return indices of outputs that differ by bounded model checking."""
    log = _abc(f"bmc3 -a -x -F {_FRAMES} -T {seconds}", folder)
    return [int(place) for place in _ASSERTED.findall(log)]


def _decided(folder: Path, seconds: int, outputs: int) -> tuple[list[int], bool]:
    """Return indices of outputs that differ by PDR, and whether it proves that none does."""
    log = _abc(f"pdr -a -T {seconds}", folder)
    counts, asserted = _COUNTS.search(log), _ASSERTED.findall(log)
    if counts is None or len(asserted) != int(counts[3]) or int(counts[1]) != outputs:
        raise CassandraError(f"yosys-abc must name each output that differs, not {log[-200:]!r}")
    return [int(place) for place in asserted], counts[1] == counts[2]


def _abc(command: str, folder: Path) -> str:
    """Run ABC on the netlist."""
    commands = f"read_aiger beside.aig; strash; scorr; {command}"
    return run_program(["yosys-abc", "-c", commands], folder, error=CassandraError)


def _outputs(netlist: Opened, doubled: set[str]) -> list[Bit]:
    """Return bits that other cells read, or that matter outside."""
    driven = sorted({bit for name in doubled for bit in pins(netlist.cells[name], "output")})
    return [
        bit
        for bit in driven
        if bit in netlist.observed or not doubled.issuperset(netlist.users.get(bit, ()))
    ]


def _good(netlist: Opened, doubled: set[str], outputs: Sequence[Bit]) -> dict[str, Any]:
    ports = {"ins": ("input", _inputs(netlist, doubled)), "outs": ("output", outputs)}
    return _module(netlist, {name: netlist.cells[name] for name in sorted(doubled)}, ports)


def _beside(
    netlist: Opened, doubled: set[str], context: set[str], outputs: Sequence[Bit]
) -> dict[str, Any]:
    """Build the context and both copies; each bit of ``differs`` is an output of theirs."""
    inputs = _inputs(netlist, doubled)
    others = range(netlist.free, netlist.free + len(outputs))
    differs = range(others.stop, others.stop + len(outputs))
    cells = {
        **{name: netlist.cells[name] for name in sorted(context)},
        "good_copy": _copy("good", inputs, outputs),
        "faulty_copy": _copy("faulty", inputs, others),
    }
    for pair in zip(outputs, others, differs, strict=True):
        cells[f"differs_{pair[0]}"] = gate("$_XOR_", pair[:2], pair[2])
    driven = {bit for name in context for bit in pins(netlist.cells[name], "output")}
    free = {*inputs, *_inputs(netlist, context)} - driven - {*outputs}
    ports = {"free": ("input", sorted(free)), "differs": ("output", differs)}
    return _module(netlist, cells, ports)


def _inputs(netlist: Opened, cells: Iterable[str]) -> list[Bit]:
    """Return the bits that these cells read and do not drive, including clocks."""
    some = [netlist.cells[name] for name in cells]
    used = {bit for cell in some for bit in (*pins(cell, "input"), *_clocks(cell))}
    return sorted(used - {bit for cell in some for bit in pins(cell, "output")})


def _clocks(cell: Mapping[str, Any]) -> list[Bit]:
    return list(cell["connections"].get("CLK", ()))


def _copy(kind: str, inputs: Sequence[Bit], outputs: Sequence[Bit]) -> dict[str, Any]:
    cell = gate(kind, (), 0)
    ways = {"ins": "input", "outs": "output"}
    return {
        **cell,
        "port_directions": ways,
        "connections": {"ins": list(inputs), "outs": list(outputs)},
    }


def _module(
    netlist: Opened,
    cells: Mapping[str, Mapping[str, Any]],
    ports: Mapping[str, tuple[str, Sequence[Bit]]],
) -> dict[str, Any]:
    """Return a module for Yosys; each register has its initial value."""
    held = [b for cell in cells.values() for b in pins(cell, "output") if b in netlist.initial]
    nets = {f"register_{bit}": _net([bit], init=netlist.initial[bit]) for bit in held}
    return {
        "attributes": {},
        "ports": {n: {"direction": way, "bits": list(bits)} for n, (way, bits) in ports.items()},
        "cells": cells,
        "netnames": {**nets, **{name: _net(bits) for name, (_, bits) in ports.items()}},
    }


def _net(bits: Sequence[Bit], **attributes: str) -> dict[str, Any]:
    return {"hide_name": 0, "bits": list(bits), "attributes": attributes}
