"""A mapped netlist under the names that placer and router take."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.synth.buffers.netlist import instances_of

TOP = "top"
"""Name of the design in all files of the layout."""

SUPPLIES = ("vdd", "gnd")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Placeable:
    """A flat netlist of cells, whose nets are ``n0``, ``n1``, ... and instances ``CELL_1``, ...

    Attributes:
        instances: cell and nets by pin, by instance.
        inputs: nets of input ports that some cell looks at.
        outputs: nets of output ports; one that repeats another, or is constant, has no net.
        nets: the netlist's own name of each net.
        originals: the netlist's own name of each instance.
    """

    instances: Mapping[str, tuple[str, Mapping[str, str]]]
    inputs: Sequence[str]
    outputs: Sequence[str]
    nets: Mapping[str, str]
    originals: Mapping[str, str]

    @property
    def ports(self) -> list[str]:
        """All ports, inputs first."""
        return [*self.inputs, *self.outputs]


def placeable(netlist: str) -> Placeable:
    """The netlist, one flat module as Yosys writes it, under new names.

    Raises CassandraError if a pin has a constant: the library has no cell for one.
    """
    repeated = dict(re.findall(r"^  assign (\S+)\s*= (\S+)\s*;", netlist, re.M))
    found = instances_of(netlist)
    used = {net for _, pins in found.values() for net in pins.values()}
    constant = next((net for net in used if re.match(r"\d+'", net)), None)
    if constant:
        raise CassandraError(f"nets of a layout must have a driver, not {constant}")
    inputs, outputs = (re.findall(rf"^  {kind} (\S+) ?;", netlist, re.M) for kind in _PORTS)
    inputs = [port for port in inputs if port in used]
    outputs = [port for port in outputs if port not in repeated]
    own = dict.fromkeys([*inputs, *outputs, *sorted(used)])
    short = {net: f"n{number}" for number, net in enumerate(own)}
    count: Counter[str] = Counter()
    instances, originals = {}, {}
    for name, (cell, pins) in found.items():
        count[cell] += 1
        instances[f"{cell}_{count[cell]}"] = (cell, {pin: short[net] for pin, net in pins.items()})
        originals[f"{cell}_{count[cell]}"] = name
    return Placeable(
        instances=instances,
        inputs=[short[port] for port in inputs],
        outputs=[short[port] for port in outputs],
        nets={name: _plain(net) for net, name in short.items()},
        originals=originals,
    )


_PORTS = ("input", "output")


def _plain(net: str) -> str:
    """A Verilog name without its escape."""
    return net.removeprefix("\\")


def blif(netlist: Placeable) -> str:
    """The netlist for ``blif2cel``, which numbers the instances of each cell as they come."""
    gates = (
        f".gate {cell} " + " ".join(f"{pin}={net}" for pin, net in pins.items())
        for cell, pins in netlist.instances.values()
    )
    heads = (
        f".model {TOP}",
        _words(".inputs", netlist.inputs),
        _words(".outputs", netlist.outputs),
    )
    return "\n".join([*heads, *gates, ".end", ""])


def _words(*parts: str | Sequence[str]) -> str:
    return " ".join(part if isinstance(part, str) else " ".join(part) for part in parts)


def spice(netlist: Placeable, orders: Mapping[str, Sequence[str]]) -> str:
    """The netlist for netgen, its cells black boxes with pins in these orders."""
    lines = itertools.chain(
        *(_black_box(cell, pins) for cell, pins in orders.items()),
        [_words(f".subckt {TOP}", SUPPLIES, netlist.ports)],
        _calls(netlist, orders),
        [".ends", ".end", ""],
    )
    return "\n".join(lines)


def _black_box(cell: str, pins: Sequence[str]) -> list[str]:
    return [_words(f".subckt {cell}", pins), ".ends"]


def _calls(netlist: Placeable, orders: Mapping[str, Sequence[str]]) -> Iterator[str]:
    for name, (cell, pins) in netlist.instances.items():
        nets = {**pins, **{supply: supply for supply in SUPPLIES}}
        yield _words(f"X{name}", [nets[pin] for pin in orders[cell]], cell)


def pin_orders(extracted: str) -> dict[str, list[str]]:
    """Pins of each cell in the order of a SPICE file; the design itself is left out."""
    joined = extracted.replace("\n+ ", " ")
    found = re.findall(r"^\.subckt (\S+) (.*)$", joined, re.M)
    return {cell: pins.split() for cell, pins in found if cell != TOP}


def faults(extracted: str, netlist: Placeable) -> tuple[list[str], list[str]]:
    """Nets that are open, and nets that touch another one, in a SPICE file of the layout.

    Instances have the same names on both sides, so pins can be compared one by one.
    """
    orders = pin_orders(extracted)
    nodes: dict[str, set[str]] = {}
    nets: dict[str, set[str]] = {}
    for line in extracted.replace("\n+ ", " ").splitlines():
        if not line.startswith("X"):
            continue
        name, *found, cell = line[1:].split()
        _, pins = netlist.instances.get(name, ("", {}))
        for pin, node in zip(orders[cell], found, strict=True):
            if pin in pins:
                nodes.setdefault(pins[pin], set()).add(node)
                nets.setdefault(node, set()).add(pins[pin])
    opens = [net for net, parts in nodes.items() if len(parts) > 1]
    shorts = {net for both in nets.values() if len(both) > 1 for net in both}
    return sorted(netlist.nets[net] for net in opens), sorted(netlist.nets[net] for net in shorts)
