"""Whether a mapped netlist computes what the exported Verilog says, for every input and state:
``python -m cassandra_spec.synth.equivalence`` (``make equivalence``; synthesis.md).

Both become circuits of gates. Registers are matched by name, else by what they take; outputs, and
what registers take, are points that ABC compares, block by block (combinational equivalence).
Matches are guesses: a wrong one leaves points open, it proves nothing that is untrue.
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

import numpy as np

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.report.commands import CommandParser, run_command
from cassandra_spec.report.documents import publish
from cassandra_spec.report.tables import markdown_table
from cassandra_spec.rtl.common.command import DecoderConfig
from cassandra_spec.rtl.encode.types import EncoderConfig
from cassandra_spec.synth.aiger import Circuit, Words, literals, read_circuit, write_cone
from cassandra_spec.synth.buffers.netlist import INSTANCE, instances_of
from cassandra_spec.synth.export import export
from cassandra_spec.synth.gating import CLOCK, LATCH, clocks_of
from cassandra_spec.synth.memories import TakenOut, constants, is_given, opened, written
from cassandra_spec.synth.report import DEFAULT_ENCODER, PACES, add_flow, design_of, flow_of
from cassandra_spec.synth.synthesis import Flow, map_for_speed, taken_out
from cassandra_spec.synth.timing import Library, run_tool

DEFAULT_LANES = (8, 16)
"""Decoders that are compared without flags."""

DEFAULT_ENCODERS = tuple(
    dataclasses.replace(DEFAULT_ENCODER, lanes=lanes, values_per_cycle=pace)
    for lanes, pace in ((8, None), *((DEFAULT_ENCODER.lanes, pace) for pace in PACES))
)
"""Encoders that are compared without flags: those of the report, and one of 8 lanes."""

WORDS = 64
"""Words of 64 random patterns that guess at matches and find differences."""

SECONDS = 300
"""After which ABC gives up on a block, or on a point of a block that is not proved as a whole."""

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


# --- what is compared ---------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, kw_only=True)
class Point:
    """An output, or what a register takes, of both circuits: literals of each."""

    name: str
    output: bool
    rtl: int
    netlist: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Matched:
    """Both circuits and how their registers belong together.

    Attributes:
        rtl, netlist: the circuits.
        classes: latch of the netlist that each one of the RTL is, -1 for the constant 0, or a
            number of its own, from the number of the netlist's latches on.
        found: registers of the RTL by how they were matched.
    """

    rtl: Circuit
    netlist: Circuit
    classes: Sequence[int]
    found: Mapping[str, int]

    @property
    def points(self) -> list[Point]:
        """What is compared."""
        outputs = [
            Point(name=name, output=True, rtl=one, netlist=self.netlist.outputs[name])
            for name, one in sorted(self.rtl.outputs.items())
        ]
        nexts = [*self.netlist.nexts, 0]
        registers = [
            Point(name=name_of(names), output=False, rtl=one, netlist=nexts[number])
            for names, one, number in zip(
                self.rtl.latches, self.rtl.nexts, self.classes, strict=True
            )
            if number < len(self.netlist.latches)
        ]
        return outputs + registers

    @property
    def loose(self) -> list[str]:
        """Registers without counterpart that some point depends on."""
        points, first = self.points, 1 + len(self.rtl.inputs)
        ours = self.rtl.cone(point.rtl for point in points)
        theirs = self.netlist.cone(point.netlist for point in points)
        own = {p for p, number in enumerate(self.classes) if number >= len(self.netlist.latches)}
        alone = set(range(len(self.netlist.latches))) - set(self.classes)
        return [
            *(f"rtl: {name_of(self.rtl.latches[p])}" for p in sorted(own) if first + p in ours),
            *(
                f"netlist: {name_of(self.netlist.latches[p])}"
                for p in sorted(alone)
                if first + p in theirs
            ),
        ]


def name_of(names: frozenset[str]) -> str:
    """The shortest name of a register that somebody gave."""
    return min(names, key=lambda name: ("$signal" in name, len(name), name), default="(no name)")


def match(rtl: Circuit, netlist: Circuit) -> Matched:
    """Match registers: by name, as constants, then by what they take.

    Raises CassandraError if the circuits have other inputs or outputs than each other.
    """
    for kind, odd in (
        ("inputs", set(rtl.inputs) ^ set(netlist.inputs)),
        ("outputs", set(rtl.outputs) ^ set(netlist.outputs)),
    ):
        if odd:
            raise CassandraError(f"{kind} of both must be the same, not {min(odd)} in one alone")
    drawn = _Drawn(rtl, netlist)
    names = _by_name(rtl, netlist)
    ours = [names.get(place) for place in range(len(rtl.latches))]
    constants = _constants(drawn, ours)
    ours = [-1 if place in constants else one for place, one in enumerate(ours)]
    taken = set(names.values())
    theirs = [place if place in taken else None for place in range(len(netlist.latches))]
    behaviour = _by_behaviour(drawn, ours, theirs)
    for place, number in behaviour.items():
        ours[place] = number
    # A register without counterpart is one of its own.
    loose = len(netlist.latches)
    classes = [loose + place if one is None else one for place, one in enumerate(ours)]
    copies = _copies(drawn, classes)
    for place, number in copies.items():
        classes[place] = number
    found = {"name": len(names), "behaviour": len(behaviour), "constant": len(constants)}
    found["copy"] = len(copies)
    return Matched(rtl=rtl, netlist=netlist, classes=classes, found=found)


def _by_name(rtl: Circuit, netlist: Circuit) -> dict[int, int]:
    """Latches of the RTL that share a name with one latch of the netlist."""
    owner = {name: place for place, names in enumerate(netlist.latches) for name in names}
    shared = [{owner[name] for name in names if name in owner} for names in rtl.latches]
    return {place: hits.pop() for place, hits in enumerate(shared) if len(hits) == 1}


class _Drawn:
    """Random values of inputs and registers, the same in both circuits."""

    def __init__(self, rtl: Circuit, netlist: Circuit) -> None:
        self.circuits = rtl, netlist
        self.rng = np.random.default_rng(1)
        self.orders = [[rtl.inputs.index(name) for name in one.inputs] for one in self.circuits]

    def nexts(self, *classes: Sequence[int]) -> list[Words]:
        """What latches take; as :meth:`values`."""
        return [
            literals(values, circuit.nexts)
            for values, circuit in zip(self.values(*classes), self.circuits, strict=False)
        ]

    def values(self, *classes: Sequence[int]) -> list[Words]:
        """Values of all variables, in both circuits (or in the RTL alone).

        Latches of a class have the same, those of the class -1 are 0.
        """
        ends = [np.asarray(one, dtype=np.int64) for one in classes]
        values = self._words(2 + max(int(one.max(initial=-1)) for one in ends))
        values[-1] = 0
        drawn = self._words(len(self.circuits[0].inputs))
        found = []
        for circuit, order, one in zip(self.circuits, self.orders, ends, strict=False):
            found.append(circuit.simulated(np.concatenate([drawn[order], values[one]])))
        return found

    def _words(self, count: int) -> Words:
        """A bit is set in a half, an eighth or seven eighths of the patterns of a word."""
        dense, thin, more = (
            self.rng.integers(0, 1 << 64, (count, WORDS), np.uint64) for _ in range(3)
        )
        kind = self.rng.integers(0, 3, (count, WORDS))
        rare = dense & thin & more
        return np.asarray(np.where(kind == 0, dense, np.where(kind == 1, rare, ~rare)))


def _constants(drawn: _Drawn, ours: Sequence[int | None]) -> set[int]:
    """Latches of the RTL without a match that stay 0 as long as all of them are."""
    initial = drawn.circuits[0].initial
    found = {p for p, one in enumerate(ours) if one is None and initial[p] == 0}
    while found:
        classes = [-1 if place in found else place for place in range(len(ours))]
        [nexts] = drawn.nexts(classes)
        left = {place for place in found if not nexts[place].any()}
        if left == found:
            break
        found = left
    return found


def _by_behaviour(
    drawn: _Drawn, ours: Sequence[int | None], theirs: Sequence[int | None]
) -> dict[int, int]:
    """Latches of the RTL without a match, each with the one of the netlist that takes the same.

    All begin as one class; latches of a class that take different values are parted, until none
    are.
    """
    first = len(theirs)
    classes = [[first if one is None else one for one in side] for side in (ours, theirs)]
    free = [[p for p, one in enumerate(side) if one is None] for side in (ours, theirs)]
    number = 0
    while True:
        nexts = drawn.nexts(*classes)
        colours: dict[tuple[int, bytes], int] = {}
        for side, places, taken in zip(classes, free, nexts, strict=True):
            for p in places:
                key = side[p], taken[p].tobytes()
                side[p] = colours.setdefault(key, first + len(colours))
        if len(colours) == number:
            break
        number = len(colours)
    return _paired(drawn, classes, free)


def _paired(
    drawn: _Drawn, classes: Sequence[list[int]], free: Sequence[Sequence[int]]
) -> dict[int, int]:
    """Pairs within classes; where a class has several, the one that fewest outputs tell apart."""
    ours, theirs = classes
    members: dict[int, list[int]] = {}
    for p in free[1]:
        members.setdefault(theirs[p], []).append(p)
    found: dict[int, int] = {}
    initial = drawn.circuits[0].initial
    first: dict[int, int | None] = {}
    fresh = max([*ours, *theirs], default=0)
    for p in free[0]:
        same = members.get(ours[p], [])
        if not same:
            continue
        if len(same) > 1:
            fresh += 1

            def odd(candidate: int, own: int = p, number: int = fresh) -> int:
                left, right = [*ours], [*theirs]
                left[own] = right[candidate] = number
                return _told_apart(drawn, left, right)

            choice = min(same, key=odd)
            same.remove(choice)
            ours[p] = theirs[choice] = fresh
        else:
            choice = same[0]  # which several may share, if they begin alike
        if initial[p] == first.setdefault(choice, initial[p]):
            found[p] = choice
    return found


def _copies(drawn: _Drawn, classes: Sequence[int]) -> dict[int, int]:
    """Latches of the RTL without a match that begin as, and take what, one with a match does."""
    rtl, netlist = drawn.circuits
    count = len(netlist.latches)
    [nexts, _] = drawn.nexts(classes, range(count))
    known = {
        (rtl.initial[p], nexts[p].tobytes()): one
        for p, one in enumerate(classes)
        if 0 <= one < count
    }
    keys = {
        p: (rtl.initial[p], nexts[p].tobytes()) for p, one in enumerate(classes) if one >= count
    }
    return {p: known[key] for p, key in keys.items() if key in known}


def _told_apart(drawn: _Drawn, ours: Sequence[int], theirs: Sequence[int]) -> int:
    """Outputs, and registers with a name in both, whose values differ."""
    rtl, netlist = drawn.circuits
    named = [p for p, one in enumerate(ours) if 0 <= one < len(theirs)]
    left = [*rtl.outputs.values(), *(rtl.nexts[p] for p in named)]
    right = [
        *(netlist.outputs[name] for name in rtl.outputs),
        *(netlist.nexts[ours[p]] for p in named),
    ]
    a, b = drawn.values(ours, theirs)
    return int((literals(a, left) != literals(b, right)).any(axis=1).sum())


# --- comparison ---------------------------------------------------------------------------------


def compare(
    matched: Matched, points: Sequence[Point], folder: Path, seconds: int = SECONDS
) -> list[Verdict]:
    """What random patterns and ABC say about points.

    Raises CassandraError if ABC is missing or fails.
    """
    verdicts: list[Verdict] = ["different" if one else "open" for one in _differ(matched, points)]
    rest = [place for place, verdict in enumerate(verdicts) if verdict == "open"]
    whole = _decided(matched, [points[place] for place in rest], folder, seconds)
    for place in rest:
        alone = whole == "proved"
        verdicts[place] = whole if alone else _decided(matched, [points[place]], folder, seconds)
    return verdicts


def _differ(matched: Matched, points: Sequence[Point]) -> list[bool]:
    """Whether a random pattern tells the sides of each point apart."""
    drawn = _Drawn(matched.rtl, matched.netlist)
    classes = [matched.classes, range(len(matched.netlist.latches))]
    ours, theirs = (
        literals(values, [getattr(point, side) for point in points])
        for values, side in zip(drawn.values(*classes), ("rtl", "netlist"), strict=True)
    )
    return [bool(one) for one in (ours != theirs).any(axis=1)]


def _decided(matched: Matched, points: Sequence[Point], folder: Path, seconds: int) -> Verdict:
    """Whether ABC proves that all points are equal; ``different`` is said of a single one."""
    if not points:
        return "proved"
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
    commands = f"&r rtl.cone.aig; &cec -C 100000 -T {seconds} netlist.cone.aig"
    log = run_tool("yosys-abc", ["-c", commands], folder)
    if "Networks are equivalent" in log:
        return "proved"
    return "different" if len(points) == 1 and "NOT EQUIVALENT" in log else "open"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Block:
    """What was said about the points of a block, and how long it took."""

    verdicts: Mapping[str, Verdict]  # by name of the point
    seconds: float

    def named(self, verdict: Verdict) -> list[str]:
        """Points of which that was said."""
        return [name for name, said in self.verdicts.items() if said == verdict]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Equivalence:
    """A netlist against its RTL, by block.

    ``found`` and ``loose`` are those of :class:`Matched`.
    """

    blocks: Mapping[str, Block]
    found: Mapping[str, int]
    loose: Sequence[str]

    def named(self, verdict: Verdict) -> list[str]:
        """Points of which that was said."""
        return [name for block in self.blocks.values() for name in block.named(verdict)]

    @property
    def proved(self) -> bool:
        """Whether every point is."""
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
    """Compare a flat netlist with the Verilog that it was made from, both files.

    ``block_of`` names the block of a path; ``memories`` have been taken out of the netlist, so
    their pins are points; files go to ``folder``. Raises CassandraError if a tool is missing or
    fails, if ports or memories differ, or if the netlist's clocks are not understood.
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
    return Equivalence(blocks=blocks, found=matched.found, loose=matched.loose)


