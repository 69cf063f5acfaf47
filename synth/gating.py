"""Clock gates: flip-flops that share an enable lose their multiplexers and get a gated clock.

A gate is made of library cells: a latch that is open while the clock is low, the inverter that it
needs for that, and ANDs of NAND and inverter, one for each leaf of the clock tree and sized for its
load. Newer libraries have a single cell for this. docs/hardware/synthesis.md explains how gates are
priced and timed.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.synth.timing import Library

MIN_GROUP = 4
"""Minimum number of flip-flops behind a gate; a smaller group keeps its multiplexers."""

MAX_LEAF = 32
"""Maximum number of flip-flops behind one AND, which is a leaf of the clock tree."""

LEAVES = 8
"""Maximum number of ANDs behind one latch."""

LATCH_PRICE = 3.0
"""Assumed gate equivalents of a latch, which has no area in osu018; a flip-flop has 4. A gate with
one full leaf has 6.3 in total, each further leaf 2.7.
"""

CLOCK = "clk"

LATCH, _INVERTER, _NAND = "LATCH", "INVX1", "NAND2X1"

_DRIVERS = {8: "INVX2", 16: "INVX4", MAX_LEAF: "INVX8"}
"""The output inverter of an AND, by the maximum number of flip-flops, at about equal delay."""

ENABLES = """\
(* techmap_celltype = "$_SDFFE_PP0P_" *)
module to_zero (input D, C, R, E, output Q);
  \\$_DFFE_PP_ _TECHMAP_REPLACE_ (.D(D & ~R), .C(C), .E(E | R), .Q(Q));
endmodule
(* techmap_celltype = "$_SDFFE_PP1P_" *)
module to_one (input D, C, R, E, output Q);
  \\$_DFFE_PP_ _TECHMAP_REPLACE_ (.D(D | R), .C(C), .E(E | R), .Q(Q));
