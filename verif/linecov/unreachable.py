"""Holes that are none: no input can make the design show them, by proof."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cassandra_spec.verif.formal.netlist import Bit
from cassandra_spec.verif.formal.never import flat_netlist, never
from cassandra_spec.verif.linecov.points import Design, Point

_SIGNAL = re.compile(r"(?P<name>.*?)(?:\[(?P<bit>\d+)\])?$")
_CONDITION = re.compile(r"(?:= |if \()(?P<signal>\\?[\w.$\[\]]+(?: \[\d+\])?) *(?:\?|\) begin)")
_ALWAYS = {"if": 1, "cond_then": 1, "else": 0, "cond_else": 0}


def unreachable(design: Design, holes: Sequence[Point], folder: Path, seconds: int) -> set[Point]:
    """Those of the holes for which it is proved.

    A change of a bit cannot be seen if the bit never has one of its two values, a branch if its
    condition never has the value that leads there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    netlist = flat_netlist(design.source, design.name, folder)
    (module,) = json.loads(netlist)["modules"].values()
    lines = design.lines
    wanted = {hole: _claims(module["netnames"], hole, lines) for hole in holes}
    proved = {hole for hole, claims in wanted.items() if _constant(claims)}
    claims = sorted({claim for each in wanted.values() for claim in each if _open(claim)}, key=str)
    results = dict(zip(claims, never(netlist, claims, folder, seconds=seconds), strict=True))
    return proved | {hole for hole, each in wanted.items() if any(map(results.get, each))}


Claim = tuple[Bit, int]


def _open(claim: Claim) -> bool:
    return isinstance(claim[0], int)


def _constant(claims: Sequence[Claim]) -> bool:
    return any(isinstance(bit, str) and bit != str(value) for bit, value in claims)


def _claims(names: Mapping[str, Any], hole: Point, lines: Sequence[str]) -> list[Claim]:
    """Any of these, if proved, shows that the hole is none; empty: nothing is known."""
    if hole.kind == "toggle":
        signal, _, _ = hole.what.rpartition(":")
        bit = _bit(names, hole.module, signal)
        return [] if bit is None else [(bit, 0), (bit, 1)]
    found = _CONDITION.search(lines[hole.line - 1])
    if hole.what not in _ALWAYS or found is None:
        return []
    signal = found["signal"].removeprefix("\\").replace(" ", "")
    bit = _bit(names, hole.module, signal)
    return [] if bit is None else [(bit, _ALWAYS[hole.what])]


def _bit(names: Mapping[str, Any], module: str, signal: str) -> Bit | None:
    """A bit of the flat netlist; None if it has no such name, or if several bits have it."""
    path = f"{module}." if module else ""
    whole = names.get(path + signal)
    if whole is not None:  # a name may end in brackets of its own
        bits = whole["bits"]
        return bits[0] if len(bits) == 1 else None
    found = _SIGNAL.match(signal)
    assert found is not None
    net = names.get(path + found["name"])
    if net is None or found["bit"] is None:
        return None
    bit: Bit = net["bits"][int(found["bit"]) - net.get("offset", 0)]
    return bit
