"""Claims about the structure of the exported top: what resets, and what a port depends on.

They are decided on the netlist that Yosys makes of it, cell by cell.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from rtl.top import DecoderTop
from verif.formal.prover import Claim

__all__ = ["CLAIMS", "Netlist", "not_reset", "waiting_streams", "wrong_paths"]

Bit = int | str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Netlist:
    """A flat module: its cells, and bits of its ports and of its initial values by name."""

    cells: Mapping[str, Mapping[str, Any]]
    ports: Mapping[str, Mapping[str, Any]]
    names: Mapping[str, Mapping[str, Any]]

    @classmethod
    def of(cls, text: str) -> Netlist:
        """The top of what ``write_json`` of Yosys has written."""
        (module,) = json.loads(text)["modules"].values()
        return cls(cells=module["cells"], ports=module["ports"], names=module["netnames"])

    def initial(self) -> dict[Bit, str]:
        """Initial values, by bit."""
        found: dict[Bit, str] = {}
        for net in self.names.values():
            value = net["attributes"].get("init")
            if value is not None:
                found.update(zip(net["bits"], reversed(value), strict=True))
        return found

    def drivers(self) -> dict[Bit, list[Bit]]:
        """Bits that the cell that drives a bit looks at in the same cycle."""
        found: dict[Bit, list[Bit]] = {}
        for cell in self.cells.values():
            ways = cell["port_directions"]
            inputs = [
                b
                for port, bits in cell["connections"].items()
                for b in bits
                if ways[port] == "input" and not _is_clocked(cell)
            ]
            for port, bits in cell["connections"].items():
                if ways[port] == "output":
                    found.update((bit, inputs) for bit in bits)
        return found


def _is_flip_flop(kind: str) -> bool:
    return "dff" in kind.lower()


def _is_clocked(cell: Mapping[str, Any]) -> bool:
    """What it puts out does not depend on what it sees in the same cycle."""
    reads = cell["type"].startswith("$memrd") and int(cell["parameters"]["CLK_ENABLE"], 2) == 1
    return reads or _is_flip_flop(cell["type"])


DATA = re.compile(
    r"(?:.*\.)?(?:(?:word|value|choice|queue|entry|codes)_\d+|held|stage[12]|beat_1|out)"
)
"""Registers of data, which nothing looks at before something has been written."""


def not_reset(netlist: Netlist, data: re.Pattern[str] | None = None) -> list[str]:
    """Flip-flops, but those of ``data``, that ``rst`` does not put into their initial state.

    What a flip-flop takes must come from a multiplexer that ``rst`` switches to that state.
    """
    initial, resets = netlist.initial(), _chosen_by_reset(netlist)
    free = {
        bit
        for name, net in netlist.names.items()
        if data is not None and data.fullmatch(name)
        for bit in net["bits"]
    }
    wrong = []
    for name, cell in netlist.cells.items():
        if not _is_flip_flop(cell["type"]):
            continue
        pins = cell["connections"]
        if free.issuperset(pins["Q"]):
            continue
        begins = [initial.get(bit, "x") for bit in pins["Q"]]
        taken = [resets.get(bit, "-") for bit in pins["D"]]
        if cell["type"] != "$dff" or begins != taken:
            wrong.append(f"{cell['type']} {name}: resets to {taken}, begins as {begins}")
    return wrong


def _chosen_by_reset(netlist: Netlist) -> dict[Bit, Bit]:
    """What bits become when ``rst`` is set: those of multiplexers that it switches."""
    (reset,) = netlist.ports["rst"]["bits"]
    found: dict[Bit, Bit] = {}
    for cell in netlist.cells.values():
        pins = cell["connections"]
        if cell["type"] == "$mux" and pins["S"] == [reset]:
            found.update(zip(pins["Y"], pins["B"], strict=True))
    return found


def _reached(netlist: Netlist, bits: Iterable[Bit]) -> set[Bit]:
    """Bits that some bits depend on in the same cycle."""
    drivers = netlist.drivers()
    seen: set[Bit] = set()
    left = list(bits)
    while left:
        bit = left.pop()
        if bit in seen:
            continue
        seen.add(bit)
        left.extend(drivers.get(bit, []))
    return seen


def wrong_paths(netlist: Netlist, allowed: Mapping[str, frozenset[str]]) -> list[str]:
    """Inputs that outputs depend on in the same cycle, against ``allowed`` (others: none)."""
    inputs = {
        name: set(port["bits"])
        for name, port in netlist.ports.items()
        if port["direction"] == "input" and name != "clk"
    }
    wrong = []
    for name, port in netlist.ports.items():
        if port["direction"] == "output":
            reached = _reached(netlist, port["bits"])
            through = {n for n, bits in inputs.items() if bits & reached}
            wrong += [f"{name} depends on {n}" for n in through - allowed.get(name, frozenset())]
    return sorted(wrong)


def waiting_streams(netlist: Netlist) -> list[str]:
    """Streams (ports ``NAME__valid`` and ``NAME__ready``) whose valid depends on their ready."""
    wrong = []
    for name, port in netlist.ports.items():
        ready = netlist.ports.get(name.removesuffix("__valid") + "__ready")
        if ready is None or port["direction"] != "output" or ready["direction"] != "input":
            continue
        if set(ready["bits"]) & _reached(netlist, port["bits"]):
            wrong.append(f"{name} depends on ready")
    return sorted(wrong)


ALLOWED = {
    # A waiting codebook goes before a waiting command.
    "s_axis_command_tready": frozenset({"s_axis_codebook_tvalid"}),
}

CLAIMS = (
    Claim(
        name="top.reset",
        what="One cycle of reset puts every flip-flop into its initial state, but those of data "
        "that a flag or a count says are there.",
        design=lambda: DecoderTop(lanes=16),
        method="structural",
        check=lambda text: not_reset(Netlist.of(text), DATA),
        fast=True,
    ),
    Claim(
        name="top.registered",
        what="No output depends on an input of the same cycle, but ready of commands on valid of "
        "codebooks.",
        design=lambda: DecoderTop(lanes=16),
        method="structural",
        check=lambda text: wrong_paths(Netlist.of(text), ALLOWED),
    ),
)
