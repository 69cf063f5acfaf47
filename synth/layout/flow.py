"""Placement by graywolf and routing by qrouter, with the scripts of Debian's qflow."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.report.programs import run_program
from cassandra_spec.synth.layout.names import SUPPLIES, TOP, Placeable, blif
from cassandra_spec.synth.layout.routed import FILLER

DEFAULT_TECHNOLOGY = Path("/usr/share/qflow/tech/osu018")
"""Where Debian's qflow-tech-osu018 puts LEF, parameters of graywolf, and Magic's technology."""

DEFAULT_SCRIPTS = Path("/usr/lib/qflow/scripts")
"""Where Debian's qflow puts its scripts."""

STRIPES = ("-stripe", "2.0", "50.0", "PG")
"""Supplies on the top layer: 2 um wide every 50 um, for supply and ground in turn."""

_PACKAGES = {
    "graywolf": "graywolf",
    "qrouter": "qrouter",
    "magic": "magic",
    "netgen-lvs": "netgen-lvs",
    "tclsh": "tcl",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Technology:
    """Files of a technology as qflow has them, and qflow's scripts."""

    folder: Path
    scripts: Path

    @classmethod
    def chosen(cls, folder: Path | None, scripts: Path | None) -> Technology:
        """The folders given, else those of QFLOW_TECHNOLOGY and QFLOW_SCRIPTS, else Debian's.

        Raises CassandraError if one lacks what is needed.
        """
        found = cls(
            folder=folder or Path(os.environ.get("QFLOW_TECHNOLOGY") or DEFAULT_TECHNOLOGY),
            scripts=scripts or Path(os.environ.get("QFLOW_SCRIPTS") or DEFAULT_SCRIPTS),
        )
        for path, package in (
            (found.lef, "qflow-tech-osu018"),
            (found.parameters, "qflow-tech-osu018"),
            (found.start, "qflow-tech-osu018"),
            (found.compare, "qflow-tech-osu018"),
            (found.scripts / "blif2cel.tcl", "qflow"),
        ):
            if not path.is_file():
                raise CassandraError(f"{path} must be a file (Debian: apt install {package})")
        return found

    @property
    def lef(self) -> Path:
        """Sizes, pins and metal of the cells, and the rules of the router."""
        return self.folder / f"{self.folder.name}_stdcells.lef"

    @property
    def parameters(self) -> Path:
        """Parameters of graywolf."""
        return self.folder / f"{self.folder.name}.par"

    @property
    def start(self) -> Path:
        """Magic's start-up file."""
        return self.folder / f"{self.folder.name}.magicrc"

    @property
    def compare(self) -> Path:
        """Settings of netgen."""
        return self.folder / f"{self.folder.name}_setup.tcl"


def program(tool: str) -> str:
    """Path of a program.

    Raises CassandraError, with the Debian package, if it is missing.
    """
    found = shutil.which(tool)
    if found is None:
        raise CassandraError(
            f"{tool} must be on PATH, not absent (Debian: apt install {_PACKAGES[tool]})"
        )
    return found


def run_step(folder: Path, log: str, tool: str, *arguments: object) -> str:
    """Run a program in ``folder``; what it prints goes to ``LOG.log`` there, too.

    A line on stderr says how long it has run. Raises CassandraError if it is missing or fails.
    """
    command = [program(tool), *arguments]
    path = folder / f"{log}.log"
    return run_program(command, folder, error=CassandraError, log=path, title=log)


def _script(folder: Path, technology: Technology, name: str, *arguments: object) -> None:
    run_step(folder, name, "tclsh", technology.scripts / f"{name}.tcl", *arguments)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Effort:
    """How cells are placed.

    Attributes:
        density: share of the rows that cells of the netlist take; the rest is fill.
        fast: graywolf tries this many times fewer moves.
    """

    density: float = 0.7
    fast: int = 1

    def __post_init__(self) -> None:
        if not 0 < self.density < 1:
            raise CassandraError(f"density must be between 0 and 1, not {self.density}")
        if self.fast < 1:
            raise CassandraError(f"fast must be at least 1, not {self.fast}")


def place(netlist: Placeable, technology: Technology, folder: Path, effort: Effort) -> Path:
    """Place the cells in rows, fill the rows and put supplies and ports around them; a DEF file.

    Raises CassandraError if a tool is missing or fails.
    """
    lef = technology.lef.resolve()
    (folder / f"{TOP}.blif").write_text(blif(netlist))
    _script(
        folder, technology, "blif2cel", "--blif", f"{TOP}.blif", "--lef", lef, "--cel", f"{TOP}.cel"
    )
    _script(folder, technology, "decongest", TOP, lef, FILLER, effort.density, "--units=100")
    _take(folder, "acel", "cel")
    parameters = f"{technology.parameters.read_text()}\nTWSC*fast : {effort.fast}\n"
    (folder / f"{TOP}.par").write_text(parameters)
    (folder / f"{TOP}.cfg").write_text(f"read_lef {lef}\n")
    run_step(folder, "info", "qrouter", "-nog", "-i", f"{TOP}.info", "-c", f"{TOP}.cfg")
    run_step(folder, "graywolf", "graywolf", "-n", TOP)
    for stale in ("obs", "obsx"):
        (folder / f"{TOP}.{stale}").unlink(missing_ok=True)
    _script(folder, technology, "place2def", TOP, FILLER)
    _script(folder, technology, "addspacers", *STRIPES, TOP, lef, FILLER)
    _take(folder, "obsx", "obs")
    (folder / f"{TOP}_filled.def").replace(folder / f"{TOP}.def")
    _script(folder, technology, "arrangepins", TOP)
    return (folder / f"{TOP}_mod.def").replace(folder / f"{TOP}.def")


def _take(folder: Path, new: str, old: str) -> None:
    """A script's new version of a file takes its place."""
    path = folder / f"{TOP}.{new}"
    if path.is_file():
        path.replace(folder / f"{TOP}.{old}")


def route(technology: Technology, folder: Path) -> tuple[Path, Path, int]:
    """Route what :func:`place` has placed: DEF file, file of delays, nets that failed.

    Raises CassandraError if qrouter is missing or writes no layout.
    """
    obstructions = folder / f"{TOP}.obs"
    (folder / f"{TOP}.cfg").write_text(
        f"verbose 1\nread_lef {technology.lef.resolve()}\ncatch {{layers 6}}\nvia stack 1\n"
        f"vdd {SUPPLIES[0]}\ngnd {SUPPLIES[1]}\n"
        f"{obstructions.read_text() if obstructions.is_file() else ''}\n"
        f"read_def {TOP}.def\nqrouter::standard_route {TOP}_route.def false\nquit\n"
    )
    printed = run_step(folder, "qrouter", "qrouter", "-nog", "-s", f"{TOP}.cfg")
    routed, delays = folder / f"{TOP}_route.def", folder / f"{TOP}_route.rc"
    if not routed.is_file() or not delays.is_file():
        raise CassandraError(f"qrouter must write a layout and its delays ({folder}/qrouter.log)")
    return routed, delays, failed_routes(printed.splitlines())


def failed_routes(lines: Sequence[str]) -> int:
    """Nets that the last report of qrouter counts as failed.

    Raises CassandraError if it reports none.
    """
    for line in reversed(lines):
        if "No failed routes" in line:
            return 0
        if found := re.search(r"Failed net routes: (\d+)", line):
            return int(found[1])
    raise CassandraError("qrouter must say how many routes failed, not end without")
