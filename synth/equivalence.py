"""Prove that a mapped netlist computes what the exported Verilog describes.

``python -m cassandra_spec.synth.equivalence`` (``make equivalence``; docs/hardware/synthesis.md).

Both become circuits of gates, whose registers are matched (:mod:`cassandra_spec.synth.matching`).
Outputs and register inputs are points. ABC compares them block by block (combinational
equivalence), and CaDiCaL decides the remaining ones, one by one. Matches are guesses: a wrong match
leaves points open, and never proves anything false.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, get_args

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.rtl.common import ram
from cassandra_spec.rtl.common.command import DecoderConfig
from cassandra_spec.rtl.decode.top import DecoderTop, to_verilog
from cassandra_spec.rtl.encode.types import EncoderConfig
from cassandra_spec.rtl.encoder import EncoderTop
from cassandra_spec.synth.aiger import Circuit, read_circuit, write_cone
from cassandra_spec.synth.buffers.netlist import INSTANCE, instances_of
from cassandra_spec.synth.gating import CLOCK, LATCH, clocks_of
from cassandra_spec.synth.matching import Matched, Point, differ, match
from cassandra_spec.synth.memories import TakenOut, constants, is_given, opened, written
from cassandra_spec.synth.report import (
    DEFAULT_ENCODER,
    PACES,
    add_flow,
    add_lanes,
    design_of,
    flow_of,
)
from cassandra_spec.synth.synthesis import Flow, map_for_speed, taken_out
from cassandra_spec.synth.timing import Library, run_tool
from cassandra_spec.toolkit import flags
from cassandra_spec.toolkit.documents import publish
from cassandra_spec.toolkit.running import CommandParser, run_command
from cassandra_spec.toolkit.tables import markdown_table

DEFAULT_LANES = (8, 16)
"""Decoders that are compared by default."""

DEFAULT_ENCODERS = tuple(
    dataclasses.replace(DEFAULT_ENCODER, lanes=lanes, values_per_cycle=pace)
    for lanes, pace in ((8, None), *((DEFAULT_ENCODER.lanes, pace) for pace in PACES))
)
"""Encoders that are compared by default: those of the report, and one of 8 lanes."""

SECONDS = 300
"""Time limit of ABC for a block or a group, and of CaDiCaL for a point."""

_SWEEP = "&r rtl.cone.aig; &cec -C 100000 netlist.cone.aig"
_MITER = (  # satisfiable where the two sides differ
    "miter rtl.cone.aig netlist.cone.aig; trim; fraig -C 10000; strash; write_cnf miter.cnf"
)
_SOLVED = (0, 10, 20)
"""Exit statuses of CaDiCaL: timeout, satisfiable, unsatisfiable."""

_STEPS = (None, 32, 1)
"""Points per call (None: all of a block); the next step gets the points that are not proved.

