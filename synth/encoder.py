"""Area and timing of the encoder: ``python -m cassandra_spec.synth.encoder`` (docs/encoder.md).

As :mod:`cassandra_spec.synth.report` does for the decoder, with the memories taken out: their
words are counted in bits, their ports are timed as registers are.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import get_args

from cassandra_spec.golden.format import SCHEMES, Scheme
from cassandra_spec.report.commands import CommandParser, run_command
from cassandra_spec.report.documents import fill_file
from cassandra_spec.report.tables import markdown_table
from cassandra_spec.rtl.decode.top import to_rtlil
from cassandra_spec.rtl.encode.types import EncoderConfig
from cassandra_spec.rtl.encoder import EncoderTop
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
    CriticalPath,
    Library,
    parse_path,
    registers,
    run_tool,
    timing_script,
)

__all__ = ["DEFAULT_CONFIG", "EncoderReport", "analyse", "main", "memories_of"]

DEFAULT_CONFIG = EncoderConfig(vector=64, group=64, segment=1024)
"""What is reported without flags: 64 values in a vector, all schemes."""

_BLOCKS = (
    (r"front\.vectors\.select", "top-k: radix search"),
    (r"front\.vectors\.choice", "top-k: choice by threshold"),
    (r"front\.vectors", "vectors: loading"),
    (r"front\.groups", "group exponents"),
    (r"front\.book", "codebook"),
    (r"front\.path", "alignment, residue, records"),
    (r"front", "front end: control"),
    (r"regions\.codes", "packer of unary codes"),
    (r"regions\.(kept|high|low|sign)", "packer of kept values"),
    (r"regions\.(stored|pruned)", "packer of pruned values"),
    (r"regions\.residue", "packer of residues"),
    (r"regions\.speculation", "schedule and writer, speculation"),
    (r"regions\.verification", "schedule and writer, verification"),
    (r"regions", "back end: memories' queues and control"),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EncoderReport:
    """Figures of one configuration; gate equivalents are areas in two-input NANDs."""

    config: EncoderConfig
    total: float  # flat, without memories
    flip_flops: int
    blocks: Mapping[str, float]  # from a synthesis that keeps the hierarchy
    memories: Mapping[str, int]  # bits, by name
    speed_total: float  # of the netlist that was timed
    path: CriticalPath


def memories_of(rtlil: str) -> dict[str, int]:
    """Bits of the memories of a design, by the names of their modules."""
    found: dict[str, int] = {}
    for name, body in re.findall(r"^module \\(\S+)\n(.*?)^end$", rtlil, re.M | re.S):
        for width, size in re.findall(r"^  memory width (\d+) size (\d+)", body, re.M):
            found[name] = found.get(name, 0) + int(width) * int(size)
    return found


def _flat_script(library: Library, top: str, period: float) -> str:
    """All memories become one module, which is taken out: its ports are ports of the top."""
    return (
        f"read_rtlil {top}.il\nhierarchy -top {top}\nsynth -flatten -top {top} -run begin:fine\n"
        f'setattr -set submod "memory" t:$mem_v2\nsubmod\nblackbox {top}_memory\n'
        f"expose -evert t:{top}_memory\nsynth -top {top} -run fine:check\n"
        f"dfflibmap -liberty {library.path}\ndesign -save mapped\n"
        + mapped_for_area(library)
        + f"tee -o {top}.area.txt stat -liberty {library.path} -top {top}\ndesign -load mapped\n"
        + mapped_for_speed(library, period)
        + f"splitnets -ports\nopt_clean -purge\n"
        f"tee -o {top}.speed.txt stat -liberty {library.path} -top {top}\n"
        f"write_verilog -noattr -noexpr -nohex -selected {top}.net.v\n"
    )


def _block_script(library: Library, top: str) -> str:
    """The cells of memories stay as they are, and have no area."""
    return (
        f"read_rtlil {top}.il\nhierarchy -top {top}\nsynth -top {top} -run begin:fine\n"
        "opt -fast -full\nopt -undriven -fine\ntechmap\nopt -fast\n"
        f"dfflibmap -liberty {library.path}\n"
        + mapped_for_area(library)
        + f"tee -o {top}.blocks.txt stat -liberty {library.path}\n"
    )


def _label(module: str) -> str:
    name = module.rpartition(".encoder.")[2]
    return next((label for pattern, label in _BLOCKS if re.match(pattern, name)), "top")


def analyse(
    config: EncoderConfig, library: Library, out: Path, period: float = PERIOD
) -> EncoderReport:
    """Synthesise and time one configuration; files go to ``out``.

    Raises CassandraError if a tool is missing or fails.
    """
    top = config.module_name
    out.mkdir(parents=True, exist_ok=True)
    text = to_rtlil(EncoderTop(config))
    memories = memories_of(text)
    (out / f"{top}.il").write_text(text)
    (out / f"{top}.flat.ys").write_text(_flat_script(library, top, period))
    (out / f"{top}.blocks.ys").write_text(_block_script(library, top))
    (out / f"{top}.tcl").write_text(timing_script(f"{top}.net.v", top, library, period))
    run_tool("yosys", ["-q", "-s", f"{top}.flat.ys"], out)
    run_tool("yosys", ["-q", "-s", f"{top}.blocks.ys"], out)
    net = out / f"{top}.net.v"
    buffers = add_buffers(net, library)
    timed = run_tool("sta", ["-exit", f"{top}.tcl"], out)
    area, speed = ((out / f"{top}.{kind}.txt").read_text() for kind in ("area", "speed"))
    return EncoderReport(
        config=config,
        total=chip_areas(area)[top] / library.gate,
        flip_flops=count_cells(area, library.flip_flops),
        blocks=block_areas((out / f"{top}.blocks.txt").read_text(), library.gate, _label),
        memories={name.rpartition(".encoder.")[2]: bits for name, bits in memories.items()},
        speed_total=chip_areas(speed)[top] / library.gate + buffers,
        path=parse_path(timed, registers(net.read_text(), library.flip_flops)),
    )


def markdown(report: EncoderReport) -> str:
    """The tables, as the document has them."""
    config, path = report.config, report.path
    title = (
        f"{config.lanes} lanes, {', '.join(config.schemes)}, vectors of {config.vector}, groups to "
        f"{config.group}, segments of {config.segment}:"
    )
    kilo = [[name, f"{gates / 1000:.1f}"] for name, gates in sorted(report.blocks.items())]
    kilo.append(["sum of blocks", f"{sum(report.blocks.values()) / 1000:.1f}"])
    kilo.append(["flat", f"{report.total / 1000:.1f}"])
    memories = [[f"`{name}`", bits] for name, bits in report.memories.items()]
    timing = (
        f"{report.flip_flops:,} flip-flops. The netlist for speed has "
        f"{report.speed_total / 1000:.1f} kGE; its critical path takes {path.arrival:.2f} ns of "
        f"{PERIOD}, from `{path.start}` to `{path.end}`."
    )
    return "\n\n".join(
        [
            title,
            markdown_table(["block", "kGE"], kilo),
            markdown_table(["memory", "bits"], memories),
            timing,
        ]
    )


def _parser() -> CommandParser:
    parser = CommandParser(prog="cassandra_spec.synth.encoder", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/synth"), help="folder to write to")
    parser.add_argument("--liberty", type=Path, default=None, help="library (or LIBERTY=)")
    parser.add_argument("--document", type=Path, help="Markdown file to put the tables into")
    for name in ("lanes", "vector", "group", "segment"):
        default = getattr(DEFAULT_CONFIG, name)
        parser.add_argument(f"--{name}", type=int, default=default, help=f"default: {default}")
    parser.add_argument("--schemes", nargs="+", choices=get_args(Scheme), default=SCHEMES)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Report on the configuration that the flags describe."""
    return run_command(_parser, _run, argv)


def _run(args: argparse.Namespace) -> int:
    library = Library.chosen(args.liberty)
    sizes = {name: getattr(args, name) for name in ("lanes", "vector", "group", "segment")}
    schemes = tuple(name for name in SCHEMES if name in args.schemes)
    text = markdown(analyse(EncoderConfig(schemes=schemes, **sizes), library, args.out))
    print(text)
    if args.document:
        fill_file(args.document, {"synthesis": text})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
