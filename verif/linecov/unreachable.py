"""Unreachable holes: points that no input can hit, by proof."""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.toolkit.programs import run_program
from cassandra_spec.verif.formal.netlist import Bit
from cassandra_spec.verif.formal.never import flat_netlist, never, without_memories
from cassandra_spec.verif.linecov.points import Design, Point

_SIGNAL = re.compile(r"(?P<name>.*?)(?:\[(?P<bit>-?\d+)\])?$")
_CONDITION = re.compile(r"(?:= |if \()(?P<signal>\\?[\w.$\[\]]+(?: \[\d+\])?) *(?:\?|\) begin)")
_ALWAYS = {"if": 1, "elsif": 1, "cond_then": 1, "else": 0, "cond_else": 0}
"""The condition's value that takes the branch; ``elsif`` is an ``if`` with another behind it."""


def unreachable(
    design: Design, holes: Sequence[Point], folder: Path, seconds: int, *, whole: bool = True
) -> set[Point]:
    """Return the holes that are proved unreachable.

    A toggle is unreachable if the bit never has one of its two values, a branch if its condition
    never has the value that leads there; a bit that nothing reads is no logic. Each module is tried
    alone, with its inputs and the outputs of inner modules free; then, for the remaining holes,
    each enclosing module with its content, the smallest first; then the ``whole`` design. Memory
    contents are always free, and so are the outputs of engines that another suite counts.
    ``seconds`` limits the proof of a bit.
    """
    folder.mkdir(parents=True, exist_ok=True)
    top = design.module("")
    script = f"read_verilog {design.source.resolve()}; hierarchy -top {top}; proc"
    path = folder / "modules.json"
    run_program(["yosys", "-q", "-p", f"{script}; write_json {path}"], folder, error=CassandraError)
    modules = json.loads(path.read_text())["modules"]
    proved: set[Point] = set()
    for name in sorted({hole.module for hole in holes}):
        mine = [hole for hole in holes if hole.module == name]
        module = modules[design.module(name)]
        found = _inside(name, mine, functools.partial(_unread, module))
        rest = [hole for hole in mine if hole not in found]
        claimed = functools.partial(_claimed, _alone(module), design.lines, folder, seconds)
        proved |= found | _inside(name, rest, claimed)
    engines = [design.module(engine) for engine in design.engines]
    for name in _surroundings(holes) if whole else ():
        left = [hole for hole in holes if hole not in proved and _is_in(hole, name)]
        if left:
            flat = flat_netlist(design.source, design.module(name), folder, boxes=engines)
            found = _inside(name, left, functools.partial(_unread, flat))
            rest = [hole for hole in left if hole not in found]
            claimed = functools.partial(_claimed, flat, design.lines, folder, seconds)
            proved |= found | _inside(name, rest, claimed)
    return proved


def _is_in(hole: Point, module: str) -> bool:
    return f"{hole.module}.".startswith(f"{module}." if module else "")


def _surroundings(holes: Sequence[Point]) -> list[str]:
    """Return the modules around the holes (inclusive), the smallest first."""
    parts = [hole.module.split(".") if hole.module else [] for hole in holes]
    paths = {".".join(each[:depth]) for each in parts for depth in range(len(each) + 1)}
    return sorted(paths, key=lambda path: (-path.count("."), not path, path))


def _inside(
    module: str, holes: Sequence[Point], proved: Callable[[Sequence[Point]], set[Point]]
) -> set[Point]:
    """Return the holes that are proved within one module, whose path they start with."""
    start = len(module) + 1 if module else 0
    names = {dataclasses.replace(hole, module=hole.module[start:]): hole for hole in holes}
    return {names[hole] for hole in proved([*names])}


def _alone(module: dict[str, Any]) -> dict[str, Any]:
    """Return a module without inner modules."""
    cells = {name: c for name, c in module["cells"].items() if c["type"].startswith("$")}
    return {**module, "cells": cells}


def _unread(module: dict[str, Any], holes: Sequence[Point]) -> set[Point]:
    """Return toggles of bits that no cell, inner module or output reads."""
    read = {
        bit
        for cell in module["cells"].values()
        for port, bits in cell["connections"].items()
        if cell.get("port_directions", {}).get(port) != "output"
        for bit in bits
    }
    ports = (port for port in module["ports"].values() if port["direction"] == "output")
    read |= {bit for port in ports for bit in port["bits"]}
    toggles = [hole for hole in holes if hole.kind == "toggle"]
    found = {hole: _bit_of(module["netnames"], hole) for hole in toggles}
    return {hole for hole, bit in found.items() if isinstance(bit, int) and bit not in read}


def _claimed(
    module: dict[str, Any],
    lines: Sequence[str],
    folder: Path,
    seconds: int,
    holes: Sequence[Point],
) -> set[Point]:
    """Return the holes that are proved in a netlist of one module."""
    module = without_memories(module)
    wanted = {hole: _claims(module["netnames"], hole, lines) for hole in holes}
    proved = {hole for hole, claims in wanted.items() if _constant(claims)}
    claims = sorted({claim for each in wanted.values() for claim in each if _open(claim)}, key=str)
    if not claims:
        return proved
    netlist = json.dumps({"modules": {"top": module}})
    results = dict(zip(claims, never(netlist, claims, folder, seconds=seconds), strict=True))
    return proved | {hole for hole, each in wanted.items() if any(map(results.get, each))}


Claim = tuple[Bit, int]


def _open(claim: Claim) -> bool:
    return isinstance(claim[0], int)


def _constant(claims: Sequence[Claim]) -> bool:
    return any(isinstance(bit, str) and bit != str(value) for bit, value in claims)


def _claims(names: Mapping[str, Any], hole: Point, lines: Sequence[str]) -> list[Claim]:
    """Return claims that each prove the hole; the list is empty if no such claim is known."""
    if hole.kind == "toggle":
        bit = _bit_of(names, hole)
        return [] if bit is None else [(bit, 0), (bit, 1)]
    found = _CONDITION.search(lines[hole.line - 1])
    if hole.what not in _ALWAYS or found is None:
        return []
    signal = found["signal"].removeprefix("\\").replace(" ", "")
    bit = _bit(names, hole.module, signal)
    return [] if bit is None else [(bit, _ALWAYS[hole.what])]


def _bit_of(names: Mapping[str, Any], hole: Point) -> Bit | None:
    """Return the bit of a toggle."""
    return _bit(names, hole.module, hole.what.rpartition(":")[0])


def _bit(names: Mapping[str, Any], module: str, signal: str) -> Bit | None:
    """Return a bit of the flat netlist; None if it has no such name."""
    path = f"{module}." if module else ""
    whole = _net(names, path + signal)
    if whole is not None and len(whole["bits"]) == 1:  # a name may end in brackets of its own
        only: Bit = whole["bits"][0]
        return only
    found = _SIGNAL.match(signal)
    assert found is not None
    net = _net(names, path + found["name"])
    if net is None or found["bit"] is None:
        return None
    bits: Sequence[Bit] = net["bits"]
    return bits[int(found["bit"]) - net.get("offset", 0)]


def _net(names: Mapping[str, Any], name: str) -> Any:
    """Return a net; Yosys keeps the backslash of an escaped name that begins with a dollar."""
    return names.get(name, names.get(f"\\{name}"))
