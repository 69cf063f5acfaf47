"""A flat netlist with its memories removed: its cells, and the bits that matter outside.

Write data and address of a memory matter where the write is enabled, stream payloads while they are
valid, and values in the lanes of ``tkeep``: added gates express that. Read data is free, as far as
the logic in front of the write port can compute it from any state.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from cassandra_spec.verif.formal.netlist import Bit, is_clocked

Cell = Mapping[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Opened:
    """Cells by name, observed bits, initial values, and driver and readers of each bit."""

    cells: Mapping[str, Cell]
    observed: frozenset[Bit]
    initial: Mapping[Bit, str]
    drivers: Mapping[Bit, str]
    users: Mapping[Bit, Collection[str]]
    free: int  # numbers from here on are unused

    def behind(self, cells: Iterable[str], steps: int) -> set[str]:
        """Return these cells, and their drivers up to a number of steps."""
        found, new = set(cells), set(cells)
        for _ in range(steps):
            inputs = {bit for name in new for bit in pins(self.cells[name], "input")}
            new = {self.drivers[bit] for bit in inputs if bit in self.drivers} - found
            found |= new
        return found


def pins(cell: Cell, way: str) -> Iterator[int]:
    """Yield the bits of a cell's inputs or outputs, except clock and constants."""
    for port, bits in cell["connections"].items():
        if port != "CLK" and cell["port_directions"][port] == way:
            yield from (bit for bit in bits if isinstance(bit, int))


def gate(kind: str, inputs: Sequence[Bit], out: Bit) -> dict[str, Any]:
    """Return a gate of Yosys with inputs A and B."""
    names = "AB"[: len(inputs)]
    return {
        "hide_name": 0,
        "type": kind,
        "parameters": {},
        "attributes": {},
        "port_directions": {**dict.fromkeys(names, "input"), "Y": "output"},
        "connections": {**{n: [b] for n, b in zip(names, inputs, strict=True)}, "Y": [out]},
    }


def opened(module: Mapping[str, Any]) -> Opened:
    """Open a module in the JSON of Yosys."""
    work = _Opening(module)
    memories = [cell for cell in module["cells"].values() if cell["type"].startswith("$mem")]
    for memory in memories:
        work.observe_writes(memory)
    work.observe_ports(module["ports"])
    drivers = _by_bit(work.cells, "output")
    for memory in memories:
        work.imagine_reads(memory, {bit: name for bit, (name,) in drivers.items()})
    return Opened(
        cells=work.cells,
        observed=frozenset(work.observed),
        initial=_initial(module),
        drivers={bit: name for bit, (name,) in _by_bit(work.cells, "output").items()},
        users=_by_bit(work.cells, "input"),
        free=work.free,
    )


def _initial(module: Mapping[str, Any]) -> dict[Bit, str]:
    found: dict[Bit, str] = {}
    for net in module["netnames"].values():
        values = reversed(net["attributes"].get("init", "x" * len(net["bits"])))
        pairs = zip(net["bits"], values, strict=True)
        found.update((bit, value) for bit, value in pairs if value in "01")
    return found


def _by_bit(cells: Mapping[str, Cell], way: str) -> dict[Bit, list[str]]:
    found: dict[Bit, list[str]] = {}
    for name, cell in cells.items():
        for bit in set(pins(cell, way)):
            found.setdefault(bit, []).append(name)
    return found


class _Opening:
    """Cells and observed bits while they are collected."""

    def __init__(self, module: Mapping[str, Any]) -> None:
        cells = module["cells"]
        self.cells = {n: c for n, c in cells.items() if not c["type"].startswith("$mem")}
        self.observed = {b for c in self.cells.values() for b in c["connections"].get("CLK", ())}
        nets = [net["bits"] for net in module["netnames"].values()]
        nets += [bits for cell in cells.values() for bits in cell["connections"].values()]
        self.free = 1 + max((b for bits in nets for b in bits if isinstance(b, int)), default=0)

    def observe_writes(self, memory: Cell) -> None:
        """Observe a memory's pins: data and address where it is enabled, and all others."""
        told, width = memory["connections"], int(memory["parameters"]["WIDTH"], 2)
        size = int(memory["parameters"]["ABITS"], 2)
        for port in range(int(memory["parameters"]["WR_PORTS"], 2)):
            enables = told["WR_EN"][port * width :][:width]
            some = enables[0]
            for enable in dict.fromkeys(enables[1:]):
                some = some if enable == some else self._add("$_OR_", some, enable)
            data = zip(told["WR_DATA"][port * width :][:width], enables, strict=True)
            address = ((bit, some) for bit in told["WR_ADDR"][port * size :][:size])
            self.observed.update(self._add("$_AND_", *both) for both in (*data, *address))
        for name, bits in told.items():
            if name not in ("RD_DATA", "WR_DATA", "WR_ADDR"):
                self.observed.update(bits)

    def observe_ports(self, ports: Mapping[str, Any]) -> None:
        """Observe outputs; stream payloads only while they are valid."""
        for name, port in ports.items():
            if port["direction"] == "output":
                stream, _, part = name.rpartition("_")
                valid, keep = (ports.get(f"{stream}_{one}") for one in ("tvalid", "tkeep"))
                bits = port["bits"]
                if valid and part != "tvalid":
                    bits = [self._add("$_AND_", bit, valid["bits"][0]) for bit in bits]
                if valid and keep and part == "tdata":
                    bits = [
                        self._add("$_AND_", b, keep["bits"][i // 8]) for i, b in enumerate(bits)
                    ]
                self.observed.update(bits)

    def imagine_reads(self, memory: Cell, drivers: Mapping[Bit, str]) -> None:
        """Drive read data with zero, or with the output of the write logic for any state.

        Words that are written in part, by two ports, or initialised stay free.
        """
        told, settings = memory["connections"], memory["parameters"]
        whole = int(settings["WR_PORTS"], 2) == 1 and len(set(told["WR_EN"])) == 1
        if not whole or "1" in settings["INIT"] + settings["RD_CLK_ENABLE"]:
            return
        words, width = told["RD_DATA"], len(told["WR_DATA"])
        for start in range(0, len(words), width):
            copy, some = self._copied(told["WR_DATA"], drivers), self._fresh()
            for bit, out in zip(copy, words[start : start + width], strict=True):
                self.cells[f"read_{out}"] = gate("$_AND_", [bit, some], out)

    def _copied(self, bits: Sequence[Bit], drivers: Mapping[Bit, str]) -> list[Bit]:
        """Return bits of a second copy of the logic in front of these bits, with its own inputs."""
        fresh: dict[Bit, Bit] = {bit: bit for bit in "01xz"}
        todo, done = list(bits), set()
        while todo:
            bit = todo.pop()
            name = drivers.get(bit)
            if bit not in fresh:
                fresh[bit] = self._fresh()
            if name is not None and name not in done and not is_clocked(self.cells[name]):
                done.add(name)
                todo += [*pins(self.cells[name], "input"), *pins(self.cells[name], "output")]
        for name in done:
            cell = self.cells[name]
            connections = {p: [fresh[b] for b in bits] for p, bits in cell["connections"].items()}
            self.cells[f"copy_{self._fresh()}"] = {**cell, "connections": connections}
        return [fresh[bit] for bit in bits]

    def _add(self, kind: str, *inputs: Bit) -> Bit:
        """Add a gate; return its output."""
        out = self._fresh()
        self.cells[f"observed_{out}"] = gate(kind, inputs, out)
        return out

    def _fresh(self) -> int:
        self.free += 1
        return self.free - 1
