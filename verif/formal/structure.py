"""Claims about the structure of the exported top: resets, and dependencies of ports.

They are decided on the netlist of Yosys, cell by cell.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from cassandra_spec.rtl.decode.top import DecoderTop
from cassandra_spec.verif.formal.netlist import Bit, Netlist, not_reset
from cassandra_spec.verif.formal.prover import Claim

DATA = re.compile(
    r"(?:.*\.)?(?:(?:word|value|queue|entry|codes)_\d+|held|most|remaining|spare|stage_[12]"
    r"|waiting_beat)"
)
"""Data registers, which nothing reads before they are written."""


def _reached(netlist: Netlist, bits: Iterable[Bit]) -> set[Bit]:
    """Return the bits that some bits depend on in the same cycle."""
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
    """Return inputs that outputs depend on in the same cycle, beyond ``allowed``."""
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
    """Return streams (ports ``NAME__valid`` and ``NAME__ready``) whose valid depends on their
    ready.
    """
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
        design=lambda: DecoderTop(),
        method="structural",
        check=lambda text: not_reset(Netlist.of(text), DATA),
        fast=True,
    ),
    Claim(
        name="top.registered",
        what="No output depends on an input of the same cycle, but ready of commands on valid of "
        "codebooks.",
        design=lambda: DecoderTop(),
        method="structural",
        check=lambda text: wrong_paths(Netlist.of(text), ALLOWED),
    ),
)
