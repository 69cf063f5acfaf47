"""How Yosys and ABC map a design to a library, and what is read from their statistics.

Shared by the reports of decoder (:mod:`cassandra_spec.synth.report`) and encoder
(:mod:`cassandra_spec.synth.encoder`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.synth.buffering import Cells, buffer_registers
from cassandra_spec.synth.timing import Library

__all__ = [
    "PERIOD",
    "add_buffers",
    "block_areas",
    "chip_areas",
    "count_cells",
    "mapped_for_area",
    "mapped_for_speed",
]

PERIOD = 4.6
"""Clock period in ns that issue and report aim at in osu018."""

_AREA = "+strash;ifraig;scorr;dc2;dch,-f;amap;topo;print_stats"
_SPEED = (
    "+strash;ifraig;scorr;dc2;dch,-f;map,-B,0.9,-D,{D};topo;buffer,-c,-p,-N,10;topo;"
    "upsize,-D,{D};dnsize,-D,{D};print_stats"
)


def mapped_for_area(library: Library) -> str:
    """Yosys commands that map the logic of the design to as little area as ABC can."""
    return _mapped(library, _AREA)


def mapped_for_speed(library: Library, period: float) -> str:
    """Likewise, to what meets a clock period in ns, with buffers and sizes of cells."""
    picoseconds = round(1000 * period)
    return _mapped(library, _SPEED.format(D=picoseconds), f"-D {picoseconds}")


def _mapped(library: Library, script: str, options: str = "") -> str:
    return (
        f"abc {options} -liberty {library.path} -script {script}\n"
        "setundef -zero\nopt_clean -purge\n"
    )


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