ABC runs the larger groups, CaDiCaL the last step.
"""

Verdict = Literal["proved", "different", "open"]

_READ = """\
read_verilog {source}
hierarchy -check -top {top}
chtype -set $shift t:$shiftx
proc
flatten
"""

_MAPPED = "memory_map\n"

_OPENED = """\
opt_dff -nosdff
opt_clean
memory -nomap
write_json rtl.json
"""

_GATES = """\
opt_clean
dffunmap
techmap
simplemap
dffunmap
setundef -zero
opt_clean
aigmap
write_aiger -map rtl.map rtl.aig
"""

_NETLIST = """\
read_liberty {library}
read_verilog {source}
hierarchy -check -top {top}
proc
flatten
simplemap
opt_clean
aigmap
write_aiger -map netlist.map netlist.aig
"""


# --- comparison ---------------------------------------------------------------------------------


def compare(
    matched: Matched, points: Sequence[Point], folder: Path, seconds: int = SECONDS
) -> list[Verdict]:
    """Return the verdicts of random patterns, ABC and CaDiCaL on points.

    Raises CassandraError if one of the tools is missing or fails.
    """
    verdicts: list[Verdict] = ["different" if one else "open" for one in differ(matched, points)]
    for size in _STEPS:
        rest = [place for place, verdict in enumerate(verdicts) if verdict == "open"]
        size = size or len(rest)
        for first in range(0, len(rest), max(size, 1)):
            places = rest[first : first + size]
            _write_cones(matched, [points[place] for place in places], folder)
            said = (_decided if size == 1 else _swept)(folder, seconds)
            verdicts = [said if p in places else one for p, one in enumerate(verdicts)]
    return verdicts


def _write_cones(matched: Matched, points: Sequence[Point], folder: Path) -> None:
    """Write both sides of points as circuits with the same inputs."""
    inputs = len(matched.rtl.inputs)
    count = inputs + len(matched.netlist.latches) + len(matched.rtl.latches)
    sides: tuple[tuple[str, Circuit, Sequence[int]], ...] = (
        ("rtl", matched.rtl, matched.classes),
        ("netlist", matched.netlist, range(len(matched.netlist.latches))),
    )
    for side, circuit, classes in sides:
        sources = [2 * matched.rtl.inputs.index(name) + 2 for name in circuit.inputs]
        sources += [2 * (inputs + one) + 2 if one >= 0 else 0 for one in classes]
        roots = [getattr(point, side) for point in points]
        write_cone(folder / f"{side}.cone.aig", circuit, sources, roots, count)


def _swept(folder: Path, seconds: int) -> Verdict:
    """Return whether ABC proves both cones equal."""
    # Some commands of ABC ignore their own time limit.
    log = run_tool("yosys-abc", ["-c", _SWEEP], folder, 1 + seconds)
    return "proved" if "Networks are equivalent" in log else "open"


def _decided(folder: Path, seconds: int) -> Verdict:
    """Return whether CaDiCaL proves the cones of a point equal, or finds a difference."""
    miter = folder / "miter.cnf"
    miter.unlink(missing_ok=True)
    run_tool("yosys-abc", ["-c", _MITER], folder, 1 + seconds)
    if not miter.is_file():
        return "open"
    solve = ["-q", "-n", "--unsat", "-t", f"{seconds}", miter.name]
    log = run_tool("cadical", solve, folder, statuses=_SOLVED)
    said: dict[str, Verdict] = {"s UNSATISFIABLE": "proved", "s SATISFIABLE": "different"}
    return said.get(log.strip(), "open")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Block:
    """The verdicts on the points of a block, and the time taken."""

    verdicts: Mapping[str, Verdict]  # by the point's name
    seconds: float

    def named(self, verdict: Verdict) -> list[str]:
        """Return the points with this verdict."""
        return [name for name, said in self.verdicts.items() if said == verdict]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Equivalence:
    """A netlist against its RTL, by block.

    ``matches`` and ``loose`` are those of :class:`Matched`.
    """

    blocks: Mapping[str, Block]
    matches: Mapping[str, int]
    loose: Sequence[str]

    def named(self, verdict: Verdict) -> list[str]:
        """Return the points with this verdict."""
        return [name for block in self.blocks.values() for name in block.named(verdict)]

    @property
    def proved(self) -> bool:
        """True if every point is proved."""
        return not self.named("different") and not self.named("open")


def equivalence(
    source: Path,
    netlist: Path,
    top: str,
    library: Library,
    folder: Path,
    block_of: Callable[[str], str] = lambda _: "registers",
    seconds: int = SECONDS,
    memories: TakenOut | None = None,
) -> Equivalence:
    """Compare a flat netlist with the Verilog that it was made from (both are files).

    ``block_of`` names the block of a path. ``memories`` have been removed from the netlist, so
    their pins are points. Files go to ``folder``. Raises CassandraError if a tool is missing or
    fails, if ports or memories differ, or if the netlist has a clock that is neither ``clk`` nor a
    gate's.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "netlist.v").write_text(without_gates(netlist.read_text()))
    script = _NETLIST.format(source="netlist.v", top=top, library=library.path.resolve())
    theirs = _circuit(script, "netlist", folder)
    read = _READ.format(source=source.resolve(), top=top)
    if memories is None:
        ours = _circuit(read + _MAPPED + _GATES, "rtl", folder)
    else:
        _yosys(read + _OPENED, "memories", folder)
        text, found = opened((folder / "rtl.json").read_text())
        memories.check(found)
        (folder / "opened.json").write_text(text)
        ours = _circuit("read_json opened.json\n" + _GATES, "rtl", folder)
        ours = dataclasses.replace(ours, outputs={**ours.outputs, **constants(found)})
        ours, theirs = written(ours, found), written(memories.renamed(theirs), found)
    matched = match(ours, theirs)
    points: dict[str, list[Point]] = {}
    for point in matched.points:
        block = _block(point, block_of)
        points.setdefault(block, []).append(point)
    blocks = {}
    for name, chosen in points.items():
        start = time.perf_counter()
        verdicts = compare(matched, chosen, folder, seconds)
        said = {point.name: verdict for point, verdict in zip(chosen, verdicts, strict=True)}
        blocks[name] = Block(verdicts=said, seconds=time.perf_counter() - start)
    return Equivalence(blocks=blocks, matches=matched.matches, loose=matched.loose)


