"""Report area and timing (``make synth``; docs/hardware/synthesis.md).

Prints tables of decoders, of encoders (``--encoder``) or of tops with a DMA (``--dma``). Memories
of encoders and DMA are counted in bits and as macros.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.golden.format import SCHEMES, Scheme
from cassandra_spec.rtl.common.command import DecoderConfig, TargetRate
from cassandra_spec.rtl.decode.top import DecoderTop, to_rtlil
from cassandra_spec.rtl.dma.config import DmaConfig, StoreConfig
from cassandra_spec.rtl.dma.decoder_dma import CassandraDma
from cassandra_spec.rtl.dma.encoder_dma import CassandraEncoderDma
from cassandra_spec.rtl.encode.types import EncoderConfig
from cassandra_spec.rtl.encoder import EncoderTop
from cassandra_spec.synth.curve import curve_flows, curve_plot, curve_table
from cassandra_spec.synth.synthesis import (
    PERIOD,
    RECIPES,
    Design,
    Figures,
    Flow,
    analyse,
    sweep,
)
from cassandra_spec.synth.timing import Library, version_of
from cassandra_spec.toolkit import flags
from cassandra_spec.toolkit.documents import publish, require_block
from cassandra_spec.toolkit.running import CommandParser, run_command
from cassandra_spec.toolkit.tables import markdown_table

DEFAULT_CONFIGS = (
    DecoderConfig(),
    DecoderConfig(schemes=("mx", "exact")),
    DecoderConfig(schemes=("unary",)),
    DecoderConfig(lanes=8),
    DecoderConfig(lanes=32),
)
"""Decoders that are reported by default."""

DEFAULT_ENCODER = EncoderConfig(vector=64, group=64, segment=1024)
"""The encoder that is reported by default: 64 values in a vector, all schemes."""

PACES = (None, 4)
"""Values per cycle of the encoders that are reported by default; None: a beat."""

MACRO_BIT = 1.0
"""Assumed gate equivalents per bit of a macro: a two-port register file of some kbit takes 0.5 um2
per bit at 28 nm with its periphery, as much as a two-input NAND.
"""

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


DMA_BLOCKS = (
    (r"engine\.channel_\d+\.decoder\.speculation", "decoders: speculation"),
    (r"engine\.channel_\d+\.decoder", "decoders: verification and output"),
    (r"engine\.encoder\.front", "encoder: front end"),
    (r"engine\.encoder", "encoder: back end"),
    (r"state\.codebooks|engine\.loader|engine\.channel_\d+\.loader", "codebooks"),
    (r"engine\.channel", "channels of decoders"),
    (r"reads", "read master"),
    (r"store", "write master"),
    (r"engine\.merge|out|source", "order and ends of packets"),
    (r"engine\.(queue|results)", "queues of descriptors and results"),
    (r"", "registers, counters, interrupt"),
)

MACRO_WORDS = 65
"""Smallest number of words of a DMA's memory that is a macro; smaller ones are flip-flops."""


def dma_design(config: DmaConfig | StoreConfig) -> Design:
    """Return a top with a DMA, without its larger memories, as a design to synthesise."""
    top = CassandraDma(config) if isinstance(config, DmaConfig) else CassandraEncoderDma(config)
    return Design(
        top=config.module_name,
        rtlil=to_rtlil(top),
        blocks=DMA_BLOCKS,
        inside="",
        without_memories=True,
        macro_words=MACRO_WORDS,
    )


def design_of(config: DecoderConfig | EncoderConfig) -> Design:
    """Return a decoder, or an encoder without its memories, as a design to synthesise."""
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
    """Figures of a decoder, its name, and the flow that mapped it."""

    config: DecoderConfig
    figures: Figures
    flow: Flow

    @property
    def label(self) -> str:
        """Lanes, schemes and options."""
        config = self.config
        schemes = "all schemes" if config.schemes == SCHEMES else " + ".join(config.schemes)
        rate = ", full rate" if config.target_rate == "full" else ""
        rate += ", coded pruned exponents" if config.coded else ""
        if config.truncated != DecoderConfig.truncated:
            rate += ", t of {} to {}".format(*config.truncated)
        rate += ", gated" if self.flow.gated else ""
        rate += f", recipe {self.flow.recipe}" if self.flow.recipe != Flow.recipe else ""
        return f"{config.lanes} lanes, {schemes}{rate}"