def _yosys(script: str, name: str, folder: Path) -> None:
    (folder / f"{name}.ys").write_text(script)
    run_tool("yosys", ["-q", "-s", f"{name}.ys"], folder)


def _circuit(script: str, name: str, folder: Path) -> Circuit:
    """What a script of Yosys writes."""
    _yosys(script, name, folder)
    return read_circuit(folder / f"{name}.aig")


def _block(point: Point, block_of: Callable[[str], str]) -> str:
    """Where a point is counted."""
    if not point.output:
        return block_of(f".{point.name}")
    return "pins of memories" if is_given(point.name) else "outputs"


# --- clock gates --------------------------------------------------------------------------------


def without_gates(netlist: str) -> str:
    """The netlist with a multiplexer before each flip-flop that has a gated clock.

    The latch of a gate is open while the clock is low, so at the edge the gate passes what the
    enable was before it. Raises CassandraError for any other clock than that of such a gate.
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
    """What was proved of each block of each netlist."""
    head = ["netlist", "block", "points", "proved", "different", "open", "s"]
    rows: list[list[object]] = []
    for label, one in reports.items():
        for name, block in sorted(one.blocks.items()):
            said = Counter(block.verdicts.values())
            counts = [said[kind] for kind in get_args(Verdict)]
            rows.append([label, name, len(block.verdicts), *counts, f"{block.seconds:.1f}"])
    return markdown_table(head, rows)


def _listed(label: str, one: Equivalence) -> str:
    """How registers were matched, and what is not proved, by name."""
    found = ", ".join(f"{count} by {how}" for how, count in one.found.items())
    lines = [f"{label}: registers of the RTL matched: {found}."]
    lines += [f"- {kind}: {name}" for kind in ("different", "open") for name in one.named(kind)]
    if one.loose:
        free = ", ".join(f"`{name}`" for name in one.loose)
        lines.append(f"Not in the netlist; a proved point does not depend on them: {free}")
    return "\n".join(lines)


def _parser() -> CommandParser:
    parser = CommandParser(prog="cassandra_spec.synth.equivalence", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/equivalence"), help="folder")
    parser.add_argument("--liberty", type=Path, default=None, help="library (or LIBERTY=)")
    parser.add_argument("--document", type=Path, help="Markdown file to put the tables into")
    parser.add_argument("--encoder", action="store_true", help="encoders, not decoders")
    parser.add_argument("--lanes", type=int, help="one decoder or encoder: 8, 16 or 32 lanes")
    parser.add_argument("--values-per-cycle", type=int, help="one encoder: default: a beat")
    parser.add_argument("--netlist", type=Path, help="a netlist of it that there already is")
    add_flow(parser)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Compare; 0 if everything is proved, 1 if not, 2 if it cannot be tried."""
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
    """What the flags describe."""
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
    """Export a top, map it (or take its netlist) and compare both."""
    design, folder = design_of(config), args.out / config.module_name
    source = export(folder / "rtl", config)
    netlist = args.netlist or map_for_speed(design, library, folder, flow)
    memories = taken_out(design, folder) if design.without_memories else None
    return equivalence(
        source, netlist, design.top, library, folder, design.block_of, memories=memories
    )


if __name__ == "__main__":
    raise SystemExit(main())
