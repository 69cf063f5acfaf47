"""Area and timing: ``python -m cassandra_spec.synth.report`` (``make synth``; docs/synthesis.md).

Tables of decoders, or of an encoder (``--encoder``; docs/encoder.md), whose memories are counted in
bits instead.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from amaranth.hdl import UnusedElaboratable

from cassandra_spec.golden.format import SCHEMES, Scheme
from cassandra_spec.report.commands import CommandParser, run_command
from cassandra_spec.report.documents import publish
from cassandra_spec.report.tables import markdown_table
from cassandra_spec.rtl.common.command import DecoderConfig, TargetRate
from cassandra_spec.rtl.decode.speculation import SpeculationPath
from cassandra_spec.rtl.decode.top import DecoderTop, to_rtlil
from cassandra_spec.rtl.decode.verification import VerificationPath
from cassandra_spec.rtl.encode.types import EncoderConfig
from cassandra_spec.rtl.encoder import EncoderTop
from cassandra_spec.synth.synthesis import PERIOD, Design, Figures, analyse
from cassandra_spec.synth.timing import Library, version_of

DEFAULT_CONFIGS = (
    DecoderConfig(),
    DecoderConfig(schemes=("mx", "exact")),
    DecoderConfig(schemes=("unary",)),
    DecoderConfig(lanes=8),
    DecoderConfig(lanes=32),
)
"""Decoders that are reported without flags."""

DEFAULT_ENCODER = EncoderConfig(vector=64, group=64, segment=1024)
"""The encoder that is reported without flags: 64 values in a vector, all schemes."""

GATE_28NM = 0.5
"""Assumed area of a two-input NAND at 28 nm with its share of wiring, in um2."""

TABLE_V_BYTES, TABLE_V_MM2 = 1024, 1.76
"""Table V of the paper: bytes per cycle of all decoders, and their area at 28 nm."""

_DECODER_BLOCKS = (
    (r"speculation\.reader", "speculation: superblock reader"),
    (r"speculation\.schedule", "speculation: schedule"),
    (r"speculation\.pipeline\.exponents", "zero counter, rank queue, butterflies"),
    (r"speculation\.pipeline\.codebook", "codebook"),
    (r"speculation\.pipeline\.sign_high", "block buffer of sign_high"),
    (r"speculation", "speculation: pipeline and control"),
    (r"verification\.reader", "verification: superblock reader"),
    (r"verification\.pipeline\.low", "block buffer of low"),
    (r"verification\.pipeline\.align", "concatenation and shift"),
    (r"verification\.pipeline\.residue", "residue"),
    (r"verification\.pipeline\.pruned", "pruned values"),
    (r"verification", "verification: pipeline and control"),
    (r"", "decoder: commands and errors"),
)

_ENCODER_BLOCKS = (
    (r"front\.vectors\.select", "top-k: radix search"),
    (r"front\.vectors\.choice", "top-k: choice by threshold"),
    (r"front\.vectors", "vectors: loading"),
    (r"front\.groups", "group exponents"),
    (r"front\.codebook_map", "codebook"),
    (r"front\.path", "alignment, residue, records"),
    (r"front", "front end: control"),
    (r"regions\.codes", "packer of unary codes"),
    (r"regions\.(kept|high|low|sign)", "packer of kept values"),
    (r"regions\.(stored|pruned)", "packer of pruned values"),
    (r"regions\.residue", "packer of residues"),
    (r"regions\.speculation", "schedule and writer, speculation"),
    (r"regions\.verification", "schedule and writer, verification"),
    (r"regions", "back end: memories' queues and control"),
    (r"", "top"),
)


def design_of(config: DecoderConfig | EncoderConfig) -> Design:
    """A decoder, or an encoder without its memories, as it is synthesised."""
    encoder = isinstance(config, EncoderConfig)
    top = EncoderTop(config) if isinstance(config, EncoderConfig) else DecoderTop(config)
    return Design(
        top=config.module_name,
        rtlil=to_rtlil(top),
        blocks=_ENCODER_BLOCKS if encoder else _DECODER_BLOCKS,
        inside="encoder" if encoder else "decoder",
        without_memories=encoder,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecoderReport:
    """Figures of a decoder, and what follows from its configuration."""

    config: DecoderConfig
    figures: Figures
    storage: float  # gate equivalents of the flip-flops that buffer the streams

    @property
    def readers(self) -> float:
        """Gate equivalents of both superblock readers: row storage and rotation."""
        blocks = self.figures.blocks.items()
        return sum(gates for name, gates in blocks if "superblock reader" in name)

    @property
    def without_readers(self) -> float:
        """Gate equivalents of the flat decoder less its superblock readers."""
        return self.figures.total - self.readers

    @property
    def bytes_per_cycle(self) -> int:
        """Decoded bytes in a cycle of a draft."""
        return 2 * self.config.lanes

    @property
    def label(self) -> str:
        """Lanes, schemes and options."""
        config = self.config
        schemes = "all schemes" if config.schemes == SCHEMES else " + ".join(config.schemes)
        rate = ", full rate" if config.target_rate == "full" else ""
        rate += ", coded pruned exponents" if config.coded else ""
        return f"{config.lanes} lanes, {schemes}{rate}"

    def mm2(self, gates: float) -> float:
        """Area at 28 nm of enough decoders for the bytes per cycle of Table V, in mm2."""
        return gates * GATE_28NM * TABLE_V_BYTES / self.bytes_per_cycle / 1e6


def report_decoder(
    config: DecoderConfig, library: Library, out: Path, period: float = PERIOD
) -> DecoderReport:
    """Synthesise and time one decoder; errors as of :func:`analyse`."""
    figures = analyse(design_of(config), library, out, period)
    flip_flop = min(library.areas[name] for name in library.flip_flops)
    storage = _rows_held(config) * config.lanes * flip_flop / library.gate
    return DecoderReport(config=config, figures=figures, storage=storage)


def _rows_held(config: DecoderConfig) -> int:
    """Rows that both readers have room for."""
    warnings.simplefilter("ignore", UnusedElaboratable)  # they are asked for their sizes alone
    readers = (SpeculationPath(config).reader, VerificationPath(config).reader)
    return sum(reader.depth * reader.word_rows for reader in readers)


# --- tables -------------------------------------------------------------------------------------


def _kilo(gates: float) -> str:
    return f"{gates / 1000:.1f}"


def _totals(reports: Sequence[DecoderReport]) -> str:
    head = ["kGE", "total", "readers", "rest", "rest per byte/cycle", "row storage", "flip-flops"]
    rows = [
        [
            r.label,
            _kilo(r.figures.total),
            _kilo(r.readers),
            _kilo(r.without_readers),
            f"{r.without_readers / r.bytes_per_cycle / 1000:.2f}",
            _kilo(r.storage),
            r.figures.flip_flops,
        ]
        for r in reports
    ]
    return markdown_table(head, rows)


def _breakdown(reports: Sequence[DecoderReport]) -> str:
    known = {label for r in reports for label in r.figures.blocks}
    labels = [label for _, label in _DECODER_BLOCKS if label in known]
    rows: list[list[str]] = [
        [label, *(_kilo(r.figures.blocks.get(label, 0.0)) for r in reports)] for label in labels
    ]
    rows.append(["sum of blocks", *(_kilo(sum(r.figures.blocks.values())) for r in reports)])
    rows.append(["flat", *(_kilo(r.figures.total) for r in reports)])
    return markdown_table(["kGE", *(r.label for r in reports)], rows)


def _timing(reports: Sequence[DecoderReport]) -> str:
    head = ["timing", "period ns", "arrival ns", "slack ns", "cells", "kGE", "levels", "from", "to"]
    rows = [
        [
            r.label,
            f"{r.figures.period:.1f}",
            f"{r.figures.path.arrival:.2f}",
            f"{r.figures.path.slack:.2f}",
            r.figures.path.depth,
            _kilo(r.figures.speed_total),
            r.figures.levels,
            f"`{r.figures.path.start}`",
            f"`{r.figures.path.end}`",
        ]
        for r in reports
    ]
    return markdown_table(head, rows)


def _silicon(reports: Sequence[DecoderReport]) -> str:
    head = ["28 nm", "decoders", "mm2", "mm2 without readers"]
    rows: list[list[object]] = [
        [
            r.label,
            TABLE_V_BYTES // r.bytes_per_cycle,
            f"{r.mm2(r.figures.total):.2f}",
            f"{r.mm2(r.without_readers):.2f}",
        ]
        for r in reports
    ]
    rows.append(["the paper, Table V", "-", f"{TABLE_V_MM2:.2f}", "-"])
    return markdown_table(head, rows)


def markdown(reports: Sequence[DecoderReport]) -> str:
    """All tables of decoders, as the document has them."""
    parts = [_totals(reports), _breakdown(reports), _timing(reports), _silicon(reports)]
    return "\n\n".join(parts) + "\n"


def encoder_tables(config: EncoderConfig, figures: Figures) -> str:
    """The tables of an encoder, as the document has them."""
    blocks = [[name, _kilo(gates)] for name, gates in sorted(figures.blocks.items())]
    blocks.append(["sum of blocks", _kilo(sum(figures.blocks.values()))])
    blocks.append(["flat", _kilo(figures.total)])
    memories = [
        [f"`{name.rpartition('.encoder.')[2]}`", bits] for name, bits in figures.memories.items()
    ]
    path = figures.path
    return "\n\n".join(
        [
            f"{config.lanes} lanes, {', '.join(config.schemes)}, vectors of {config.vector}, "
            f"groups to {config.group}, segments of {config.segment}:",
            markdown_table(["block", "kGE"], blocks),
            markdown_table(["memory", "bits"], memories),
            f"{figures.flip_flops:,} flip-flops. The netlist for speed has "
            f"{_kilo(figures.speed_total)} kGE; its critical path takes {path.arrival:.2f} ns of "
            f"{figures.period}, from `{path.start}` to `{path.end}`.",
        ]
    )


def as_json(report: DecoderReport, made: dict[str, str]) -> dict[str, object]:
    """All figures of a decoder, and what made them, for other programs."""
    return {
        **dataclasses.asdict(report.figures),
        "config": dataclasses.asdict(report.config),
        "storage": report.storage,
        "made": made,
        "readers": report.readers,
        "without_fifos": report.without_readers,
        "mm2": report.mm2(report.figures.total),
        "watts": report.figures.power.total,
    }


def _made(library: Library, out: Path) -> dict[str, str]:
    """Where the figures are from."""
    return {
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        "yosys": version_of("yosys", out),
        "opensta": version_of("sta", out),
        "library": library.path.stem,
    }


# --- the command --------------------------------------------------------------------------------


def _parser() -> CommandParser:
    parser = CommandParser(prog="cassandra_spec.synth.report", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/synth"), help="folder to write to")
    parser.add_argument("--liberty", type=Path, default=None, help="library (or LIBERTY=)")
    parser.add_argument("--period", type=float, default=PERIOD, help="clock period in ns")
    parser.add_argument("--document", type=Path, help="Markdown file to put the tables into")
    parser.add_argument("--encoder", action="store_true", help="the encoder, not decoders")
    parser.add_argument("--lanes", type=int, help="one configuration: 8, 16 or 32 lanes")
    parser.add_argument("--schemes", nargs="+", choices=get_args(Scheme), help="and its schemes")
    decoder = parser.add_argument_group("of decoders")
    decoder.add_argument("--target-rate", choices=get_args(TargetRate), help="and its rate")
    decoder.add_argument("--coded", action="store_true", help="and coded pruned exponents")
    encoder = parser.add_argument_group("of the encoder")
    for name in ("vector", "group", "segment"):
        default = getattr(DEFAULT_ENCODER, name)
        encoder.add_argument(f"--{name}", type=int, default=default, help=f"default: {default}")
    return parser


def _decoders(args: argparse.Namespace) -> Sequence[DecoderConfig]:
    chosen = (args.lanes, args.schemes, args.target_rate, args.coded)
    if all(value in (None, False) for value in chosen):
        return DEFAULT_CONFIGS
    rate = args.target_rate or DecoderConfig.target_rate
    lanes, schemes = _lanes_and_schemes(args)
    return [DecoderConfig(lanes=lanes, schemes=schemes, target_rate=rate, coded=args.coded)]


def _lanes_and_schemes(args: argparse.Namespace) -> tuple[int, tuple[Scheme, ...]]:
    schemes = tuple(name for name in SCHEMES if name in (args.schemes or SCHEMES))
    return args.lanes or DecoderConfig.lanes, schemes


def main(argv: Sequence[str] | None = None) -> int:
    """Report on the default configurations, or on the one that the flags describe."""
    return run_command(_parser, _run, argv)


def _run(args: argparse.Namespace) -> int:
    library = Library.chosen(args.liberty)
    if args.encoder:
        lanes, schemes = _lanes_and_schemes(args)
        sizes = {name: getattr(args, name) for name in ("vector", "group", "segment")}
        config = EncoderConfig(lanes=lanes, schemes=schemes, **sizes)
        figures = analyse(design_of(config), library, args.out, args.period)
        text = encoder_tables(config, figures)
    else:
        text = _decoder_text(args, library)
    publish(text, args.document, "synthesis")
    return 0


def _decoder_text(args: argparse.Namespace, library: Library) -> str:
    reports = []
    for config in _decoders(args):
        print(f"{config.module_name} ...", file=sys.stderr, flush=True)
        report = report_decoder(config, library, args.out, args.period)
        name = args.out / f"{config.module_name}.json"
        text = json.dumps(as_json(report, _made(library, args.out)), indent=1)
        name.write_text(text + "\n")
        reports.append(report)
    return markdown(reports)


if __name__ == "__main__":
    raise SystemExit(main())
