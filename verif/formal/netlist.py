"""A flat netlist in the JSON of Yosys: its flip-flops, and their reset by ``rst``."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from typing import Any

Bit = int | str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Netlist:
    """A flat module: its cells, and bits of its ports and of its initial values by name."""

    cells: Mapping[str, Mapping[str, Any]]
    ports: Mapping[str, Mapping[str, Any]]
    names: Mapping[str, Mapping[str, Any]]

    @classmethod
    def of(cls, text: str) -> Netlist:
        """Read the top module from the output of ``write_json``."""
        (module,) = json.loads(text)["modules"].values()
        return cls(cells=module["cells"], ports=module["ports"], names=module["netnames"])

    def initial(self) -> dict[Bit, str]:
        """Return initial values by bit."""
        found: dict[Bit, str] = {}
        for net in self.names.values():
            value = net["attributes"].get("init")
            if value is not None:
                found.update(zip(net["bits"], reversed(value), strict=True))
        return found

    def drivers(self) -> dict[Bit, list[Bit]]:
        """Map each bit to the inputs that its driving cell reads in the same cycle."""
        found: dict[Bit, list[Bit]] = {}
        for cell in self.cells.values():
            ways = cell["port_directions"]
            inputs = [
                b
                for port, bits in cell["connections"].items()
                for b in bits
                if ways[port] == "input" and not is_clocked(cell)
            ]
            for port, bits in cell["connections"].items():
                if ways[port] == "output":
                    found.update((bit, inputs) for bit in bits)
        return found


def _is_flip_flop(kind: str) -> bool:
    return "dff" in kind.lower()


def is_clocked(cell: Mapping[str, Any]) -> bool:
    """Return True if the cell's outputs do not depend on its inputs of the same cycle."""
    reads = cell["type"].startswith("$memrd") and int(cell["parameters"]["CLK_ENABLE"], 2) == 1
    return reads or _is_flip_flop(cell["type"])


def not_reset(netlist: Netlist, data: re.Pattern[str] | None = None) -> list[str]:
    """Return flip-flops outside ``data`` that ``rst`` does not set to their initial state.

    A flip-flop's input must come from a multiplexer that ``rst`` switches to that state.
    """
    free = {
        bit
        for name, net in netlist.names.items()
        if data is not None and data.fullmatch(name)
        for bit in net["bits"]
    }
    return [what for what, held in _without_reset(netlist).items() if not free.issuperset(held)]


def _without_reset(netlist: Netlist) -> dict[str, list[Bit]]:
    """Return flip-flops that ``rst`` does not set to their initial state, with their outputs."""
    initial, resets = netlist.initial(), _chosen_by_reset(netlist)
    found = {}
    for name, cell in netlist.cells.items():
        if not _is_flip_flop(cell["type"]):
            continue
        pins = cell["connections"]
        begins = [initial.get(bit, "x") for bit in pins["Q"]]
        taken = [resets.get(bit, "-") for bit in pins["D"]]
        if cell["type"] != "$dff" or begins != taken:
            what = f"{cell['type']} {name}: resets to {taken}, begins as {begins}"
            found[what] = pins["Q"]
    return found


def _chosen_by_reset(netlist: Netlist) -> dict[Bit, Bit]:
    """Return the values of bits while ``rst`` is set, from the multiplexers that it switches."""
    (reset,) = netlist.ports["rst"]["bits"]
    found: dict[Bit, Bit] = {}
    for cell in netlist.cells.values():
        pins = cell["connections"]
        if cell["type"] == "$mux" and pins["S"] == [reset]:
            found.update(zip(pins["Y"], pins["B"], strict=True))
    return found


def forgetful(text: str) -> str:
    """Return a netlist in JSON whose memories and registers without reset start unknown."""
    design = json.loads(text)
    (module,) = design["modules"].values()
    free = {bit for held in _without_reset(Netlist.of(text)).values() for bit in held}
    for net in module["netnames"].values():
        value = net["attributes"].get("init")
        if value is not None:
            bits = zip(reversed(net["bits"]), value, strict=True)
            net["attributes"]["init"] = "".join("x" if b in free else v for b, v in bits)
    cells = module["cells"]
    module["cells"] = {n: c for n, c in cells.items() if not c["type"].startswith("$meminit")}
    return json.dumps(design)
