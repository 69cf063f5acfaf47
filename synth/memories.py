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


def constants(memories: Memories) -> dict[str, int]:
    """What memories are given that is constant."""
    return {n: int(bit == "1") for n, bit in _pins(memories, _GIVEN) if isinstance(bit, str)}


def opened(netlist: str) -> tuple[str, Memories]:
    """A flat netlist with ports for its memories' pins, and the memories. Both are Yosys's JSON.

    Constant pins have no port.
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
        "cells": {f"cell_{place}": cell for place, cell in enumerate(rest)},  # not as Yosys numbers
        "memories": {},
        "ports": {**module["ports"], **ports},
        "netnames": names,
    }
    return json.dumps(design), memories


def written(circuit: Circuit, memories: Memories) -> Circuit:
    """The circuit with 0 for what a memory is given while it writes nothing: it does not count.

    An address is left as it is where bits have enables of their own.
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
    """The module of memories that synthesis takes out of a design.

    Attributes:
        name: of the module and of its instance.
        memories: what is in it.
        nets: name of the module's port at each net, a bit of it in brackets.
    """

    name: str
    memories: Memories
    nets: Mapping[Bit, str]

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

        It gets all inputs, those too that it does not use, and all outputs: what one memory reads
        of another, and constants, have no port. A register that is a port has the name of the net.
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
