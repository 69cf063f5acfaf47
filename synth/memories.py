"""Memories removed from a design: on both sides of a comparison, their pins become ports.

A memory's inputs become outputs of the design, its read data inputs. The port's name consists of
the memory, the pin and the bit, as in Yosys: ``encoder.regions.low.queue.storage.RD_DATA[3]``.
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
"""Memory cells of Yosys's netlists, by name of the memory."""


def is_given(name: str) -> bool:
    """Return True if a port is an input bit of a memory."""
    return any(f".{pin}[" in name for pin in _GIVEN)


def memories_in(module: Mapping[str, Any]) -> Memories:
    """Return the memories of a module of a netlist in Yosys's JSON."""
    cells = (cell for cell in module["cells"].values() if cell["type"].startswith("$mem"))
    return {cell["parameters"]["MEMID"].removeprefix("\\"): cell for cell in cells}


def _pins(memories: Memories, names: tuple[str, ...]) -> Iterator[tuple[str, Bit]]:
    """Yield name and net of each bit of these pins."""
    for memory, cell in memories.items():
        for pin in names:
            for place, bit in enumerate(cell["connections"][pin]):
                yield f"{memory}.{pin}[{place}]", bit


def constants(memories: Memories) -> dict[str, int]:
    """Return the constant inputs of memories."""
    return {n: int(bit == "1") for n, bit in _pins(memories, _GIVEN) if isinstance(bit, str)}


def opened(netlist: str) -> tuple[str, Memories]:
    """Return a flat netlist with ports for its memories' pins, and the memories; both in Yosys's
    JSON.

    Constant pins get no port.
    """
    design = json.loads(netlist)
    (module,) = design["modules"].values()
    memories = memories_in(module)
    rest = (cell for cell in module["cells"].values() if not cell["type"].startswith("$mem"))
    ports = {
        name: {"direction": direction, "bits": [bit]}
        for direction, names in (("input", (_READ,)), ("output", _GIVEN))
        for name, bit in _pins(memories, names)
        if isinstance(bit, int)
    }
    names = {name: net for name, net in module["netnames"].items() if not net["hide_name"]}
    for name, port in ports.items():
        names[name] = {"hide_name": 0, "bits": port["bits"], "attributes": {}}
    module |= {
        "cells": {f"cell_{place}": cell for place, cell in enumerate(rest)},  # fresh names
        "memories": {},
        "ports": {**module["ports"], **ports},
        "netnames": names,
    }
    return json.dumps(design), memories


def written(circuit: Circuit, memories: Memories) -> Circuit:
    """Return the circuit with 0 for the inputs of a memory that does not write: they do not count.

    An address stays as it is where bits have enables of their own.
    """
    pairs: dict[str, tuple[int, int]] = {}
    for memory, cell in memories.items():
        enables = [
            circuit.outputs[f"{memory}.WR_EN[{place}]"]
            for place in range(len(cell["connections"]["WR_EN"]))
        ]
        for place, enable in enumerate(enables):
            name = f"{memory}.WR_DATA[{place}]"
            pairs[name] = circuit.outputs[name], enable
        if len({*enables}) == 1:
            for name, _ in _pins({memory: cell}, ("WR_ADDR",)):
                pairs[name] = circuit.outputs[name], enables[0]
    return circuit.with_ands(pairs)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TakenOut:
    """The module of memories that synthesis removes from a design.

    Attributes:
        name: of the module and of its instance.
        memories: the memories inside.
        nets: the module's port at each net, with its bit in brackets.
    """

    name: str
    memories: Memories
    nets: Mapping[Bit, str]

    @classmethod
    def of(cls, netlist: str, name: str) -> TakenOut:
        """Read it from a netlist in Yosys's JSON that has the module."""
        module = json.loads(netlist)["modules"][name]
        nets = {
            bit: f"{port}[{place}]" if len(each["bits"]) > 1 else port
            for port, each in module["ports"].items()
            for place, bit in enumerate(each["bits"])
        }
        return cls(name=name, memories=memories_in(module), nets=nets)

    def check(self, others: Memories) -> None:
        """Raise CassandraError if the memories of the RTL differ from these."""
        for name in sorted({*self.memories, *others}):
            ours, theirs = (
                side.get(name, {}).get("parameters") for side in (self.memories, others)
            )
            if ours != theirs:
                raise CassandraError(
                    f"memory {name} must be the same in both, not {ours}, {theirs}"
                )

    def renamed(self, circuit: Circuit) -> Circuit:
        """Name the ports of the remaining circuit by the memory pins.

        The circuit gets all inputs, including those that it does not use, and all outputs: read
        data that feeds another memory, and constants, have no port. A register that is a port has
        the name of the net.
        """
        prefix, reads = f"{self.name}.", dict(_pins(self.memories, (_READ,)))
        ports = {
            f"{prefix}{self.nets[bit]}": name for name, bit in reads.items() if bit in self.nets
        }
        named = dataclasses.replace(
            circuit,
            inputs=[ports.get(name, name) for name in circuit.inputs],
            latches=[frozenset(n.removeprefix(prefix) for n in each) for each in circuit.latches],
        )
        whole = named.with_inputs(sorted({*reads} - {*named.inputs}))
        places = {name: 2 * place for place, name in enumerate(whole.inputs, 1)}
        nets = {bit: places[name] for name, bit in reads.items()}
        others = {n: one for n, one in whole.outputs.items() if not n.startswith(prefix)}

        def literal(bit: int) -> int:
            return nets[bit] if bit in nets else whole.outputs[prefix + self.nets[bit]]

        pins = _pins(self.memories, _GIVEN)
        given = {name: literal(bit) for name, bit in pins if isinstance(bit, int)}
        outputs = {**others, **given, **constants(self.memories)}
        return dataclasses.replace(whole, outputs=outputs)
