"""A layout as a picture: cells by block, the length of wires by place, and a part close up."""

from __future__ import annotations

import colorsys
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.synth.layout.names import Placeable
from cassandra_spec.synth.layout.routed import FILLER, Routed, Wire

PIXELS = 1000
"""Pixels of the longer side of an image."""

BIN = 5.0
"""Side in um of the squares in which lengths of wires are summed."""

WINDOW = 60.0
"""Width in um of the part that is shown close up."""

Colour = tuple[int, int, int]
Image = NDArray[np.uint8]

LAYERS: Mapping[str, Colour] = {
    "metal1": (60, 110, 200),
    "metal2": (220, 60, 60),
    "metal3": (60, 170, 80),
    "metal4": (150, 80, 190),
    "metal5": (240, 150, 40),
    "metal6": (120, 120, 120),
}
"""Colours of the layers, from the bottom up."""

_HALF_WIDTH = 0.15  # um of a wire


def blocks_of(
    netlist: Placeable,
    flip_flops: Collection[str],
    outputs: Collection[str],
    block_of: Callable[[str], str],
) -> dict[str, str]:
    """The block of each instance: that of the nearest register behind it.

    ``flip_flops`` are cells, ``outputs`` pins that drive; ``block_of`` names the block of a path.
    """
    drivers: dict[str, str] = {}
    for name, (_, pins) in netlist.instances.items():
        drivers |= {net: name for pin, net in pins.items() if pin in outputs}
    found = {
        name: block_of(f".{netlist.nets[pins['Q']]}")
        for name, (cell, pins) in netlist.instances.items()
        if cell in flip_flops
    }
    waiting = deque(found)
    while waiting:
        name = waiting.popleft()
        _, pins = netlist.instances[name]
        for net in pins.values():
            before = drivers.get(net, name)
            if before not in found:
                found[before] = found[name]
                waiting.append(before)
    return found | {name: "outputs" for name in netlist.instances if name not in found}


def colours(labels: Sequence[str]) -> dict[str, Colour]:
    """A colour for each label, neighbours far apart."""
    found: dict[str, Colour] = {}
    for place, label in enumerate(labels):
        light = (0.95, 0.7)[place % 2]
        red, green, blue = colorsys.hsv_to_rgb(place / len(labels), 0.65, light)
        found[label] = (round(255 * red), round(255 * green), round(255 * blue))
    return found


class _Canvas:
    """An image of a window of the plane; row 0 is its lower edge."""

    def __init__(self, corner: tuple[float, float], size: tuple[float, float]) -> None:
        self.corner = corner
        self.scale = PIXELS / max(size)
        shape = (round(size[1] * self.scale), round(size[0] * self.scale), 3)
        self.image: Image = np.full(shape, 255, np.uint8)

    def fill(self, x: float, y: float, width: float, height: float, colour: Colour) -> None:
        """A rectangle, given in um by its lower left corner, at least a pixel wide."""
        left, low = (
            max(round((place - edge) * self.scale), 0)
            for place, edge in zip((x, y), self.corner, strict=True)
        )
        right = max(round((x + width - self.corner[0]) * self.scale), left + 1)
        high = max(round((y + height - self.corner[1]) * self.scale), low + 1)
        self.image[low:high, left:right] = colour


def cells_image(
    layout: Routed,
    sizes: Mapping[str, tuple[float, float]],
    blocks: Mapping[str, str],
    palette: Mapping[str, Colour],
) -> Image:
    """Cells in the colours of their blocks; fill is white."""
    canvas = _Canvas(layout.corner, layout.die)
    for one in layout.components:
        if one.cell != FILLER:
            width, height = sizes[one.cell]
            canvas.fill(one.x, one.y, width, 0.85 * height, palette[blocks[one.name]])
    return canvas.image


def wires_image(layout: Routed, size: tuple[float, float]) -> Image:
    """Wires in the middle, a window of ``size`` um, in the colours of their layers."""
    corner = tuple(
        edge + (die - part) / 2
        for edge, die, part in zip(layout.corner, layout.die, size, strict=True)
    )
    canvas = _Canvas((corner[0], corner[1]), size)
    wires = [wire for net in layout.nets for wire in net.wires]
    for layer, colour in LAYERS.items():
        for wire in wires:
            if wire.layer == layer and _touches(wire, corner, size):
                canvas.fill(*_box(wire), colour)
    return canvas.image


def _touches(wire: Wire, corner: Sequence[float], size: Sequence[float]) -> bool:
    """Whether a wire comes into a window."""
    ends = zip(wire.start, wire.end, strict=True)
    return all(
        max(both) > edge and min(both) < edge + part
        for both, edge, part in zip(ends, corner, size, strict=True)
    )


def _box(wire: Wire) -> tuple[float, float, float, float]:
    left, low = (min(ends) - _HALF_WIDTH for ends in zip(wire.start, wire.end, strict=True))
    width, height = (
        abs(end - start) + 2 * _HALF_WIDTH for start, end in zip(wire.start, wire.end, strict=True)
    )
    return left, low, width, height


def wire_density(layout: Routed) -> NDArray[np.float64]:
    """Length of wires in um per um2, in squares of :data:`BIN`; row 0 is the lower edge."""
    across, up = (int(size // BIN) + 1 for size in layout.die)
    total = np.zeros((up, across))
    for net in layout.nets:
        for wire in net.wires:
            steps = int(wire.length // BIN) + 1
            places = (np.arange(steps) + 0.5) / steps
            x, y = (
                ((start + places * (end - start) - edge) // BIN).astype(int)
                for start, end, edge in zip(wire.start, wire.end, layout.corner, strict=True)
            )
            np.add.at(total, (y.clip(0, up - 1), x.clip(0, across - 1)), wire.length / steps)
    return total / BIN**2
