"""Wires as resistances and capacitances: what router and extractor found, as SPEF for OpenSTA.

The tree of a net and its resistances are qrouter's; its capacitance is what Magic extracts from the
layout, to the substrate and to other nets (those taken as quiet), shared out over the tree as
qrouter's own estimate is.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.synth.layout.names import SUPPLIES, Placeable


@dataclasses.dataclass(frozen=True, kw_only=True)
class Segment:
    """A piece of a net between two nodes, by number; the driver is node 0.

    ``ohm`` is its resistance, ``farad`` its capacitance in fF.
    """

    start: int
    end: int
    ohm: float
    farad: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tree:
    """A routed net: its pieces from the driver on, and the nodes at which pins are.

    Pins are ``INSTANCE/PIN``, or ``PIN/NET`` for a port.
    """

    driver: str
    segments: Sequence[Segment]
    sinks: Mapping[str, int]

    @property
    def farad(self) -> float:
        """The capacitance in fF that qrouter estimates."""
        return sum(segment.farad for segment in self.segments)


def read_trees(text: str) -> dict[str, Tree]:
    """The nets of qrouter's file of delays, by name.

    Raises CassandraError if parentheses are not closed.
    """
    lines = (line.split() for line in text.splitlines() if line.strip())
    return {name: _tree(driver, words) for name, _, driver, _, *words in lines}


def _tree(driver: str, words: Sequence[str]) -> Tree:
    """A piece is ``( OHM PICOFARAD what is behind it )``, where pins and pieces may stand."""
    segments: list[Segment] = []
    sinks: dict[str, int] = {}
    open_nodes = [0]
    place = 0
    while place < len(words):
        word = words[place]
        place += 1
        if word == "(":
            ohm, picofarad = map(float, words[place : place + 2])
            node = len(segments) + 1
            segments.append(
                Segment(start=open_nodes[-1], end=node, ohm=ohm, farad=1000 * picofarad)
            )
            open_nodes.append(node)
            place += 2
        elif word == ")":
            open_nodes.pop()
        elif word not in {",", "ERROR"}:  # ERROR: where qrouter finds no pin
            sinks[word] = open_nodes[-1]
    if open_nodes != [0]:
        raise CassandraError(f"pieces of a net must be closed, not left open behind {driver}")
    return Tree(driver=driver, segments=segments, sinks=sinks)


def capacitances(extracted: str, netlist: Placeable) -> dict[str, float]:
    """Capacitance in fF of each net, from a SPICE file of Magic; what is inside cells is left out.

    Magic names a net by a port or by any of its pins.
    """
    total: dict[str, float] = {}
    for one, other, farad in re.findall(r"^C\d+ (\S+) (\S+) ([\d.e+-]+)fF?", extracted, re.M):
        ends = {_net_of(one, netlist), _net_of(other, netlist)}
        for net in ends - {""} if len(ends) == 2 else ():
            total[net] = total.get(net, 0.0) + float(farad)
    return total


def _net_of(node: str, netlist: Placeable) -> str:
    """The net of a node; "" for a supply, the substrate, and a node inside a cell."""
    if node in netlist.nets:
        return node
    instance, _, pin = node.partition("/")
    _, pins = netlist.instances.get(instance, ("", {}))
    return pins.get(pin, "")


# --- SPEF ---------------------------------------------------------------------------------------

_HEAD = """\
*SPEF "IEEE 1481-1998"
*DESIGN "{top}"
*DATE ""
*VENDOR ""
*PROGRAM "cassandra_spec.synth.layout"
*VERSION ""
*DESIGN_FLOW ""
*DIVIDER /
*DELIMITER :
*BUS_DELIMITER [ ]
*T_UNIT 1 NS
*C_UNIT 1 FF
*R_UNIT 1 OHM
*L_UNIT 1 HENRY
"""


def spef(
    netlist: Placeable,
    trees: Mapping[str, Tree],
    extracted: Mapping[str, float],
    top: str,
    outputs: Collection[str],
) -> str:
    """The wires under the names of the mapped netlist, whose module is ``top``.

    ``outputs`` are pins that drive. Nets without a tree have no wires, and are left out.
    """
    ports = {*netlist.inputs, *netlist.outputs}
    pins = _pins(netlist)
    body = (
        _net(netlist, net, tree, extracted.get(net, tree.farad), pins[net], outputs, net in ports)
        for net, tree in trees.items()
        if net not in SUPPLIES
    )
    return _HEAD.format(top=top) + "\n".join(body) + "\n"


def _pins(netlist: Placeable) -> dict[str, list[tuple[str, str]]]:
    """Instances and pins of each net."""
    found: dict[str, list[tuple[str, str]]] = {}
    for name, (_, pins) in netlist.instances.items():
        for pin, net in pins.items():
            found.setdefault(net, []).append((name, pin))
    return found


def escaped(name: str) -> str:
    """A name in SPEF: all but letters, digits and underscores behind a backslash."""
    return re.sub(r"(\W)", r"\\\1", name)


def _net(
    netlist: Placeable,
    net: str,
    tree: Tree,
    farad: float,
    pins: Sequence[tuple[str, str]],
    outputs: Collection[str],
    port: bool,
) -> str:
    name = escaped(netlist.nets[net])
    lines = [f"\n*D_NET {name} {farad:.4f}", "*CONN"]
    if port:
        lines.append(f"*P {name} {'I' if net in netlist.inputs else 'O'}")
    for instance, pin in pins:
        own = f"{escaped(netlist.originals[instance])}:{pin}"
        lines.append(f"*I {own} {'O' if pin in outputs else 'I'}")
    reached = {tree.driver, *tree.sinks}
    nodes = _nodes(netlist, net, tree)
    nodes[0] += [  # pins that the router has not reached hang at the driver
        f"{escaped(netlist.originals[instance])}:{pin}"
        for instance, pin in pins
        if f"{instance}/{pin}" not in reached
    ]
    scale = farad / tree.farad if tree.farad else 0.0
    lines += ["*CAP", *_caps(tree, nodes, scale), "*RES", *_resistors(tree, nodes), "*END"]
    return "\n".join(lines)


def _nodes(netlist: Placeable, net: str, tree: Tree) -> dict[int, list[str]]:
    """Names at each node: those of its pins, else one of its own."""

    def named(place: str) -> str:
        instance, _, pin = place.partition("/")
        if instance == "PIN":
            return escaped(netlist.nets[pin])
        return f"{escaped(netlist.originals[instance])}:{pin}"

    names: dict[int, list[str]] = {0: [named(tree.driver)]}
    for place, node in tree.sinks.items():
        names.setdefault(node, []).append(named(place))
    for segment in tree.segments:
        names.setdefault(segment.end, [f"{escaped(netlist.nets[net])}:{segment.end}"])
    return names


def _caps(tree: Tree, nodes: Mapping[int, Sequence[str]], scale: float) -> Iterator[str]:
    """Half of a piece's capacitance at each of its ends."""
    at: dict[int, float] = {}
    for segment in tree.segments:
        for node in (segment.start, segment.end):
            at[node] = at.get(node, 0.0) + scale * segment.farad / 2
    for number, (node, farad) in enumerate(sorted(at.items()), start=1):
        yield f"{number} {nodes[node][0]} {farad:.5f}"


def _resistors(tree: Tree, nodes: Mapping[int, Sequence[str]]) -> Iterator[str]:
    """Pieces, and shorts between pins at one node."""
    pairs = [(nodes[one.start][0], nodes[one.end][0], one.ohm) for one in tree.segments]
    pairs += [(names[0], other, 0.0) for names in nodes.values() for other in names[1:]]
    for number, (start, end, ohm) in enumerate(pairs, start=1):
        yield f"{number} {start} {end} {ohm:.4f}"
