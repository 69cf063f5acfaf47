"""Synthesis and timing of a top: how Yosys and ABC map it to a library, and what the tools find.

Every top is synthesised three times with Debian's Yosys: flat for speed, with buffer trees behind
its flip-flops, flat for area, and block by block. All claims are of the first netlist: OpenSTA
finds its critical path and its power. The others say where its gates are.
Memories may be taken out: their words are counted in bits, their ports are timed as registers are.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.synth.buffering import Cells, buffer_registers
from cassandra_spec.synth.timing import (
    ACTIVITY,
    CriticalPath,
    Library,
    Power,
    parse_path,
    parse_power,
    registers,
    run_tool,
    timing_script,
)

PERIOD = 4.6
"""Clock period in ns that issue and report aim at in osu018."""

_AREA = "+strash;ifraig;scorr;dc2;dch,-f;amap;topo;print_stats"
_SPEED = (
    "+strash;ifraig;scorr;dc2;dch,-f;map,-B,0.9,-D,{D};topo;buffer,-c,-p,-N,10;topo;"
    "upsize,-D,{D};dnsize,-D,{D};print_stats"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Design:
    """A top to be synthesised.

    Attributes:
        top: name of its module.
        rtlil: its RTLIL.
        blocks: patterns of the paths of modules inside it, each with the name of their block; the
            first that matches counts.
        inside: the module, of any path, that these paths start from.
        without_memories: whether memories are taken out.
    """

    top: str
    rtlil: str
    blocks: Sequence[tuple[str, str]]
    inside: str
    without_memories: bool = False

    def block_of(self, module: str) -> str:
        """The block that a module of the hierarchy belongs to."""
        path = module.partition(f".{self.inside}")[2].lstrip(".")
        return next(name for pattern, name in self.blocks if re.match(pattern, path))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Figures:
    """Figures of a top; gate equivalents are areas in two-input NANDs.

    ``speed_total``, ``flip_flops``, ``path`` and ``power`` are of one netlist, mapped for speed.
    ``blocks`` come from a synthesis for area that keeps the hierarchy, so their sum is more than
    ``total``, which is flat. ``memories`` are bits by name, of memories that are in no area.
    """

    total: float
    flip_flops: int
    blocks: Mapping[str, float]
    memories: Mapping[str, int]
    speed_total: float
    path: CriticalPath
    period: float
    power: Power

    @property
    def shortest_period(self) -> float:
        """The period in ns that the netlist keeps: arrival and set-up of its critical path."""
        return self.period - self.path.slack

    @property
    def energy(self) -> float:
        """J of a cycle at the activity of ``power``, without leakage."""
        return (self.power.internal + self.power.switching) * self.period * 1e-9


def analyse(design: Design, library: Library, out: Path, period: float = PERIOD) -> Figures:
    """Synthesise and time a top; files go to ``out``.

    Raises CassandraError if a tool is missing or fails, or if ``out`` cannot be written.
    """
    top = design.top
    scripts = {
        "il": design.rtlil,
        "flat.ys": _flat_script(design, library, period),
        "blocks.ys": _block_script(design, library),
        "tcl": timing_script(f"{top}.net.v", top, library, period),
    }
    try:
        out.mkdir(parents=True, exist_ok=True)
        for suffix, text in scripts.items():
            (out / f"{top}.{suffix}").write_text(text)
    except OSError as error:
        message = f"out must be a folder that can be written, not {out}: {error.strerror}"
        raise CassandraError(message) from error
    run_tool("yosys", ["-q", "-s", f"{top}.flat.ys"], out)
    run_tool("yosys", ["-q", "-s", f"{top}.blocks.ys"], out)
    net = out / f"{top}.net.v"
    buffers = add_buffers(net, library)
    timed = run_tool("sta", ["-exit", f"{top}.tcl"], out)
    area, speed, parts = (
        (out / f"{top}.{kind}.txt").read_text() for kind in ("area", "speed", "blocks")
    )
    return Figures(
        total=chip_areas(area)[top] / library.gate,
        flip_flops=count_cells(speed, library.flip_flops),
        blocks=block_areas(parts, library.gate, design.block_of),
        memories=memories_of(design.rtlil) if design.without_memories else {},
        speed_total=chip_areas(speed)[top] / library.gate + buffers,
        path=parse_path(timed, registers(net.read_text(), library.flip_flops)),
        period=period,
        power=parse_power(timed, f"inputs change in {ACTIVITY} of the cycles, OpenSTA propagates"),
    )


def map_for_speed(design: Design, library: Library, out: Path, period: float) -> Path:
    """The netlist that :func:`analyse` times: mapped for speed, with buffer trees.

    Raises CassandraError if a tool is missing or fails.
    """
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{design.top}.il").write_text(design.rtlil)
    script = _unmapped(design, library) + _timed(design, library, period)
    (out / f"{design.top}.speed.ys").write_text(script)
    run_tool("yosys", ["-q", "-s", f"{design.top}.speed.ys"], out)
    net = out / f"{design.top}.net.v"
    add_buffers(net, library)
    return net


# --- scripts ------------------------------------------------------------------------------------


def _flat_script(design: Design, library: Library, period: float) -> str:
    return (
        _unmapped(design, library)
        + "design -save mapped\n"
        + _mapped(library, _AREA)
        + _statistics(design, library, "area")
        + "design -load mapped\n"
        + _timed(design, library, period)
    )


def _unmapped(design: Design, library: Library) -> str:
    """A flat top in generic gates and the library's flip-flops.

    All memories become one module, which is taken out: its ports are ports of the top.
    """
    top = design.top
    flat = "synth -flatten\n"
    if design.without_memories:
        flat = (
            f"synth -flatten -top {top} -run begin:fine\n"
            f'setattr -set submod "memory" t:$mem_v2\nsubmod\nblackbox {top}_memory\n'
            f"expose -evert t:{top}_memory\nsynth -top {top} -run fine:check\n"
        )
    return _read(top) + flat + f"dfflibmap -liberty {library.path}\n"


def _block_script(design: Design, library: Library) -> str:
    """The cells of memories that are taken out stay as they are, and have no area."""
    whole = "synth\n"
    if design.without_memories:
        whole = (
            f"synth -top {design.top} -run begin:fine\n"
            "opt -fast -full\nopt -undriven -fine\ntechmap\nopt -fast\n"
        )
    return (
        _read(design.top)
        + whole
        + f"dfflibmap -liberty {library.path}\n"
        + _mapped(library, _AREA)
        + f"tee -o {design.top}.blocks.txt stat -liberty {library.path}\n"
    )


def _timed(design: Design, library: Library, period: float) -> str:
    picoseconds = round(1000 * period)
    selected = "-selected " if design.without_memories else ""
    return (
        _mapped(library, _SPEED.format(D=picoseconds), f"-D {picoseconds}")
        + "splitnets -ports\nopt_clean -purge\n"
        + _statistics(design, library, "speed")
        + f"write_verilog -noattr -noexpr -nohex {selected}{design.top}.net.v\n"
    )


def _read(top: str) -> str:
    return f"read_rtlil {top}.il\nhierarchy -top {top}\n"


def _mapped(library: Library, script: str, options: str = "") -> str:
    return (
        f"abc {options} -liberty {library.path} -script {script}\n"
        "setundef -zero\nopt_clean -purge\n"
    )


def _statistics(design: Design, library: Library, kind: str) -> str:
    of = f" -top {design.top}" if design.without_memories else ""
    return f"tee -o {design.top}.{kind}.txt stat -liberty {library.path}{of}\n"


# --- results ------------------------------------------------------------------------------------


def memories_of(rtlil: str) -> dict[str, int]:
    """Bits of the memories of a design, by the names of their modules."""
    found: dict[str, int] = {}
    for name, body in re.findall(r"^module \\(\S+)\n(.*?)^end$", rtlil, re.M | re.S):
        for width, size in re.findall(r"^  memory width (\d+) size (\d+)", body, re.M):
            found[name] = found.get(name, 0) + int(width) * int(size)
    return found


def chip_areas(text: str) -> dict[str, float]:
    """Areas by module, as ``stat -liberty`` prints them; submodules are not included.

    Raises CassandraError if none was printed: some runs die inside abc and end with status 0.
    """
    found = re.findall(r"Chip area for module '\\(.+?)': ([\d.]+)", text)
    if not found:
        raise CassandraError("yosys must print `Chip area`, not end without (it died inside abc)")
    return {name: float(area) for name, area in found}


def block_areas(text: str, gate: float, label: Callable[[str], str]) -> dict[str, float]:
    """Gate equivalents of the modules that ``stat -liberty`` printed, summed by their labels."""
    blocks: dict[str, float] = {}
    for module, area in chip_areas(text).items():
        name = label(module)
        blocks[name] = blocks.get(name, 0.0) + area / gate
    return blocks


def count_cells(text: str, names: Iterable[str]) -> int:
    """Cells of these types, as ``stat`` counts them."""
    wanted = "|".join(map(re.escape, sorted(names)))
    return sum(int(count) for count in re.findall(rf"^\s+(?:{wanted})\s+(\d+)$", text, re.M))


def add_buffers(netlist: Path, library: Library) -> float:
    """Give a netlist its buffer trees; their gate equivalents."""
    cells = Cells.of(library)
    text, number = buffer_registers(netlist.read_text(), cells)
    netlist.write_text(text)
    return number * library.areas[cells.buffer[0]] / library.gate
