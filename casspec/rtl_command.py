"""``casspec rtl``: the gateware as Verilog."""

from __future__ import annotations

import argparse

from cassandra_spec.golden.format import SCHEMES
from cassandra_spec.report import flags

EPILOG = """\
tops:
  decoder  streams in, values out: docs/hardware/decoder.md
  dma      the decoder behind registers (AXI4-Lite) and a read master (AXI4): integration.md
  array    decoders that share a read master; their values leave as one stream, in order
  encoder  values in, regions out: docs/hardware/encoder.md
  encoder-dma  the encoder behind registers and a write master (AXI4)

examples:
  casspec rtl
  casspec rtl --lanes 8 16 32 --schemes unary --codebook 32
  casspec rtl --target-rate full
  casspec rtl --schemes unary --coded
  casspec rtl --truncated 4 7
  casspec rtl --top dma --bus 256 --queue 16
  casspec rtl --top dma --target-rate full
  casspec rtl --top array --decoders 4 --schemes mx exact
  casspec rtl --top encoder --values-per-cycle 4
  casspec rtl --top encoder-dma --vector 64 --bus 256
  casspec rtl --tested

Each configuration gets a Verilog file, a file list (.f), a FuseSoC core, timing constraints (.sdc)
and a table of its ports (.ports.json). Those with registers also get a C header (.h) and regs/:
the registers as SystemRDL and, with the extra `registers` installed, as HTML, Markdown, IP-XACT and
a UVM model.
"""

TOPS = ("decoder", "dma", "array", "encoder", "encoder-dma")

DMA_FLAGS = {
    "decoders": "decoders that share the read master: 2, 4, 8 (array; default 4)",
    "bus": "bits of the AXI data bus (default: what the decoders take in a cycle)",
    "burst": "bytes of the longest burst (default 256)",
    "buffer": "bytes of read data that each region of a decoder may have ahead (default 2048)",
    "queue": "descriptors in the queue (default 8)",
    "books": "codebooks that are kept for descriptors to name (default 4)",
    "reorder": "values that each decoder may be ahead of the output (array; default 16384)",
    "address": "bits of an address (default 64)",
}

ENCODER_FLAGS = {
    "vector": "most values in a vector, a power of two (default 128)",
    "group": "most values in a group, a power of two (default 128)",
    "segment": "most values in a segment (default 16384)",
    "values_per_cycle": "values that go in in a cycle, 4 or more (default: as many as lanes)",
    "results": "results that may wait for software (encoder-dma; default 8)",
    "outstanding": "bursts of a region that may wait for a response (encoder-dma; default 8)",
}


def register(subparsers: flags.Subparsers) -> None:
    """Add the command."""
    text = "export the decoder, alone or behind AXI, as Verilog"
    parser = flags.add_command(subparsers, "rtl", text, EPILOG, rtl)
    flags.add_folder(parser, "out", "directory to write into", "build/rtl", dest="destination")
    flags.add_choice(parser, "top", TOPS, "what to export")
    text = "instead: the configurations that `make lint` checks, of every top"
    flags.add_switch(parser, "tested", text)
    text = "values in a cycle; several make several modules (default 16)"
    flags.add_some(parser, "lanes", text, (16,), (8, 16, 32), type=int)
    flags.add_some(parser, "schemes", "default: all", SCHEMES, SCHEMES)
    parser.add_argument(
        "--codebook", type=int, choices=(16, 32), default=16, help="entries (default 16)"
    )
    text = "a target's beat in two cycles, or in each: full reads formats of lead 2"
    flags.add_choice(parser, "target-rate", ("half", "full"), text)
    text = "decoders that also decode pruned_exponent = coded (unary)"
    flags.add_switch(parser, "coded", text)
    text = "least and most t of the segments that decoders read (default 0 7)"
    parser.add_argument("--truncated", nargs=2, type=int, metavar=("LEAST", "MOST"), help=text)
    parser.add_argument("--window", type=int, metavar="N", help="rows of unary codes in a cycle")
    parser.add_argument("--superblock", type=int, metavar="N", help="bytes, a multiple of 128")
    text = "period of the clock in the constraints, in ns (default 2)"
    flags.add_number(parser, "period", text, metavar="NS")
    for title, sizes in (("dma and array", DMA_FLAGS), ("encoder", ENCODER_FLAGS)):
        group = parser.add_argument_group(title)
        for name, text in sizes.items():
            group.add_argument(f"--{name.replace('_', '-')}", type=int, metavar="N", help=text)


def rtl(args: argparse.Namespace) -> int:
    """``casspec rtl``."""
    from cassandra_spec.rtl.common.command import DecoderConfig
    from cassandra_spec.synth.export import DEFAULT_CONFIGS, PERIOD, choose, export_all

    shared = ("codebook", "target_rate", "coded", "window", "superblock")
    fields = {name: getattr(args, name) for name in shared if getattr(args, name) is not None}
    if args.truncated is not None:
        fields["truncated"] = tuple(args.truncated)
    fields["schemes"] = tuple(name for name in SCHEMES if name in args.schemes)
    sizes = {name: getattr(args, name) for name in (*DMA_FLAGS, *ENCODER_FLAGS)}
    configs = [
        choose(args.top, DecoderConfig(lanes=lanes, **fields), **sizes)
        for lanes in dict.fromkeys(args.lanes)
    ]
    chosen = DEFAULT_CONFIGS if args.tested else configs
    period = PERIOD if args.period is None else args.period
    pages = not args.tested
    for path in export_all(args.destination, chosen, period=period, pages=pages):
        print(path)
    return 0
