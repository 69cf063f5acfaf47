"""Synthesis and timing of a top: runs Yosys, ABC and OpenSTA, and collects area, period and power.

Every top is synthesised three times with Debian's Yosys: flat and sized, with buffer trees behind
its flip-flops; flat for area; and block by block. All claims are about the first netlist, for which
OpenSTA finds the critical path and the power. The others show where the gates are. Memories may be
removed: their words are counted in bits, and their ports are timed as registers.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.rtl.common import ram
from cassandra_spec.synth.buffers.cells import Cells
from cassandra_spec.synth.buffers.netlist import instances_of
from cassandra_spec.synth.buffers.repair import Timer, repair
from cassandra_spec.synth.buffers.trees import buffer_registers
from cassandra_spec.synth.gating import (
    ENABLES,
    LATCH,
    enables_script,
    gate_clocks,
    with_latch,
)
from cassandra_spec.synth.memories import TakenOut
from cassandra_spec.synth.timing import (
    ACTIVITY,
    ENDS,
    CriticalPath,
    Library,
    Power,
    parse_path,
    parse_power,
    registers,
    run_tool,
    split_paths,
    timing_script,
)

PERIOD = 4.6
"""Target clock period in ns of the report, in osu018."""

_AREA = "+strash;ifraig;scorr;dc2;dch,-f;amap,-m;topo;print_stats"
_SIZED = "topo;buffer,-c,-p,-N,24;topo;upsize,-D,{D};dnsize,-D,{D};print_stats"

RECIPES = {
    "speed": "+strash;ifraig;scorr;dc2;dch,-f;map,-B,0.9,-D,{D};" + _SIZED,
    "balanced": "+strash;ifraig;scorr;dc2;&get,-n;&dch,-f;&nf;&put;" + _SIZED,
    "area": "+strash;ifraig;scorr;dc2;dch,-f;amap,-m;" + _SIZED,
}
"""abc's scripts for the timed netlist: mapped for delay, for both, or for area (with multiplexer
cells), then buffered and sized.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flow:
    """Options of mapping.

    Attributes:
        period: target clock period in ns of mapping and sizing.
        gated: if True, enables become clock gates (:mod:`cassandra_spec.synth.gating`).
        recipe: one of :data:`RECIPES`.
    """

    period: float = PERIOD
    gated: bool = False
    recipe: str = "speed"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Design:
    """A top to be synthesised.

    Attributes:
        top: name of its module.
        rtlil: its RTLIL.
        blocks: path patterns of its modules, each with the name of a block; the first match counts.
        inside: the module, at any path, that these paths start from.
        without_memories: if True, memories are removed.
        macro_words: memories of fewer words are not removed; they become flip-flops.
    """

    top: str
    rtlil: str
    blocks: Sequence[tuple[str, str]]
    inside: str
    without_memories: bool = False
    macro_words: int = 0

    def block_of(self, module: str) -> str:
        """Return the block that a module of the hierarchy belongs to."""
        path = module.partition(f".{self.inside}")[2].lstrip(".")
        return next(name for pattern, name in self.blocks if re.match(pattern, path))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Figures:
    """Figures of a top; gate equivalents are areas in two-input NANDs.

    ``speed_total``, ``flip_flops``, ``gates`` (clock gates), ``path`` and ``power`` are those of
    the timed netlist. ``blocks`` come from a synthesis for area that keeps the hierarchy, so their
    sum is more than ``total``, which is flat. ``memories`` are bits by name, of memories that no
    area includes.
    """

    total: float
    flip_flops: int
    gates: int
    blocks: Mapping[str, float]
    memories: Mapping[str, int]
    speed_total: float
    path: CriticalPath
    period: float
    power: Power

    @property
    def shortest_period(self) -> float:
        """The shortest period in ns that the netlist meets: arrival and set-up of its critical
        path.
        """
        return self.period - self.path.slack

    @property
    def energy(self) -> float:
        """Energy per cycle in J at the activity of ``power``, without leakage."""
        return (self.power.internal + self.power.switching) * self.period * 1e-9


def analyse(design: Design, library: Library, out: Path, flow: Flow | None = None) -> Figures:
    """Synthesise and time a top; files go to ``out``.

    Raises CassandraError if a tool is missing or fails, or if ``out`` cannot be written.
    """
    flow, top = flow or Flow(), design.top
    library = _prepared(design, library, out, flow)
    start = _start(design, library, out, flow, "flat")
    mapped = f"design -save mapped\n{_mapped(library, _AREA)}{_statistics(design, library, 'area')}"
    _yosys(
        design, out, "flat", f"{start}{mapped}design -load mapped\n{_timed(design, library, flow)}"
    )
    start = _start(design, library, out, flow, "blocks")
    stat = f"tee -o {top}.blocks.txt stat -liberty {library.path}\n"
    _yosys(design, out, "blocks", start + _mapped(library, _AREA) + stat)
    net = out / f"{top}.net.v"
    add_buffers(net, top, library, flow)
    path, power = timed(net, top, library, flow.period)
    area, speed, parts = (
        (out / f"{top}.{kind}.txt").read_text() for kind in ("area", "speed", "blocks")
    )
    return Figures(
        total=chip_areas(area)[top] / library.gate,
        flip_flops=count_cells(speed, library.flip_flops),
        gates=count_cells(speed, [LATCH]),
        blocks=block_areas(parts, library.gate, design.block_of),
        memories=macros_of(design),
        speed_total=gates_of(net.read_text(), library),
        path=path,
        period=flow.period,
        power=power,
    )


