"""Unreachability: proves that bits never have a value in any reachable state.

ABC merges equivalent nodes (``scorr``, an induction over all nodes at once), so a bit that never
has a value becomes a constant. Property-directed reachability tries the remaining bits one by one.
Registers start as the Verilog says; inputs, reset included, are free in each cycle.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.toolkit.programs import run_program
from cassandra_spec.verif.formal.netlist import Bit

_GATES = (
    "read_json claims.json; setundef -undriven -anyseq; opt -fast -keepdc; memory_map; techmap;"
    " opt -fast -keepdc; dffunmap; simplemap; setundef -anyseq; opt_clean; aigmap; opt_clean;"
    " write_aiger -zinit claims.aig"
)
_PORT = "claims"


def flat_netlist(
    verilog: Path, module: str, folder: Path, *, boxes: Sequence[str] = ()
) -> dict[str, Any]:
    """Return a design as one module of word-level cells, in the JSON of Yosys.

    Modules in ``boxes`` stay cells.
    """
    target = folder / "flat.json"
    closed = "".join(f" blackbox {name};" for name in boxes)
    script = (
        f"read_verilog {verilog.resolve()}; hierarchy -check -top {module};{closed} proc; flatten;"
        f" write_json {target.resolve()}"
    )
    run_program(["yosys", "-q", "-p", script], folder, error=CassandraError)
    flat: dict[str, Any] = json.loads(target.read_text())["modules"][module]
    return flat


def without_memories(module: dict[str, Any]) -> dict[str, Any]:
    """Remove a module's memories and boxes, so that their outputs are free."""
    cells = {
        name: cell
        for name, cell in module["cells"].items()
        if cell["type"].startswith("$") and not cell["type"].startswith("$mem")
    }
    return {**module, "cells": cells, "memories": {}}


def never(
    netlist: str, claims: Sequence[tuple[Bit, int]], folder: Path, *, seconds: int = 10
) -> list[bool]:
    """Return for each bit of a flat netlist whether it is proved never to have its value.

    False may also mean undecided: ``seconds`` is the limit for each bit that ``scorr`` leaves.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "claims.json").write_text(_with_claims(netlist, claims))
    run_program(["yosys", "-q", "-p", _GATES], folder, error=CassandraError)
    _abc(folder, "read_aiger claims.aig; strash; scorr; write_aiger merged.aig")
    merged = _outputs(folder / "merged.aig")
    proved = {0: True}  # by literal, because merged claims are one
    for place, literal in enumerate(merged if seconds else ()):
        if literal not in proved:
            log = _abc(folder, f"read_aiger merged.aig; cone -s -O {place}; pdr -T {seconds}")
            proved[literal] = "Property proved" in log
    return [proved.get(literal, False) for literal in merged]


def _abc(folder: Path, commands: str) -> str:
    return run_program(["yosys-abc", "-c", commands], folder, error=CassandraError)


def _with_claims(netlist: str, claims: Sequence[tuple[Bit, int]]) -> str:
    """Return the netlist with one output that has a bit per claim: 1 if it is broken."""
    design = json.loads(netlist)
    ((name, module),) = design["modules"].items()
    module["ports"] = {n: p for n, p in module["ports"].items() if p["direction"] == "input"}
    _begin_once(module)
    fresh = 1 + max(_numbers(module))
    bits: list[Bit] = []
    for place, (bit, value) in enumerate(claims):
        if value:
            bits.append(bit)
            continue
        bits.append(fresh + place)
        module["cells"][f"claim_{place}"] = _inverter(bit, fresh + place)
    module["ports"][_PORT] = {"direction": "output", "bits": bits}
    module["netnames"][_PORT] = {"hide_name": 0, "bits": bits, "attributes": {}}
    return json.dumps({"modules": {name: module}})


def _begin_once(module: dict[str, Any]) -> None:
    """Keep the initial value of each bit under one name: Yosys forgets only one when it is
    constant.
    """
    known: set[Bit] = set()
    for net in module["netnames"].values():
        if value := net["attributes"].get("init"):
            pairs = list(zip(net["bits"], reversed(value), strict=True))
            begins = ["x" if bit in known else begin for bit, begin in pairs]
            net["attributes"]["init"] = "".join(reversed(begins))
            known.update(bit for bit, begin in pairs if begin != "x")


def _numbers(module: dict[str, Any]) -> list[int]:
    nets = [bit for net in module["netnames"].values() for bit in net["bits"]]
    pins = [
        bit
        for cell in module["cells"].values()
        for bits in cell["connections"].values()
        for bit in bits
    ]
    return [bit for bit in (*nets, *pins) if isinstance(bit, int)]


def _inverter(bit: Bit, out: Bit) -> dict[str, Any]:
    return {
        "hide_name": 0,
        "type": "$_NOT_",
        "parameters": {},
        "attributes": {},
        "port_directions": {"A": "input", "Y": "output"},
        "connections": {"A": [bit], "Y": [out]},
    }


def _outputs(path: Path) -> list[int]:
    """Return the output literals of a binary AIGER file; 0: the constant."""
    with path.open("rb") as file:
        sizes = list(map(int, file.readline().split()[1:]))
        _, _, latches, outputs, *_ = sizes
        for _ in range(latches):
            file.readline()
        lines = [file.readline() for _ in range(outputs)]
    if not all(re.fullmatch(rb"\d+\n", line) for line in lines):
        raise CassandraError(f"{path.name} must have a literal for each output, not {lines[0]!r}")
    return [int(line) for line in lines]
