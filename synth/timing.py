"""Tools of the area, timing and power report: runs Yosys and OpenSTA, reads liberty files."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.synth.liberty import groups
from cassandra_spec.toolkit.programs import run_program

ACTIVITY = 0.1
"""Assumed transitions of every input per clock cycle, OpenSTA's default."""

LEAD = 0.4
"""Delay in ns from a clock gate's clock to the flip-flops behind it. In a balanced tree the gate's
own clock comes early by this delay, so an enable has this much less time.
"""

DEFAULT_LIBERTY = Path("/usr/share/qflow/tech/osu018/osu018_stdcells.lib")
"""Path of the library in Debian's qflow-tech-osu018."""

_PACKAGES = {"yosys": "yosys", "yosys-abc": "yosys", "sta": "opensta", "cadical": "cadical"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Library:
    """A liberty file: areas of its cells, its NAND2 and its flip-flops."""

    path: Path
    areas: Mapping[str, float]
    nand2: str
    flip_flops: frozenset[str]

    @property
    def gate(self) -> float:
        """Area of one gate equivalent, in the library's unit."""
        return self.areas[self.nand2]

    @classmethod
    def chosen(cls, path: Path | None) -> Library:
        """Load the library at a path, else the one that LIBERTY names, else osu018.

        Raises CassandraError as :meth:`load` does.
        """
        return cls.load(path or Path(os.environ.get("LIBERTY") or DEFAULT_LIBERTY))

    @classmethod
    def load(cls, path: Path) -> Library:
        """Read a liberty file.

        Raises CassandraError if it is missing, or has no two-input NAND or no flip-flop.
        """
        try:
            text = path.read_text(errors="replace")
        except OSError as error:
            raise CassandraError(
                f"LIBERTY must be a liberty file, not {path}: {error.strerror}"
                " (Debian: apt install qflow-tech-osu018)"
            ) from error
        areas, flip_flops = cell_areas(text)
        nands = [name for name in areas if re.search(r"nand2", name, re.I) and areas[name] > 0]
        if not nands or not flip_flops:
            raise CassandraError(
                f"LIBERTY must have a cell named NAND2 and a flip-flop, not those of {path}"
            )
        return cls(
            path=path,
            areas=areas,
            nand2=min(nands, key=lambda name: areas[name]),
            flip_flops=flip_flops,
        )


def cell_areas(text: str) -> tuple[dict[str, float], frozenset[str]]:
    """Return areas by cell, and the cells with an ``ff`` group, from the text of a liberty file."""
    areas: dict[str, float] = {}
    flip_flops = set()
    for name, body in groups(text, "cell"):
        area = re.search(r"\barea\s*:\s*([\d.]+)", body)
        areas[name] = float(area[1]) if area else 0.0
        if re.search(r"\bff\s*\(", body):
            flip_flops.add(name)
    return areas, frozenset(flip_flops)


def find_tool(tool: str) -> str:
    """Return a tool's path; raises CassandraError if it is not on PATH."""
    program = shutil.which(tool)
    if program is None:
        raise CassandraError(
            f"{tool} must be on PATH, not absent (Debian: apt install {_PACKAGES[tool]})"
        )
    return program


def run_tool(
    tool: str,
    arguments: list[str],
    folder: Path,
    limit: float | None = None,
    statuses: Collection[int] = (0,),
) -> str:
    """Run a tool in ``folder`` for at most ``limit`` seconds; return its output.

    Raises CassandraError if the tool is missing or ends with another status than those allowed.
    """
    return run_program(
        [find_tool(tool), *arguments], folder, error=CassandraError, limit=limit, statuses=statuses
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Step:
    """A cell on a path: its delay in ns and the output pin."""

    delay: float
    pin: str
    cell: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class CriticalPath:
    """The critical path: from register to register (or port), arrival and slack in ns."""

    start: str
    end: str
    steps: tuple[Step, ...]
    arrival: float
    slack: float

    @property
    def depth(self) -> int:
        """Number of cells between the two ends."""
        return sum(not pin.pin.endswith(("/CLK", "/Q", "/D")) for pin in self.steps)


ENDS = ("[concat [all_registers -edge_triggered -data_pins] [all_outputs]]",)
"""Path ends without those at clock gates."""


def constraints(
    netlist: str,
    top: str,
    library: Library,
    period: float,
    *,
    lead: float = LEAD,
) -> str:
    """Return OpenSTA commands: a netlist, one ideal clock, ports timed as registers without delay.

    An enable has ``lead`` ns less at a clock gate.
    """
    return f"""\
read_liberty {library.path}
read_verilog {netlist}
link_design {top}
create_clock -name clk -period {period} [get_ports clk]
set_input_delay 0 -clock clk [all_inputs]
set_output_delay 0 -clock clk [all_outputs]
set_clock_gating_check -setup {lead}
"""


# Sums over all cells, as ``report_power``: OpenSTA 2.0 gives the internal power of a cell that
# hardly ever switches as NaN.
_POWER = """\
set sums {0.0 0.0 0.0}
foreach cell [get_cells *] {
  set added {}
  foreach sum $sums power [lrange [sta::instance_power $cell [sta::cmd_corner]] 0 2] {
    lappend added [expr {[string match *NaN* $power] ? $sum : $sum + $power}]
  }
  set sums $added
}
puts "Total $sums"
"""


def timing_script(
    netlist: str,
    top: str,
    library: Library,
    period: float,
    ends: Sequence[str] = (),
) -> str:
    """Return OpenSTA commands: :func:`constraints`, then paths and power.

    ``ends`` are pins (Tcl): for each the worst path is reported, at a clock gate with :data:`LEAD`
    less time. Default: flip-flops and ports together.
    """
    reports = "".join(
        f"report_checks -to {end} -path_delay max -format full -digits 3\n" for end in ends or ENDS
    )
    head = constraints(netlist, top, library, period)
    return f"""\
{head}{reports}set_power_activity -input -activity {ACTIVITY} -duty 0.5
{_POWER}exit
"""


def registers(netlist: str, flip_flops: frozenset[str]) -> dict[str, str]:
    """Return the name of the register that each flip-flop of a netlist holds, by instance."""
    names = "|".join(map(re.escape, sorted(flip_flops)))
    cell = re.compile(rf"^\s*(?:{names}) (\S+) \((.*?)\);", re.M | re.S)
    found = {}
    for instance, pins in cell.findall(netlist):
        output = re.search(r"\.Q\(\s*\\?(\S+?)\s*\)", pins)
        if output:
            found[instance] = output[1]
    return found


def split_paths(text: str) -> list[str]:
    """Cut OpenSTA's output before each path; return all of it if it has no path."""
    return re.split(r"^(?=Startpoint: )", text, flags=re.M)[1:] or [text]


def parse_path(text: str, names: Mapping[str, str]) -> CriticalPath:
    """Parse the path that ``report_checks`` printed; ``names`` are from :func:`registers`.

    Raises CassandraError if the text has no path.
    """
    ends = re.findall(r"^(?:Start|End)point: (\S+)", text, re.M)
    arrival = re.search(r"([\d.]+)\s+data arrival time", text)
    slack = re.search(r"(-?[\d.]+)\s+slack", text)
    if len(ends) != 2 or arrival is None or slack is None:
        last = (text.strip().splitlines() or ["nothing"])[-1]
        raise CassandraError(f"sta must report a path, not {last!r}")
    steps = re.findall(r"^\s*([\d.]+)\s+[\d.]+ [v^] (\S+/\w+) \((\w+)\)$", text, re.M)
    return CriticalPath(
        start=names.get(ends[0], ends[0]),
        end=names.get(ends[1], ends[1]),
        steps=tuple(Step(delay=float(d), pin=pin, cell=cell) for d, pin, cell in steps),
        arrival=float(arrival[1]),
        slack=float(slack[1]),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Power:
    """Power in W at the clock period of the report, in the library's process and voltage."""

    internal: float  # of the cells, including the clock pins of flip-flops
    switching: float  # of the nets, as loads of pins without wires
    leakage: float  # while nothing switches
    activity: str  # the assumed activity

    @property
    def total(self) -> float:
        """Total power."""
        return self.internal + self.switching + self.leakage


def parse_power(text: str, activity: str) -> Power:
    """Parse the sums of internal, switching and leakage power that :func:`timing_script` prints.

    Raises CassandraError if they are missing.
    """
    found = re.search(r"^Total ([\d.e+-]+) ([\d.e+-]+) ([\d.e+-]+)$", text, re.M)
    if found is None:
        last = (text.strip().splitlines() or ["nothing"])[-1]
        raise CassandraError(f"sta must report power, not {last!r}")
    internal, switching, leakage = (float(part) for part in found.groups())
    return Power(internal=internal, switching=switching, leakage=leakage, activity=activity)


def version_of(tool: str, folder: Path) -> str:
    """Return the version line of ``yosys`` or ``sta``."""
    return run_tool(tool, ["-V" if tool == "yosys" else "-version"], folder).strip()