def timed(netlist: Path, top: str, library: Library, period: float) -> tuple[CriticalPath, Power]:
    """Return critical path and power of a netlist; a path through a gate's latch starts before it.

    Wires have no delay and no load. Raises CassandraError if OpenSTA is missing or fails.
    """
    text = netlist.read_text()
    names = registers(text, library.flip_flops)
    ends = [*ENDS, "[get_pins clock_gate_*_nand/B]"] if "clock_gate_0_nand" in text else ENDS
    script = netlist.with_suffix(".tcl")

    def paths(ends: Sequence[str]) -> tuple[list[CriticalPath], str]:
        script.write_text(timing_script(netlist.name, top, library, period, ends))
        printed = run_tool("sta", ["-exit", script.name], netlist.parent)
        return [parse_path(one, names) for one in split_paths(printed)], printed

    found, printed = paths(ends)
    path = min(found, key=lambda one: one.slack)
    if path.start.endswith("_latch"):
        [enable], _ = paths([f"{path.start}/D"])
        path = dataclasses.replace(path, start=enable.start, steps=(*enable.steps, *path.steps))
    activity = f"inputs change in {ACTIVITY} of the cycles, OpenSTA propagates"
    return path, parse_power(printed, activity)


def map_for_speed(design: Design, library: Library, out: Path, flow: Flow) -> Path:
    """Return the netlist that :func:`analyse` times, with buffer trees.

    Raises CassandraError if a tool is missing or fails, or if ``out`` cannot be written.
    """
    library = _prepared(design, library, out, flow)
    start = _start(design, library, out, flow, "speed")
    _yosys(design, out, "speed", start + _timed(design, library, flow))
    net = out / f"{design.top}.net.v"
    add_buffers(net, design.top, library, flow)
    return net


def taken_out(design: Design, out: Path) -> TakenOut:
    """Return the memories that :func:`map_for_speed` removes from a design; files go to ``out``.

    Raises CassandraError if Yosys is missing or fails.
    """
    top, name = design.top, f"{design.top}.memory.json"
    _write_design(design, out)
    _yosys(design, out, "memory", f"{_with_memories_apart(design)}write_json {name}\n")
    return TakenOut.of((out / name).read_text(), f"{top}_memory")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Point:
    """A netlist on a curve of gates against period."""

    flow: Flow
    gates: float  # gate equivalents
    shortest_period: float  # ns


def sweep(design: Design, library: Library, out: Path, flows: Sequence[Flow]) -> Iterator[Point]:
    """Yield a netlist for each flow, as :func:`map_for_speed`; all or no flows have clock gates.

    Raises CassandraError if a tool is missing or fails, or if ``out`` cannot be written.
    """
    top = design.top
    library = _prepared(design, library, out, flows[0])
    start = _start(design, library, out, flows[0], "flat")
    net = out / f"{top}.net.v"
    for flow in flows:
        _yosys(design, out, "speed", start + _timed(design, library, flow))
        add_buffers(net, top, library, flow)
        path, _ = timed(net, top, library, flow.period)
        yield Point(
            flow=flow,
            gates=gates_of(net.read_text(), library),
            shortest_period=flow.period - path.slack,
        )


