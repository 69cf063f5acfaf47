"""What a routed DEF file says: cells, wires by layer, vias, areas."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from cassandra_spec.golden.errors import CassandraError

FILLER = "FILL"
"""Name of cells that are in rows for their supplies alone."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Component:
    """A placed cell; its lower left corner in um."""

    name: str
    cell: str
    x: float
    y: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Wire:
    """A straight piece of a net, or, of no length, where it begins; ends in um."""

    layer: str
    start: tuple[float, float]
    end: tuple[float, float]

    @property
    def length(self) -> float:
        """Its length in um."""
        return abs(self.end[0] - self.start[0]) + abs(self.end[1] - self.start[1])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Net:
    """A net as it is routed: wires, and vias by name."""

    name: str
    wires: Sequence[Wire]
    vias: Mapping[str, int]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Routed:
    """A layout: its lower left corner, and width and height, in um.

    ``special`` are supplies, and pieces of wire at pins.
    """

    corner: tuple[float, float]
    die: tuple[float, float]
    components: Sequence[Component]
    nets: Sequence[Net]
    special: Sequence[Net]

    def area(self, sizes: Mapping[str, tuple[float, float]]) -> tuple[float, float]:
        """Area in um2 of cells and of fill; ``sizes`` are those of :func:`lef_sizes`."""
        areas = {name: width * height for name, (width, height) in sizes.items()}
        everything = sum(areas[one.cell] for one in self.components)
        fill = sum(areas[FILLER] for one in self.components if one.cell == FILLER)
        return everything - fill, fill

    @property
    def unrouted(self) -> list[str]:
        """Nets without a wire or via."""
        return [net.name for net in self.nets if not net.wires and not net.vias]

    def lengths(self) -> dict[str, float]:
        """Length in um of the wires of signals, by layer."""
        total: dict[str, float] = {}
        for wire in (wire for net in self.nets for wire in net.wires):
            total[wire.layer] = total.get(wire.layer, 0.0) + wire.length
        return dict(sorted(total.items()))

    def vias(self) -> dict[str, int]:
        """Vias of signals, by name."""
        total: Counter[str] = Counter()
        for net in self.nets:
            total.update(net.vias)
        return dict(sorted(total.items()))


def lef_sizes(lef: str) -> dict[str, tuple[float, float]]:
    """Width and height in um of every cell of a LEF file."""
    found = re.findall(r"^MACRO (\S+).*?^\s+SIZE ([\d.]+) BY ([\d.]+)", lef, re.M | re.S)
    return {name: (float(width), float(height)) for name, width, height in found}


def read_def(text: str) -> Routed:
    """The layout in the text of a DEF file.

    Raises CassandraError if it has no scale or no size.
    """
    scale = re.search(r"^UNITS DISTANCE MICRONS (\d+)", text, re.M)
    die = re.search(r"^DIEAREA \( (\S+) (\S+) \) \( (\S+) (\S+) \)", text, re.M)
    if scale is None or die is None:
        missing = "UNITS" if scale is None else "DIEAREA"
        raise CassandraError(f"DEF must have {missing}, not end without")
    unit = 1 / float(scale[1])
    left, bottom, right, top = (float(number) * unit for number in die.groups())
    return Routed(
        corner=(left, bottom),
        die=(right - left, top - bottom),
        components=[
            Component(name=name, cell=cell, x=float(x) * unit, y=float(y) * unit)
            for name, cell, x, y in _COMPONENT.findall(_section(text, "COMPONENTS"))
        ],
        nets=list(_nets(_section(text, "NETS"), unit)),
        special=list(_nets(_section(text, "SPECIALNETS"), unit)),
    )


_COMPONENT = re.compile(r"^- (\S+) (\S+).*?(?:PLACED|FIXED) \( (\S+) (\S+) \)", re.M | re.S)
_NET = re.compile(r"^- (\S+)(.*?);", re.M | re.S)
_PIECE = re.compile(r"(?:\+ ROUTED|NEW) (\S+)(.*?)(?=\+ ROUTED|NEW |\Z)", re.S)
_POINT = re.compile(r"\( (\S+) (\S+)(?: \S+)? \)|([A-Za-z]\S*)")
_SHAPE = re.compile(r"\+ SHAPE \S+")


def _section(text: str, name: str) -> str:
    found = re.search(rf"^{name} .*?^END {name}$", text, re.M | re.S)
    return found[0] if found else ""


def _nets(section: str, unit: float) -> Iterator[Net]:
    for name, body in _NET.findall(section):
        wires: list[Wire] = []
        vias: Counter[str] = Counter()
        for layer, path in _PIECE.findall(_SHAPE.sub("", body)):
            _follow(layer, path, unit, wires, vias)
        yield Net(name=name, wires=wires, vias=vias)


def _follow(layer: str, path: str, unit: float, wires: list[Wire], vias: Counter[str]) -> None:
    """The points of one path, where ``*`` repeats the coordinate before, and its vias."""
    here: tuple[float, float] | None = None
    for x, y, via in _POINT.findall(path):
        if via:
            vias[via] += 1
            continue
        before = here or (0.0, 0.0)
        there = tuple(
            old if new == "*" else float(new) * unit
            for old, new in zip(before, (x, y), strict=True)
        )
        if here is not None:
            wires.append(Wire(layer=layer, start=here, end=(there[0], there[1])))
        here = (there[0], there[1])
