"""Memories that are taken out of a design: on both sides of a comparison, their pins become ports.

What a memory is given is an output, what is read of it an input. Its name is that of the memory, of
the pin and of the bit, as Yosys has them: ``encoder.regions.low.queue.storage.RD_DATA[3]``.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from typing import Any

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.synth.aiger import Circuit

_READ = "RD_DATA"
_GIVEN = ("RD_ADDR", "RD_EN", "WR_ADDR", "WR_DATA", "WR_EN")
Bit = int | str
Memories = dict[str, dict[str, Any]]
"""Cells of Yosys's netlists, by name of the memory."""


def is_read(name: str) -> bool:
    """Whether a port is a bit that is read of a memory."""
    return f".{_READ}[" in name


def is_given(name: str) -> bool:
    """Whether a port is a bit that a memory is given."""
    return any(f".{pin}[" in name for pin in _GIVEN)


def memories_in(module: Mapping[str, Any]) -> Memories:
    """The memories of a module of a netlist in Yosys's JSON."""
    cells = (cell for cell in module["cells"].values() if cell["type"].startswith("$mem"))
    return {cell["parameters"]["MEMID"].removeprefix("\\"): cell for cell in cells}


def _pins(memories: Memories, names: tuple[str, ...]) -> Iterator[tuple[str, Bit]]:
    """Name and net of each bit of these pins."""
    for memory, cell in memories.items():
        for pin in names:
            for place, bit in enumerate(cell["connections"][pin]):
                yield f"{memory}.{pin}[{place}]", bit


def opened(netlist: str) -> tuple[str, Memories]:
    """A flat netlist with ports for its memories' pins, and the memories. Both are Yosys's JSON."""
    design = json.loads(netlist)
    (module,) = design["modules"].values()
    memories = memories_in(module)
    cells = {n: cell for n, cell in module["cells"].items() if not cell["type"].startswith("$mem")}
    ports = {
        name: {"direction": direction, "bits": [bit]}
        for direction, names in (("input", (_READ,)), ("output", _GIVEN))
        for name, bit in _pins(memories, names)
    }
    nets = {
        name: {"hide_name": 0, "bits": port["bits"], "attributes": {}}
        for name, port in ports.items()
    }
    module |= {
        "cells": cells,
        "memories": {},
        "ports": {**module["ports"], **ports},
        "netnames": {**module["netnames"], **nets},
    }
    return json.dumps(design), memories


@dataclasses.dataclass(frozen=True, kw_only=True)
class TakenOut:
    """The module of memories that synthesis takes out of a design.

    Attributes:
        name: of the module and of its instance.
        memories: what is in it.
        nets: name of the module's port at each net, a bit of it in brackets.
    """

    name: str
    memories: Memories
    nets: Mapping[int, str]

    @classmethod
    def of(cls, netlist: str, name: str) -> TakenOut:
        """From a netlist that has the module, in Yosys's JSON."""
        module = json.loads(netlist)["modules"][name]
        nets = {
            bit: f"{port}[{place}]" if len(each["bits"]) > 1 else port
            for port, each in module["ports"].items()
            for place, bit in enumerate(each["bits"])
        }
        return cls(name=name, memories=memories_in(module), nets=nets)

    def check(self, others: Memories) -> None:
        """Raises CassandraError if the memories of the RTL are not the same, as memories."""
        for name in sorted({*self.memories, *others}):
            ours, theirs = (
                side.get(name, {}).get("parameters") for side in (self.memories, others)
            )
            if ours != theirs:
                raise CassandraError(
                    f"memory {name} must be the same in both, not {ours}, {theirs}"
                )

    def renamed(self, circuit: Circuit) -> Circuit:
        """The circuit of the rest, with its ports named by the pins.

        A constant pin is an output as well; bits that nothing uses of what is read have no port. A
        register that is such a port has the name of the net as well.
        """
        prefix = f"{self.name}."
        reads = {self._port(bit): name for name, bit in _pins(self.memories, (_READ,))}
        given = {
            name: int(bit == "1") if isinstance(bit, str) else circuit.outputs[self._port(bit)]
            for name, bit in _pins(self.memories, _GIVEN)
        }
        others = {n: one for n, one in circuit.outputs.items() if not n.startswith(prefix)}
        return dataclasses.replace(
            circuit,
            inputs=[reads.get(name, name) for name in circuit.inputs],
            latches=[frozenset(n.removeprefix(prefix) for n in each) for each in circuit.latches],
            outputs={**others, **given},
        )

    def _port(self, bit: Bit) -> str:
        """The port of the rest behind which a net of the module is; of no use without one."""
        return f"{self.name}.{self.nets.get(bit)}" if isinstance(bit, int) else ""