def report_decoder(config: DecoderConfig, library: Library, out: Path, flow: Flow) -> DecoderReport:
    """Synthesise and time one decoder; errors as from :func:`analyse`."""
    figures = analyse(design_of(config), library, out, flow)
    return DecoderReport(config=config, figures=figures, flow=flow)


# --- tables -------------------------------------------------------------------------------------


def _kilo(gates: float) -> str:
    return f"{gates / 1000:.1f}"


def _netlists(reports: Sequence[DecoderReport]) -> str:
    head = [
        "netlist",
        "kGE",
        "flip-flops",
        "clock gates",
        "nJ in a cycle",
        "period ns",
        "arrival ns",
        "cells",
    ]
    rows = [
        [
            r.label,
            _kilo(r.figures.speed_total),
            r.figures.flip_flops,
            r.figures.gates,
            f"{r.figures.energy * 1e9:.2f}",
            f"{r.figures.shortest_period:.2f}",
            f"{r.figures.path.arrival:.2f}",
            r.figures.path.depth,
            f"`{r.figures.path.start}`",
            f"`{r.figures.path.end}`",
        ]
        for r in reports
    ]
    return markdown_table([*head, "from", "to"], rows)


def _breakdown(labels: Sequence[str], names: Sequence[str], columns: Sequence[Figures]) -> str:
    """Format the areas of blocks and the rest of the netlist, so that every column adds up."""
    rows: list[list[str]] = [
        [label, *(_kilo(figures.blocks.get(label, 0.0)) for figures in columns)] for label in labels
    ]
    for label, part in (
        ("shared or unused, when flat", lambda one: one.total - sum(one.blocks.values())),
        ("mapping for delay, buffers", lambda one: one.speed_total - one.total),
        ("netlist", lambda one: one.speed_total),
    ):
        rows.append([label, *(_kilo(part(figures)) for figures in columns)])
    return markdown_table(["kGE", *names], rows)


def markdown(reports: Sequence[DecoderReport]) -> str:
    """Format all tables of decoders, as the document has them."""
    columns = [report.figures for report in reports]
    known = {label for figures in columns for label in figures.blocks}
    labels = [label for _, label in _DECODER_BLOCKS if label in known]
    blocks = _breakdown(labels, [report.label for report in reports], columns)
    return f"{_netlists(reports)}\n\n{blocks}\n"


def encoder_tables(reports: Mapping[int, Figures], config: EncoderConfig) -> str:
    """Format the tables of encoders, by values per cycle, as the document has them.

    ``config`` has the fields that the encoders share.
    """
    names, columns = [f"{pace} values in a cycle" for pace in reports], list(reports.values())
    return "\n\n".join(
        [
            f"{config.lanes} lanes, {', '.join(config.schemes)}, vectors of {config.vector}, "
            f"groups to {config.group}, segments of {config.segment}:",
            _netlists_with_macros("values in a cycle", reports),
            _breakdown(sorted(columns[0].blocks), names, columns),
            _memories(names, columns),
        ]
    )


def dma_tables(reports: Mapping[str, Figures]) -> str:
    """Format the tables of tops with a DMA, by label, as the document has them."""
    names, columns = list(reports), list(reports.values())
    known = {label for figures in columns for label in figures.blocks}
    labels = [label for label in dict.fromkeys(label for _, label in DMA_BLOCKS) if label in known]
    return "\n\n".join(
        [
            _netlists_with_macros("top", reports),
            _breakdown(labels, names, columns),
            _memories(names, columns),
        ]
    )


def _netlists_with_macros(of: str, reports: Mapping[Any, Figures]) -> str:
    """Format the figures of each netlist; its memories are macros of ``MACRO_BIT`` per bit."""
    head = [of, "kGE", "with macros", "flip-flops", "nJ in a cycle", "period ns"]
    rows = [
        [
            label,
            _kilo(figures.speed_total),
            _kilo(figures.speed_total + MACRO_BIT * sum(figures.memories.values())),
            f"{figures.flip_flops:,}",
            f"{figures.energy * 1e9:.2f}",
            f"{figures.shortest_period:.2f}",
            f"{figures.path.arrival:.2f}",
            f"`{figures.path.start}`",
            f"`{figures.path.end}`",
        ]
        for label, figures in reports.items()
    ]
    return markdown_table([*head, "arrival ns", "from", "to"], rows)