def _prepared(design: Design, library: Library, out: Path, flow: Flow) -> Library:
    """Make the folder with the RTLIL; return the library, with a latch price if gates need it."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        _write_design(design, out)
    except OSError as error:
        message = f"out must be a folder that can be written, not {out}: {error.strerror}"
        raise CassandraError(message) from error
    return with_latch(library, out) if flow.gated else library


# --- scripts ------------------------------------------------------------------------------------


def _yosys(design: Design, out: Path, kind: str, script: str) -> None:
    name = f"{design.top}.{kind}.ys"
    (out / name).write_text(script)
    run_tool("yosys", ["-q", "-s", name], out)


def _start(design: Design, library: Library, out: Path, flow: Flow, kind: str) -> str:
    """Return Yosys commands up to generic gates and the library's flip-flops; write files for
    gates.
    """
    generic = _hierarchy(design) if kind == "blocks" else _flat(design)
    if flow.gated:
        name = f"{design.top}.{kind}"
        (out / f"{name}.map.v").write_text(ENABLES)
        _yosys(
            design, out, f"{kind}.gates", generic + enables_script(f"{name}.map.v", f"{name}.il")
        )
        text = gate_clocks((out / f"{name}.il").read_text())
        (out / f"{name}.il").write_text(text)
        generic = f"read_rtlil {name}.il\n"
    return f"{generic}dfflibmap -liberty {library.path}\n"


def _flat(design: Design) -> str:
    """Return commands that move all memories into one removed module, with its ports at the top."""
    top = design.top
    if not design.without_memories:
        return f"{_read(design)}synth -flatten\n"
    return (
        f"{_with_memories_apart(design)}blackbox {top}_memory\n"
        f"expose -evert t:{top}_memory\nsynth -top {top} -run fine:check\n"
    )


def _with_memories_apart(design: Design) -> str:
    """Return commands that move all removed memories into one module, ``TOP_memory``."""
    top = design.top
    return (
        f"{_read(design)}synth -flatten -top {top} -run begin:fine\n"
        f"{_small_memories(design)}"
        'setattr -set submod "memory" t:$mem_v2\nsubmod\n'
    )


def _small_memories(design: Design) -> str:
    """Return commands that make flip-flops of the memories that are not removed."""
    words = design.macro_words
    return f"memory_map t:$mem_v2 r:SIZE<{words} %i\n" if words else ""


def _hierarchy(design: Design) -> str:
    """Return commands for a hierarchy in which removed memory cells stay, without area."""
    if not design.without_memories:
        return f"{_read(design)}synth\n"
    return (
        f"{_read(design)}synth -top {design.top} -run begin:fine\n"
        f"{_small_memories(design)}"
        "opt -fast -full\nopt -undriven -fine\ntechmap\nopt -fast\n"
    )


def _timed(design: Design, library: Library, flow: Flow) -> str:
    picoseconds = round(1000 * flow.period)
    selected = "-selected " if design.without_memories else ""
    return (
        _mapped(library, RECIPES[flow.recipe].format(D=picoseconds), f"-D {picoseconds}")
        + "splitnets -ports\nopt_clean -purge\n"
        + _statistics(design, library, "speed")
        + f"write_verilog -noattr -noexpr -nohex {selected}{design.top}.net.v\n"
    )


def _read(design: Design) -> str:
    """Return commands that read a design; modules of memories become parts of those above them."""
    top = design.top
    if not ram.shapes_in(design.rtlil):
        return f"read_rtlil {top}.il\nhierarchy -top {top}\n"
    return (
        f"read_rtlil {top}.il\nread_verilog {top}.memories.v\nhierarchy -top {top}\n"
        "setattr -mod -set keep_hierarchy 1 * cassandra_ram_* %d\nproc\nflatten\n"
        "setattr -mod -unset keep_hierarchy *\n"
    )


def _write_design(design: Design, out: Path) -> None:
    """Write the sources that :func:`_read` names."""
    (out / f"{design.top}.il").write_text(design.rtlil)
    if shapes := ram.shapes_in(design.rtlil):
        (out / f"{design.top}.memories.v").write_text(ram.modules(shapes))


def _mapped(library: Library, script: str, options: str = "") -> str:
    return (
        f"abc {options} -liberty {library.path} -script {script}\n"
        "setundef -zero\nopt_clean -purge\n"
    )


def _statistics(design: Design, library: Library, kind: str) -> str:
    of = f" -top {design.top}" if design.without_memories else ""
    return f"tee -o {design.top}.{kind}.txt stat -liberty {library.path}{of}\n"


# --- results ------------------------------------------------------------------------------------


def macros_of(design: Design) -> dict[str, int]:
    """Return the bits of the memories that are removed from a design, by name."""
    if not design.without_memories:
        return {}
    return {
        name: shape.bits
        for name, shape in ram.instances(design.rtlil)
        if shape.words >= design.macro_words
    }


def chip_areas(text: str) -> dict[str, float]:
    """Read areas by module from ``stat -liberty``; submodules are not included.

    Raises CassandraError if none was printed: some runs die inside abc and end with status 0.
    """
    found = re.findall(r"Chip area for module '\\(.+?)': ([\d.]+)", text)
    if not found:
        raise CassandraError("yosys must print `Chip area`, not end without (it died inside abc)")
    return {name: float(area) for name, area in found}


def block_areas(text: str, gate: float, label: Callable[[str], str]) -> dict[str, float]:
    """Sum the gate equivalents of the modules in ``stat -liberty``, by their labels."""
    blocks: dict[str, float] = {}
    for module, area in chip_areas(text).items():
        name = label(module)
        blocks[name] = blocks.get(name, 0.0) + area / gate
    return blocks


def count_cells(text: str, names: Iterable[str]) -> int:
    """Count the cells of these types in the output of ``stat``."""
    wanted = "|".join(map(re.escape, sorted(names)))
    return sum(int(count) for count in re.findall(rf"^\s+(?:{wanted})\s+(\d+)$", text, re.M))


def add_buffers(netlist: Path, top: str, library: Library, flow: Flow) -> None:
    """Give a netlist its buffer trees, then buffers and sizes for its timing.

    Raises CassandraError if OpenSTA is missing or fails.
    """
    cells = Cells.of(library)
    text, _ = buffer_registers(netlist.read_text(), cells)
    timer = Timer(top, library, flow.period, netlist.parent)
    netlist.write_text(repair(text, timer, cells))


def gates_of(netlist: str, library: Library) -> float:
    """Return the gate equivalents of a netlist."""
    return sum(library.areas[cell] for cell, _ in instances_of(netlist).values()) / library.gate