def _yosys(script: str, name: str, folder: Path) -> None:
    (folder / f"{name}.ys").write_text(script)
    run_tool("yosys", ["-q", "-s", f"{name}.ys"], folder)


def _circuit(script: str, name: str, folder: Path) -> Circuit:
    """Run a Yosys script and read the circuit that it writes."""
    _yosys(script, name, folder)
    return read_circuit(folder / f"{name}.aig")


def _block(point: Point, block_of: Callable[[str], str]) -> str:
    """Return the block in which a point is counted."""
    if not point.output:
        return block_of(f".{point.name}")
    return "pins of memories" if is_given(point.name) else "outputs"


# --- clock gates --------------------------------------------------------------------------------


def without_gates(netlist: str) -> str:
    """Replace gated clocks in a netlist by multiplexers in front of the flip-flops.

    The latch of a gate is open while the clock is low, so at the edge the gate passes the value
    that the enable had before it. Raises CassandraError for any other clock than that of such a
    gate.
    """
    instances = instances_of(netlist)
    enables = {pins["Q"]: pins["D"] for cell, pins in instances.values() if cell == LATCH}
    clocks = clocks_of(instances)
    inverters = {
        pins["Y"]: pins for _, pins in instances.values() if len(pins) == 2 and "Y" in pins
    }
    for cell, pins in instances.values():
        clock = pins.get("CLK", CLOCK)
        good = inverters.get(clock, {}).get("A") == CLOCK if cell == LATCH else clock in clocks
        if not good:
            raise CassandraError(f"clocks must be clk or gated, not {clock} of a {cell}")

    def rewritten(found: re.Match[str]) -> str:
        cell, pins = instances[found["name"]]
        if cell == LATCH or pins.get("Y") in clocks:
            return ""
        enable = enables.get(clocks.get(pins.get("CLK", ""), ""))
        if enable is None:
            return found[0]
        data = f"{found['name']}_gated"
        changed = pins | {"CLK": CLOCK, "D": data}
        body = ",\n".join(f"    .{pin}({net} )" for pin, net in changed.items())
        choice = f"{enable} ? {pins['D']} : {pins['Q']}"
        wire = f"  wire {data};\n  assign {data} = {choice} ;\n"
        return f"{wire}  {cell} {found['name']} (\n{body}\n  );"

    return INSTANCE.sub(rewritten, netlist)


# --- the command --------------------------------------------------------------------------------


def table(reports: Mapping[str, Equivalence]) -> str:
    """Format the verdicts of each block of each netlist."""
    head = ["netlist", "block", "points", "proved", "different", "open", "s"]
    rows: list[list[object]] = []
    for label, one in reports.items():
        for name, block in sorted(one.blocks.items()):
            said = Counter(block.verdicts.values())
            counts = [said[kind] for kind in get_args(Verdict)]
            rows.append([label, name, len(block.verdicts), *counts, f"{block.seconds:.1f}"])
    return markdown_table(head, rows)