def _memories(names: Sequence[str], columns: Sequence[Figures]) -> str:
    """Format the bits of each memory, and of all."""
    found = [figures.memories for figures in columns]
    listed = dict.fromkeys(name for one in found for name in one)
    rows = [[f"`{name}`", *(f"{bits.get(name, 0):,}" for bits in found)] for name in listed]
    rows.append(["all", *(f"{sum(one.memories.values()):,}" for one in columns)])
    return markdown_table(["memory, bits", *names], rows)


def as_json(report: DecoderReport, made: dict[str, str]) -> dict[str, object]:
    """Return all figures of a decoder, and the tools that made them, for other programs."""
    return {
        **dataclasses.asdict(report.figures),
        "config": dataclasses.asdict(report.config),
        "flow": dataclasses.asdict(report.flow),
        "made": made,
    }


def _made(library: Library, out: Path) -> dict[str, str]:
    """Return the date, tools and library of the figures."""
    return {
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        "yosys": version_of("yosys", out),
        "opensta": version_of("sta", out),
        "library": library.path.stem,
    }


# --- the command --------------------------------------------------------------------------------

_ENCODER_FLAGS = ("--vector", "--group", "--segment", "--values-per-cycle")
_DECODER_FLAGS = ("--target-rate", "--coded", "--truncated")
_IGNORED: tuple[flags.Ignored, ...] = (
    (("--encoder", "--period", "--recipe"), lambda args: args.curve, "with --curve"),
    (_DECODER_FLAGS, lambda args: args.encoder, "with --encoder"),
    (_ENCODER_FLAGS, lambda args: not args.encoder, "without --encoder"),
    (("--encoder", "--curve", *_DECODER_FLAGS), lambda args: args.dma, "with --dma"),
)


def _parser() -> CommandParser:
    parser = CommandParser(prog="cassandra_spec.synth.report", description=__doc__)
    flags.add_folder(parser, "out", "folder for netlists and reports", "build/synth")
    add_flow(parser)
    flags.add_file(parser, "document", "update the tables of this Markdown file")
    flags.add_switch(parser, "encoder", "report encoders instead of decoders")
    flags.add_switch(
        parser, "dma", "report tops with a DMA: one decoder, an array of two, an encoder"
    )
    flags.add_switch(parser, "curve", "report area (kGE) by period, of one decoder")
    add_lanes(parser, "report one configuration, with this number of lanes (default: several)")
    text = "schemes of the configuration"
    parser.add_argument("--schemes", nargs="+", choices=get_args(Scheme), help=text)
    decoder = parser.add_argument_group("decoders")
    text = "target rate of the decoder"
    decoder.add_argument("--target-rate", choices=get_args(TargetRate), help=text)
    flags.add_switch(decoder, "coded", "decode coded pruned exponents, too")
    text, metavar = "range of the supported values of `truncated`", ("MIN", "MAX")
    decoder.add_argument("--truncated", nargs=2, type=int, metavar=metavar, help=text)
    encoder = parser.add_argument_group("encoders")
    for name in ("vector", "group", "segment"):
        default = getattr(DEFAULT_ENCODER, name)
        text = f"longest {name} in values (default {default})"
        encoder.add_argument(f"--{name}", type=int, metavar="N", default=default, help=text)
    text = "input values per cycle of one encoder (default: a beat, and 4)"
    encoder.add_argument("--values-per-cycle", type=int, metavar="N", help=text)
    return parser


def add_lanes(parser: CommandParser, text: str) -> None:
    """Add ``--lanes`` of one decoder or encoder."""
    parser.add_argument("--lanes", type=int, choices=(8, 16, 32), help=text)


def add_flow(parser: CommandParser) -> None:
    """Add the library and the options of :class:`Flow`."""
    flags.add_file(parser, "liberty", "Liberty file of the library (default: osu018, or $LIBERTY)")
    parser.add_argument("--period", type=float, default=PERIOD, help="clock period in ns")
    flags.add_switch(parser, "gated", "use clock gates instead of enables")
    flags.add_choice(parser, "recipe", list(RECIPES), "recipe of abc", "speed")


def flow_of(args: argparse.Namespace) -> Flow:
    """Return the flow that the options of :func:`add_flow` describe."""
    return Flow(period=args.period, gated=args.gated, recipe=args.recipe)


