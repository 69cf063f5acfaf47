"""Place and route the SoC for a ULX3S board (ECP5 85F) with Yosys and nextpnr.

    python -m examples.soc.fpga [--out build/soc-fpga]

Exports decoder and encoder as ``examples.soc.run`` does, lets LiteX write the SoC's Verilog for the
board, maps it with Yosys, and places and routes it with nextpnr. Both tops are mapped as modules of
their own, so that their cells can be counted. Prints what the parts take of the device, and the
clock. Writes no bitstream.

Debian: yosys. LiteX and, without ``nextpnr-ecp5`` on PATH, nextpnr get environments of their own.
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.synth.fpga.nextpnr import mhz_of, nextpnr
from cassandra_spec.synth.timing import find_tool
from cassandra_spec.toolkit import flags
from cassandra_spec.toolkit.documents import publish
from cassandra_spec.toolkit.programs import python_environment, run_program
from cassandra_spec.toolkit.running import CommandParser, run_command
from cassandra_spec.toolkit.tables import markdown_table
from examples.soc.run import HERE, export_tops

RESOURCES: dict[str, tuple[str, dict[str, int]]] = {
    "LUT4": ("TRELLIS_COMB", {"LUT4": 1, "CCU2C": 2, "TRELLIS_DPR16X4": 6}),
    "FF": ("TRELLIS_FF", {"TRELLIS_FF": 1}),
    "EBR": ("DP16KD", {"DP16KD": 1}),
    "DSP": ("MULT18X18D", {"MULT18X18D": 1}),
}
"""By column: nextpnr's name, and how many a mapped cell takes (carry chains and RAM use LUTs)."""

_DEVICE = ("--85k", "--package", "CABGA381", "--speed", "6")


def main(argv: Sequence[str] | None = None) -> int:
    """Build the SoC and print its table."""
    return run_command(_parser, _run, argv)


def _parser() -> CommandParser:
    parser = CommandParser(prog="examples.soc.fpga", description=__doc__)
    flags.add_folder(parser, "out", "folder to build in", "build/soc-fpga")
    flags.add_count(parser, "segment", "values of a segment", 4096)
    flags.add_count(parser, "clock", "clock in MHz that nextpnr is asked for", 50)
    flags.add_seed(parser, "seed of nextpnr", 1)
    flags.add_file(parser, "document", "update the table of this Markdown file")
    return parser


def _run(args: argparse.Namespace) -> int:
    yosys = find_tool("yosys")
    out = args.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    placer = nextpnr(out / "nextpnr")
    print("Exporting decoder and encoder, writing the SoC ...", flush=True)
    gateware = write_verilog(out, args.segment, args.clock)
    tops = [source.stem for source in sorted((out / "rtl").glob("*/*.json"))]
    (gateware / "soc.ys").write_text(script((gateware / "board.ys").read_text(), tops))
    steps = {
        "Yosys maps the SoC (yosys.log)": [yosys, "-q", "-l", "yosys.log", "-s", "soc.ys"],
        "nextpnr places and routes it (nextpnr.log)": [placer, *_DEVICE, *_files(args.seed)],
    }
    for title, command in steps.items():
        print(f"{title} ...", flush=True)
        run_program(command, gateware, error=CassandraError, title=title)
    stat, report = ((gateware / name).read_text() for name in ("cells.json", "report.json"))
    clock = f"Clock: {mhz_of(report):.1f} MHz, asked for {args.clock} MHz with seed {args.seed}."
    made = f"{', '.join(versions(yosys, placer))}; {datetime.date.today()}"
    text = f"{table(json.loads(stat), json.loads(report), tops)}\n\n{clock} {made}\n"
    publish(text, args.document, "soc-fpga")
    return 0


def _files(seed: int) -> list[str]:
    files = ["--json", "board.json", "--lpf", "board.lpf", "--report", "report.json"]
    return [*files, "--log", "nextpnr.log", "--timing-allow-fail", "--quiet", "--seed", str(seed)]


def write_verilog(out: Path, segment: int, mhz: int) -> Path:
    """Export both tops and write the board's SoC; return the folder with its files."""
    python = python_environment(out / "env", HERE / "requirements.txt", error=CassandraError)
    export_tops(out / "rtl", segment)
    command = [python / "python", HERE / "board.py", "--tops", out / "rtl", "--out", out]
    run_program([*command, "--clock", mhz * 1_000_000], out, error=CassandraError)
    return out / "gateware"


def script(litex: str, tops: Sequence[str]) -> str:
    """Return Yosys commands that read what LiteX's script reads, map and count it."""
    reads = [line for line in litex.splitlines() if line.startswith("read_verilog")]
    names = " ".join(tops)
    steps = [
        f"setattr -mod -set keep_hierarchy 1 {names}",
        "synth_ecp5 -top board",
        "tee -q -o cells.json stat -json -top board",
        f"setattr -mod -unset keep_hierarchy {names}",
        "flatten",
        "clean",
        "write_json board.json",
    ]
    return "\n".join([*reads, *steps]) + "\n"


def table(stat: Mapping, report: Mapping, tops: Iterable[str]) -> str:
    """Format the cells of both tops and of the SoC, and what nextpnr placed."""
    cells = {name.lstrip("\\"): taken(module) for name, module in stat["modules"].items()}
    ours = [cells[top] for top in tops]
    whole = [sum(column) for column in zip(*cells.values(), strict=True)]
    both = [sum(column) for column in zip(*ours, strict=True)]
    placed = [report["utilization"][name] for name, _ in RESOURCES.values()]
    rows: list[Sequence[object]] = [
        *(("encoder" if "encoder" in top else "decoder", *cells[top]) for top in tops),
        ["SoC, with both", *whole],
        ["share of both", *map(_percent, both, whole)],
        ["placed SoC", *(one["used"] for one in placed)],
        ["device", *(one["available"] for one in placed)],
        ["share of the device", *(_percent(one["used"], one["available"]) for one in placed)],
    ]
    return markdown_table(["LFE5U-85F", *RESOURCES], rows)


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / max(whole, 1):.0f}%"


def taken(module: Mapping) -> list[int]:
    """Return what a module's mapped cells take, by :data:`RESOURCES`."""
    counts = module["num_cells_by_type"]
    return [
        sum(times * counts.get(cell, 0) for cell, times in weights.items())
        for _, weights in RESOURCES.values()
    ]


def versions(yosys: str, placer: str) -> list[str]:
    """Return names and versions of the tools."""
    texts = {
        "Yosys": run_program([yosys, "-V"], HERE, error=CassandraError),
        "nextpnr": run_program([placer, "--version"], HERE, error=CassandraError),
        "LiteX": (HERE / "requirements.txt").read_text(),
    }
    patterns = {
        "Yosys": r"Yosys (\S+)",
        "nextpnr": r"nextpnr-(\d[^\s)]*)",
        "LiteX": r"litex==(\S+)",
    }
    found = {name: re.search(patterns[name], text) for name, text in texts.items()}
    return [f"{name} {match[1] if match else 'unknown'}" for name, match in found.items()]


if __name__ == "__main__":
    sys.exit(main())