def _listed(label: str, one: Equivalence) -> str:
    """Describe how registers were matched, and name the points that are not proved."""
    found = ", ".join(f"{count} by {how}" for how, count in one.matches.items())
    lines = [f"{label}: registers of the RTL matched: {found}."]
    lines += [f"- {kind}: {name}" for kind in ("different", "open") for name in one.named(kind)]
    if one.loose:
        bits = Counter(name.partition("[")[0] for name in one.loose)
        free = ", ".join(f"`{name}` ({count} bits)" for name, count in bits.items())
        lines.append(f"Not in the netlist; a proved point does not depend on them: {free}.")
    return "\n".join(lines)


def _parser() -> CommandParser:
    parser = CommandParser(prog="cassandra_spec.synth.equivalence", description=__doc__)
    flags.add_folder(parser, "out", "folder for netlists and results", "build/equivalence")
    flags.add_file(parser, "document", "update the tables of this Markdown file")
    flags.add_switch(parser, "encoder", "compare encoders instead of decoders")
    add_lanes(parser, "compare one configuration, with this number of lanes (default: all)")
    text = "input values per cycle of the encoder (default: a beat)"
    flags.add_count(parser, "values-per-cycle", text)
    flags.add_file(parser, "netlist", "existing netlist of the configuration, instead of a new one")
    add_flow(parser)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Compare; return 0 if everything is proved, 1 if not, 2 if the comparison cannot run."""
    return run_command(_parser, _run, argv)


def _run(args: argparse.Namespace) -> int:
    library, flow = Library.chosen(args.liberty), flow_of(args)
    if args.netlist and args.lanes is None:
        raise CassandraError("--lanes must be given with --netlist, not left out")
    reports = {}
    for config in _configs(args):
        label = _label(config) + ", gated" * flow.gated
        print(f"{label} ...", file=sys.stderr, flush=True)
        reports[label] = _compared(config, library, args, flow)
    listed = "\n\n".join(_listed(label, one) for label, one in reports.items())
    name = "equivalence" + " encoder" * args.encoder + " gated" * flow.gated
    publish(f"{table(reports)}\n\n{listed}", args.document, name)
    return int(not all(one.proved for one in reports.values()))


def _configs(args: argparse.Namespace) -> Sequence[DecoderConfig | EncoderConfig]:
    """Return the configurations that the flags describe."""
    if not args.encoder:
        return [DecoderConfig(lanes=n) for n in ([args.lanes] if args.lanes else DEFAULT_LANES)]
    if args.lanes is None and args.values_per_cycle is None:
        return DEFAULT_ENCODERS
    lanes = args.lanes or DEFAULT_ENCODER.lanes
    chosen = {"lanes": lanes, "values_per_cycle": args.values_per_cycle}
    return [dataclasses.replace(DEFAULT_ENCODER, **chosen)]


def _label(config: DecoderConfig | EncoderConfig) -> str:
    lanes = f"{config.lanes} lanes"
    if isinstance(config, DecoderConfig):
        return lanes
    return f"encoder, {lanes}, {config.pace} values in a cycle"


def _compared(
    config: DecoderConfig | EncoderConfig, library: Library, args: argparse.Namespace, flow: Flow
) -> Equivalence:
    """Convert a top, map it (or take its netlist) and compare both.

    The Verilog is the exported one before its names become plain, so that registers match by name.
    """
    design, folder = design_of(config), args.out / config.module_name
    top = EncoderTop(config) if isinstance(config, EncoderConfig) else DecoderTop(config)
    text, source = to_verilog(top, wrapped=True), folder / "rtl.v"
    folder.mkdir(parents=True, exist_ok=True)
    source.write_text(text + ram.modules(ram.shapes_in(text)))
    netlist = args.netlist or map_for_speed(design, library, folder, flow)
    memories = taken_out(design, folder) if design.without_memories else None
    return equivalence(
        source, netlist, design.top, library, folder, design.block_of, memories=memories
    )


if __name__ == "__main__":
    raise SystemExit(main())