def _decoders(args: argparse.Namespace) -> Sequence[DecoderConfig]:
    chosen = (args.lanes, args.schemes, args.target_rate, args.coded, args.truncated)
    if all(value in (None, False) for value in chosen):
        return DEFAULT_CONFIGS
    rate = args.target_rate or DecoderConfig.target_rate
    lanes, schemes = _lanes_and_schemes(args)
    range_ = tuple(args.truncated or DecoderConfig.truncated)
    config = DecoderConfig(lanes=lanes, schemes=schemes, target_rate=rate, coded=args.coded)
    return [dataclasses.replace(config, truncated=range_)]


def _lanes_and_schemes(args: argparse.Namespace) -> tuple[int, tuple[Scheme, ...]]:
    schemes = tuple(name for name in SCHEMES if name in (args.schemes or SCHEMES))
    return DecoderConfig.lanes if args.lanes is None else args.lanes, schemes


def main(argv: Sequence[str] | None = None) -> int:
    """Report on the default configurations, or on the one that the flags describe."""
    return run_command(_parser, _run, argv)


def _run(args: argparse.Namespace) -> int:
    if line := flags.ignored_flag(args, _IGNORED):
        raise CassandraError(line)
    chosen = (name for name in ("curve", "dma", "encoder") if getattr(args, name))
    name = next(chosen, "decoder")
    block = name + " gated" * (args.gated and name != "curve")
    if args.document:
        require_block(args.document, block)
    library = Library.chosen(args.liberty)
    texts = {"curve": _curve_text, "dma": _dma_text, "encoder": _encoder_text}
    publish(texts.get(name, _decoder_text)(args, library), args.document, block)
    return 0


def _encoder_text(args: argparse.Namespace, library: Library) -> str:
    lanes, schemes = _lanes_and_schemes(args)
    sizes = {name: getattr(args, name) for name in ("vector", "group", "segment")}
    reports: dict[int, Figures] = {}
    for pace in PACES if args.values_per_cycle is None else (args.values_per_cycle,):
        config = EncoderConfig(lanes=lanes, schemes=schemes, **sizes, values_per_cycle=pace)
        print(f"{config.module_name} ...", file=sys.stderr, flush=True)
        reports[config.pace] = analyse(design_of(config), library, args.out, flow_of(args))
    return encoder_tables(reports, config)


def _dma_text(args: argparse.Namespace, library: Library) -> str:
    lanes, schemes = _lanes_and_schemes(args)
    decoder = DecoderConfig(lanes=lanes, schemes=schemes)
    encoder = dataclasses.replace(DEFAULT_ENCODER, lanes=lanes, schemes=schemes)
    configs: dict[str, DmaConfig | StoreConfig] = {
        "`dma`": DmaConfig(decoder=decoder),
        "`array` of 2": DmaConfig(decoder=decoder, decoders=2),
        "`encoder-dma`": StoreConfig(encoder=encoder),
    }
    reports: dict[str, Figures] = {}
    for label, config in configs.items():
        print(f"{config.module_name} ...", file=sys.stderr, flush=True)
        reports[label] = analyse(dma_design(config), library, args.out, flow_of(args))
    title = f"{lanes} lanes, {', '.join(schemes)}; sizes of the encoder as above:"
    return f"{title}\n\n{dma_tables(reports)}"


def _curve_text(args: argparse.Namespace, library: Library) -> str:
    """Return the table; draw the plot beside the document, or into ``--out``."""
    config = _decoders(args)[0]
    points = []
    for point in sweep(design_of(config), library, args.out, curve_flows(gated=args.gated)):
        print(f"{point} ...", file=sys.stderr, flush=True)
        points.append(point)
    title = f"{config.lanes} lanes, {' + '.join(config.schemes)}{', gated' * args.gated}"
    folder = args.document.parent if args.document else args.out
    (folder / "synthesis.svg").write_text(curve_plot(points, title=title))
    return f"![kGE against period](synthesis.svg)\n\n{title}:\n\n{curve_table(points)}"


def _decoder_text(args: argparse.Namespace, library: Library) -> str:
    reports = []
    for config in _decoders(args):
        print(f"{config.module_name} ...", file=sys.stderr, flush=True)
        report = report_decoder(config, library, args.out, flow_of(args))
        name = args.out / f"{config.module_name}{'_gated' * args.gated}.json"
        text = json.dumps(as_json(report, _made(library, args.out)), indent=1)
        name.write_text(text + "\n")
        reports.append(report)
    return markdown(reports)


if __name__ == "__main__":
    raise SystemExit(main())