endmodule
"""
"""Yosys ``techmap`` rules that make a synchronous reset an enable as well."""


def with_latch(library: Library, out: Path) -> Library:
    """Return the library with :data:`LATCH_PRICE` for a latch without area, as a file in ``out``.

    Raises CassandraError if it lacks a part of a gate.
    """
    missing = [
        name for name in (LATCH, _INVERTER, _NAND, *_DRIVERS.values()) if name not in library.areas
    ]
    if missing:
        raise CassandraError(f"LIBERTY must have {missing[0]} for clock gates, not {library.path}")
    text = library.path.read_text(errors="replace")
    area = f"{LATCH_PRICE * library.gate:g}"
    priced = re.sub(rf"(\bcell *\({LATCH}\) *\{{\s*area *: *)0(?=;)", rf"\g<1>{area}", text)
    (out / library.path.name).write_text(priced)
    return Library.load((out / library.path.name).resolve())


def enables_script(rules: str, name: str) -> str:
    """Return Yosys commands that leave only plain flip-flops and flip-flops with an enable.

    ``rules`` is a file with :data:`ENABLES`; all modules are written to the file ``name``.
    """
    kinds = " ".join(f"-cell {kind} 01" for kind in _KINDS)
    return (
        f"dfflegalize {kinds}\nopt_merge\ntechmap -map {rules}\nsimplemap\nopt_merge\n"
        f"opt_clean\nwrite_rtlil {name}\n"
    )


_KINDS = ("$_DFF_P_", "$_DFFE_PP_", "$_SDFF_PP?_", "$_SDFFE_PP?P_")
_ENABLED = re.compile(
    r"^  cell \$_DFFE_PP_ (?P<name>\S+)\n(?P<pins>(?:    connect .*\n)*)  end\n", re.M
)
_CONNECTION = re.compile(r"connect \\(\w) (.*)")


def gate_clocks(rtlil: str) -> str:
    """Return RTLIL in which flip-flops with an enable have a gated clock.

    Every ``$_DFFE_PP_`` whose enable drives at least :data:`MIN_GROUP` of them in its module
    becomes a ``$_DFF_P_`` behind a gate. The flip-flops of one enable share leaves in the order of
    the text, as evenly as :data:`MAX_LEAF` allows, and :data:`LEAVES` of these share a latch.
    """
    return re.sub(r"^module .*?^end$", lambda found: _gated(found[0]), rtlil, flags=re.M | re.S)


def _gated(module: str) -> str:
    groups: dict[tuple[str, str], list[str]] = {}
    for found in _ENABLED.finditer(module):
        pins = dict(_CONNECTION.findall(found["pins"]))
        groups.setdefault((pins["C"], pins["E"]), []).append(found["name"])
    clocks: dict[str, str] = {}  # of each flip-flop behind a gate
    wires, cells = [], []
    for number, (clock, enable, members, latch) in enumerate(_shared(groups)):
        net = f"\\clock_gate_{number}"
        clocks |= dict.fromkeys(members, f"{net}_y")
        ends = ("not", "y", "low", "open") if number == latch else ("not", "y")
        wires += [f"  wire {net}_{end}\n" for end in ends]
        if number == latch:
            cells += _latch(net, clock, enable)
        cells += _and(net, clock, f"\\clock_gate_{latch}_open", len(members))
    text = _ENABLED.sub(lambda found: _behind(found, clocks.get(found["name"])), module)
    head, _, rest = text.removesuffix("end").partition("\n")
    return f"{head}\n{''.join(wires)}{rest}{''.join(cells)}end"


def _shared(
    groups: Mapping[tuple[str, str], Sequence[str]],
) -> Iterator[tuple[str, str, Sequence[str], int]]:
    """Yield clock, enable and flip-flops of every leaf, and the leaf that has its latch."""
    number = 0
    for (clock, enable), members in groups.items():
        if len(members) < MIN_GROUP:
            continue
        parts = -(-len(members) // MAX_LEAF)
        ends = [len(members) * part // parts for part in range(parts + 1)]
        for part, (first, last) in enumerate(itertools.pairwise(ends)):
            yield clock, enable, members[first:last], number - part % LEAVES
            number += 1


def _latch(net: str, clock: str, enable: str) -> list[str]:
    return [
        _cell(_INVERTER, f"{net}_inverter", A=clock, Y=f"{net}_low"),
        _cell(LATCH, f"{net}_latch", CLK=f"{net}_low", D=enable, Q=f"{net}_open"),
    ]


def _and(net: str, clock: str, opens: str, flip_flops: int) -> list[str]:
    return [
        _cell(_NAND, f"{net}_nand", A=clock, B=opens, Y=f"{net}_not"),
        _cell(driver_of(flip_flops), f"{net}_driver", A=f"{net}_not", Y=f"{net}_y"),
    ]


def driver_of(flip_flops: int) -> str:
    """Return the inverter of an AND for this number of flip-flops, at most :data:`MAX_LEAF`."""
    return next(kind for most, kind in _DRIVERS.items() if flip_flops <= most)


def _cell(kind: str, name: str, **pins: str) -> str:
    connections = "".join(f"    connect \\{pin} {net}\n" for pin, net in pins.items())
    return f"  cell \\{kind} {name}\n{connections}  end\n"


def _behind(found: re.Match[str], clock: str | None) -> str:
    if clock is None:
        return found[0]
    pins = dict(_CONNECTION.findall(found["pins"])) | {"C": clock}
    kept = "".join(f"    connect \\{pin} {pins[pin]}\n" for pin in "CDQ")
    return f"  cell $_DFF_P_ {found['name']}\n{kept}  end\n"


# --- gated netlists -----------------------------------------------------------------------------


def clocks_of(instances: Mapping[str, tuple[str, Mapping[str, str]]]) -> dict[str, str]:
    """Return the nets that follow the clock, each with the net that opens its gate ("": always
    open).

    ``instances`` are cells and nets by pin, of a netlist with or without gates.
    """
    latches = [pins for cell, pins in instances.values() if cell == LATCH]
    opens = {pins["Q"] for pins in latches}
    ands = [pins for cell, pins in instances.values() if cell == _NAND and pins["B"] in opens]
    shut = {pins["Y"]: pins["B"] for pins in ands if pins["A"] == CLOCK}
    strong = _DRIVERS.values()
    drivers = [pins for cell, pins in instances.values() if cell in strong and pins["A"] in shut]
    always = dict.fromkeys([CLOCK, *(pins["CLK"] for pins in latches)], "")
    return always | shut | {pins["Y"]: shut[pins["A"]] for pins in drivers}
