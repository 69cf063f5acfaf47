"""Design rules and connections of a routed layout: Magic and netgen.

The library comes without the polygons of its cells, so cells are their abstract views (LEF): pins
and metal. What is checked is metal and vias of wires, against each other and against the cells.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.synth.layout.flow import Technology, run_step
from cassandra_spec.synth.layout.names import TOP, Placeable, faults, pin_orders, spice

_MAGIC = """\
drc off
lef read {lef}
def read {layout}
load {top}
select top cell
expand
drc on
drc check
drc catchup
puts "violations = [drc list count total]"
foreach {{rule boxes}} [drc listall why] {{ puts "rule = [llength $boxes] $rule" }}
extract do all
extract do capacitance
extract do coupling
extract do local
extract all
ext2spice lvs
ext2spice -o extracted.spice
ext2spice cthresh 0
ext2spice -o {wires}
quit -noprompt
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Checked:
    """What the checks found.

    Attributes:
        violations: design rules that are not kept, by rule; empty: none.
        matches: whether the layout's connections are the netlist's, says netgen.
        opens: nets of the netlist that are in several pieces.
        shorts: nets that touch another one.
        wires: SPICE file of the layout with capacitances.
    """

    violations: Mapping[str, int]
    matches: bool
    opens: Sequence[str]
    shorts: Sequence[str]
    wires: Path


def check(netlist: Placeable, technology: Technology, layout: Path, folder: Path) -> Checked:
    """Check design rules, extract the layout and compare it with the netlist.

    Raises CassandraError if a tool is missing or fails.
    """
    wires = folder / "wires.spice"
    script = _MAGIC.format(
        lef=technology.lef.resolve(), layout=layout.name, top=TOP, wires=wires.name
    )
    (folder / "magic.tcl").write_text(script)
    start = technology.start.resolve()
    batch = ("-dnull", "-noconsole", "-rcfile", start, "magic.tcl")
    printed = run_step(folder, "magic", "magic", *batch)
    if not wires.is_file():
        raise CassandraError(f"magic must extract the layout ({folder}/magic.log)")
    extracted = (folder / "extracted.spice").read_text()
    (folder / "netlist.spice").write_text(spice(netlist, pin_orders(extracted)))
    opens, shorts = faults(extracted, netlist)
    return Checked(
        violations=violations(printed),
        matches=_compare(technology, folder),
        opens=opens,
        shorts=shorts,
        wires=wires,
    )


def violations(printed: str) -> dict[str, int]:
    """Design rules that Magic found broken, and how often.

    Raises CassandraError if it did not count them.
    """
    total = re.search(r"^violations = (\d+)$", printed, re.M)
    if total is None:
        raise CassandraError("magic must count violations of design rules, not end without")
    found = re.findall(r"^rule = (\d+) (.+)$", printed, re.M)
    rules = {rule: int(count) for count, rule in found}
    return rules or ({"all": int(total[1])} if int(total[1]) else {})


def _compare(technology: Technology, folder: Path) -> bool:
    """Whether netgen finds that both SPICE files are one circuit."""
    sides = [f"{name}.spice {TOP}" for name in ("extracted", "netlist")]
    settings = technology.compare.resolve()
    printed = run_step(
        folder, "netgen", "netgen-lvs", "-batch", "lvs", *sides, settings, "lvs.txt", "-blackbox"
    )
    return matching(printed)


def matching(printed: str) -> bool:
    """Whether netgen's last result is a unique match."""
    results = re.findall(r"^(?:Final result|Result): *(.+)$", printed, re.M)
    if not results:
        raise CassandraError("netgen must print a result, not end without")
    return "match uniquely" in results[-1]
