"""Area and timing: ``python -m cassandra_spec.synth.report`` (``make synth``; docs/synthesis.md).

Every configuration is synthesised three times with Debian's Yosys: flat for area, block by block,
and flat for speed, with buffer trees behind its flip-flops. OpenSTA finds the critical path of the
last one.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import re
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import get_args

from amaranth.hdl import UnusedElaboratable

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.golden.format import SCHEMES, Scheme
from cassandra_spec.report.commands import CommandParser, run_command
from cassandra_spec.report.documents import fill_file
from cassandra_spec.report.tables import markdown_table
from cassandra_spec.rtl.common.command import DecoderConfig, TargetRate
from cassandra_spec.rtl.decode.speculation import SpeculationPath
from cassandra_spec.rtl.decode.top import DecoderTop, to_rtlil
from cassandra_spec.rtl.decode.verification_full import verification_path
from cassandra_spec.synth.mapping import (
    PERIOD,
    add_buffers,
    block_areas,
    chip_areas,
    count_cells,
    mapped_for_area,
    mapped_for_speed,
)
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
    version_of,
)

__all__ = [
    "DEFAULT_CONFIGS",
    "Report",
    "analyse",
    "main",
    "markdown",
    "speed_script",
]

DEFAULT_CONFIGS = (
    DecoderConfig(),
    DecoderConfig(schemes=("mx", "exact")),
    DecoderConfig(schemes=("unary",)),
    DecoderConfig(lanes=8),
    DecoderConfig(lanes=32),
)
"""What ``make synth`` reports."""

GATE_28NM = 0.5
"""Assumed area of a two-input NAND at 28 nm with its share of wiring, in um2."""

TABLE_V_BYTES, TABLE_V_MM2 = 1024, 1.76
"""Table V of the paper: bytes per cycle of all decoders, and their area at 28 nm."""

_BLOCKS = (
    (r"speculation\.reader", "speculation: superblock reader"),
    (r"speculation\.schedule", "speculation: schedule"),
    (r"speculation\.exponents", "zero counter, rank queue, butterflies"),
    (r"speculation\.codebook", "codebook"),
    (r"speculation\.sign_high", "block buffer of sign_high"),
    (r"speculation", "speculation: pipeline and control"),
    (r"verification\.reader", "verification: superblock reader"),
    (r"verification\.low", "block buffer of low"),
    (r"verification\.align", "concatenation and shift"),
    (r"verification\.residue", "residue"),
    (r"verification\.pruned", "pruned values"),
    (r"verification", "verification: pipeline and control"),
    (r"", "decoder: commands and errors"),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """Figures of one configuration; gate equivalents are areas in two-input NANDs.

    ``blocks`` come from a synthesis that keeps the hierarchy, so their sum is more than ``total``,
    which is flat. ``readers`` is the part of the blocks that buffers the streams; ``storage`` its
    flip-flops alone.
    """

    config: DecoderConfig
    total: float
    flip_flops: int
    levels: int  # logic depth of the area-optimised netlist
    blocks: Mapping[str, float]
    storage: float
    speed_total: float  # gate equivalents of the netlist that was timed
    path: CriticalPath
    period: float
    power: Power  # of the netlist that was timed
    made: Mapping[str, str]  # date, tools and library

    @property
    def readers(self) -> float:
        """Gate equivalents of both superblock readers: row storage and rotation."""
        return sum(gates for name, gates in self.blocks.items() if "superblock reader" in name)

    @property
    def without_fifos(self) -> float:
        """Gate equivalents of the flat decoder less its superblock readers."""
        return self.total - self.readers

    @property
    def bytes_per_cycle(self) -> int:
        """Decoded bytes in a cycle of a draft."""
        return 2 * self.config.lanes

    def mm2(self, gates: float) -> float:
        """Area at 28 nm of enough decoders for the bytes per cycle of Table V, in mm2."""
        return gates * GATE_28NM * TABLE_V_BYTES / self.bytes_per_cycle / 1e6


def block_of(module: str) -> str:
    """The block that a module of the hierarchy belongs to."""
    name = module.split(".decoder", maxsplit=1)[-1].lstrip(".") if ".decoder" in module else ""
    return next(label for pattern, label in _BLOCKS if re.match(pattern, name))


def _unmapped_script(library: Library, top: str) -> str:
    return (
        f"read_rtlil {top}.il\nhierarchy -top {top}\nsynth -flatten\n"
        f"dfflibmap -liberty {library.path}\n"
    )


def _timed_script(library: Library, top: str, period: float) -> str:
    return (
        mapped_for_speed(library, period) + f"splitnets -ports\nopt_clean -purge\n"
        f"tee -o {top}.speed.txt stat -liberty {library.path}\n"
        f"write_verilog -noattr -noexpr -nohex {top}.net.v\n"
    )


def speed_script(library: Library, top: str, period: float) -> str:
    """Yosys commands that map a top for speed and write it as ``TOP.net.v``."""
    return _unmapped_script(library, top) + _timed_script(library, top, period)


def _flat_script(library: Library, top: str, period: float) -> str:
    return (
        _unmapped_script(library, top)
        + "design -save mapped\n"
        + mapped_for_area(library)
        + f"tee -o {top}.area.txt stat -liberty {library.path}\ndesign -load mapped\n"
        + _timed_script(library, top, period)
    )


def _block_script(library: Library, top: str) -> str:
    return (
        f"read_rtlil {top}.il\nhierarchy -top {top}\nsynth\ndfflibmap -liberty {library.path}\n"
        + mapped_for_area(library)
        + f"tee -o {top}.blocks.txt stat -liberty {library.path}\n"
    )


def _rows_held(config: DecoderConfig) -> int:
    """Rows that both readers have room for."""
    warnings.simplefilter("ignore", UnusedElaboratable)  # they are asked for their sizes alone
    readers = (SpeculationPath(config).reader, verification_path(config).reader)
    return sum(reader.depth * reader.word_rows for reader in readers)


def analyse(config: DecoderConfig, library: Library, out: Path, period: float = PERIOD) -> Report:
    """Synthesise and time one configuration; files go to ``out``.

    Raises CassandraError if a tool is missing or fails, or if ``out`` cannot be written.
    """
    top = config.module_name
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / f"{top}.il").write_text(to_rtlil(DecoderTop(config)))
        (out / f"{top}.flat.ys").write_text(_flat_script(library, top, period))
        (out / f"{top}.blocks.ys").write_text(_block_script(library, top))
        (out / f"{top}.tcl").write_text(timing_script(f"{top}.net.v", top, library, period))
    except OSError as error:
        message = f"out must be a folder that can be written, not {out}: {error.strerror}"
        raise CassandraError(message) from error
    log = run_tool("yosys", ["-s", f"{top}.flat.ys"], out)
    run_tool("yosys", ["-q", "-s", f"{top}.blocks.ys"], out)
    buffers = add_buffers(out / f"{top}.net.v", library)
    timed = run_tool("sta", ["-exit", f"{top}.tcl"], out)
    area = (out / f"{top}.area.txt").read_text()
    cells = library.flip_flops
    names = registers((out / f"{top}.net.v").read_text(), cells)
    flip_flop = min(library.areas[name] for name in cells)
    rows = _rows_held(config) * config.lanes
    return Report(
        config=config,
        total=chip_areas(area)[top] / library.gate,
        flip_flops=count_cells(area, cells),
        levels=int(re.findall(r"lev = *(\d+)", log)[0]),
        blocks=block_areas((out / f"{top}.blocks.txt").read_text(), library.gate, block_of),
        storage=rows * flip_flop / library.gate,
        speed_total=chip_areas((out / f"{top}.speed.txt").read_text())[top] / library.gate
        + buffers,
        path=parse_path(timed, names),
        period=period,
        power=parse_power(timed, f"inputs change in {ACTIVITY} of the cycles, OpenSTA propagates"),
        made=_made(library, out),
    )


def _made(library: Library, out: Path) -> dict[str, str]:
    """Where the figures are from."""
    return {
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        "yosys": version_of("yosys", out),
        "opensta": version_of("sta", out),
        "library": library.path.stem,
    }


def _label(report: Report) -> str:
    schemes = (
        "all schemes" if report.config.schemes == SCHEMES else " + ".join(report.config.schemes)
    )
    rate = ", full rate" if report.config.target_rate == "full" else ""
    rate += ", coded pruned exponents" if report.config.coded else ""
    return f"{report.config.lanes} lanes, {schemes}{rate}"


def _kilo(gates: float) -> str:
    return f"{gates / 1000:.1f}"


def _totals(reports: Sequence[Report]) -> str:
    head = ["kGE", "total", "readers", "rest", "rest per byte/cycle", "row storage", "flip-flops"]
    rows = [
        [
            _label(r),
            _kilo(r.total),
            _kilo(r.readers),
            _kilo(r.without_fifos),
            f"{r.without_fifos / r.bytes_per_cycle / 1000:.2f}",
            _kilo(r.storage),
            r.flip_flops,
        ]
        for r in reports
    ]
    return markdown_table(head, rows)


def _breakdown(reports: Sequence[Report]) -> str:
    labels = [label for _, label in _BLOCKS if any(label in r.blocks for r in reports)]
    rows: list[list[str]] = [
        [label, *(_kilo(r.blocks.get(label, 0.0)) for r in reports)] for label in labels
    ]
    rows.append(["sum of blocks", *(_kilo(sum(r.blocks.values())) for r in reports)])
    rows.append(["flat", *(_kilo(r.total) for r in reports)])
    return markdown_table(["kGE", *map(_label, reports)], rows)


def _timing(reports: Sequence[Report]) -> str:
    head = ["timing", "period ns", "arrival ns", "slack ns", "cells", "kGE", "levels", "from", "to"]
    rows = [
        [
            _label(r),
            f"{r.period:.1f}",
            f"{r.path.arrival:.2f}",
            f"{r.path.slack:.2f}",
            r.path.depth,
            _kilo(r.speed_total),
            r.levels,
            f"`{r.path.start}`",
            f"`{r.path.end}`",
        ]
        for r in reports
    ]
    return markdown_table(head, rows)


def _silicon(reports: Sequence[Report]) -> str:
    head = ["28 nm", "decoders", "mm2", "mm2 without readers"]
    rows: list[list[object]] = [
        [
            _label(r),
            TABLE_V_BYTES // r.bytes_per_cycle,
            f"{r.mm2(r.total):.2f}",
            f"{r.mm2(r.without_fifos):.2f}",
        ]
        for r in reports
    ]
    rows.append(["the paper, Table V", "-", f"{TABLE_V_MM2:.2f}", "-"])
    return markdown_table(head, rows)


def markdown(reports: Sequence[Report]) -> str:
    """All tables, as the document has them."""
    parts = [_totals(reports), _breakdown(reports), _timing(reports), _silicon(reports)]
    return "\n\n".join(parts) + "\n"


def as_json(report: Report) -> dict[str, object]:
    """All figures of a report, for other programs."""
    figures = dataclasses.asdict(report)
    return {
        **figures,
        "readers": report.readers,
        "without_fifos": report.without_fifos,
        "mm2": report.mm2(report.total),
        "watts": report.power.total,
    }


def _parser() -> CommandParser:
    parser = CommandParser(prog="cassandra_spec.synth.report", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/synth"), help="folder to write to")
    parser.add_argument("--liberty", type=Path, default=None, help="library (or LIBERTY=)")
    parser.add_argument("--period", type=float, default=PERIOD, help="clock period in ns")
    parser.add_argument("--document", type=Path, help="Markdown file to put the tables into")
    parser.add_argument("--lanes", type=int, help="one configuration: 8, 16 or 32 lanes")
    parser.add_argument("--schemes", nargs="+", choices=get_args(Scheme), help="and its schemes")
    parser.add_argument("--target-rate", choices=get_args(TargetRate), help="and its rate")
    parser.add_argument("--coded", action="store_true", help="and coded pruned exponents")
    return parser


def _configs(args: argparse.Namespace) -> Sequence[DecoderConfig]:
    chosen = (args.lanes, args.schemes, args.target_rate, args.coded)
    if all(value in (None, False) for value in chosen):
        return DEFAULT_CONFIGS
    schemes = tuple(name for name in SCHEMES if name in (args.schemes or SCHEMES))
    lanes, rate = args.lanes or DecoderConfig.lanes, args.target_rate or DecoderConfig.target_rate
    return [DecoderConfig(lanes=lanes, schemes=schemes, target_rate=rate, coded=args.coded)]


def main(argv: Sequence[str] | None = None) -> int:
    """Report on the default configurations, or on the one that the flags describe."""
    return run_command(_parser, _run, argv)


def _run(args: argparse.Namespace) -> int:
    library = Library.chosen(args.liberty)
    reports = []
    for config in _configs(args):
        print(f"{config.module_name} ...", file=sys.stderr, flush=True)
        report = analyse(config, library, args.out, args.period)
        name = args.out / f"{config.module_name}.json"
        name.write_text(json.dumps(as_json(report), indent=1) + "\n")
        reports.append(report)
    text = markdown(reports)
    print(text)
    if args.document:
        fill_file(args.document, {"synthesis": text})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
