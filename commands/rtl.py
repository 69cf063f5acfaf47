"""Define ``casspec rtl``, which exports the gateware as Verilog."""

from __future__ import annotations

import argparse

from cassandra_spec.golden.format import SCHEMES
from cassandra_spec.toolkit import flags

EPILOG = """\
tops:
  decoder      streams to values (docs/hardware/decoder.md)
  dma          decoder with registers (AXI4-Lite) and a read master (AXI4)
  array        several decoders that share a read master, with one output stream, in order
  encoder      values to regions (docs/hardware/encoder.md)
  encoder-dma  encoder with registers (AXI4-Lite) and a write master (AXI4)

examples:
  casspec rtl
  casspec rtl --lanes 8 16 32 --schemes unary --codebook 32
  casspec rtl --target-rate full
  casspec rtl --schemes unary --coded
  casspec rtl --truncated 4 7
  casspec rtl --top dma --bus 256 --queue 16
  casspec rtl --top dma --target-rate full
  casspec rtl --top array --decoders 4 --schemes mx exact
  casspec rtl --top dma --attributes --reset aresetn --no-initial
  casspec rtl --top encoder --values-per-cycle 4
  casspec rtl --top encoder-dma --vector 64 --bus 256
  casspec rtl --tested

Each configuration gets a Verilog file, its memories as modules of a second one (_memories.v), a
file list (.f), a FuseSoC core, timing constraints (.sdc), IP-XACT (.xml) and a description of
version, options, ports and memories (.json). Tops with registers also get a C header (.h) and
regs/: the registers as SystemRDL and, with the extra `registers` installed, as HTML, Markdown and
a UVM model. docs/hardware/dma.md describes the registers and the AXI interfaces.
"""

TOPS = ("decoder", "dma", "array", "encoder", "encoder-dma")

DMA_FLAGS = {
    "decoders": "number of decoders: 2, 4 or 8 (array; default 4)",
    "bus": "width of the AXI data bus in bits (default: the decoders' input per cycle)",
    "burst": "longest burst in bytes (default 256)",
    "buffer": "prefetch buffer of each region of a decoder, in bytes (default 2048)",
    "queue": "depth of the descriptor queue (default 8)",
    "books": "number of codebooks that descriptors can refer to (default 4)",
    "reorder": "reorder buffer of each decoder, in values (array; default 16384)",
    "address": "address width in bits (default 64)",
}

ENCODER_FLAGS = {
    "vector": "longest vector in values, a power of two (default 128)",
    "group": "largest group in values, a power of two (default 128)",
    "segment": "longest segment in values (default 16384)",
    "values_per_cycle": "input values per cycle, at least 4 (default: --lanes)",
    "results": "depth of the result queue (encoder-dma; default 8)",
    "outstanding": "outstanding write bursts per region (encoder-dma; default 8)",
}


def define(parser: flags.CommandParser) -> None:
    """Define the flags."""
    flags.describe(parser, EPILOG, rtl)
    flags.add_folder(parser, "out", "output directory", "build/rtl", dest="destination")
    flags.add_choice(parser, "top", TOPS, "module to export")
    text = "export all configurations that `make lint` checks instead of one top"
    flags.add_switch(parser, "tested", text)
    text = "values per cycle; several numbers export several modules (default 16)"
    flags.add_some(parser, "lanes", text, (16,), (8, 16, 32), type=int)
    flags.add_some(
        parser, "schemes", "schemes that the module supports (default: all)", SCHEMES, SCHEMES
    )
    parser.add_argument(
        "--codebook",
        type=int,
        choices=(16, 32),
        default=16,
        help="entries per codebook (default 16)",
    )
    text = "target beats per cycle: `half` (0.5) or `full` (1; reads formats with lead 2)"
    flags.add_choice(parser, "target-rate", ("half", "full"), text)
    text = "also decode formats with pruned_exponent = coded (unary)"
    flags.add_switch(parser, "coded", text)
    text = "range of supported values of the format's `truncated` (default 0 7)"
    parser.add_argument("--truncated", nargs=2, type=int, metavar=("MIN", "MAX"), help=text)
    parser.add_argument("--window", type=int, metavar="N", help="rows of unary code read per cycle")
    parser.add_argument(
        "--superblock", type=int, metavar="N", help="bytes per memory transfer, a multiple of 128"
    )
    text = "reset port, synchronous: `rst`, active high, or `aresetn`, active low"
    flags.add_choice(parser, "reset", ("rst", "aresetn"), text)
    text = "registers get their values from the reset alone, without initial values"
    flags.add_switch(parser, "no-initial", text)
    text = "AxCACHE and AxPROT are inputs (dma, array, encoder-dma)"
    parser.add_argument("--attributes", action="store_const", const=True, help=text)
    text = "clock period of the constraints in ns (default 2)"
    flags.add_number(parser, "period", text, metavar="NS")
    for title, sizes in (("dma and array", DMA_FLAGS), ("encoder", ENCODER_FLAGS)):
        group = parser.add_argument_group(title)
        for name, text in sizes.items():
            group.add_argument(f"--{name.replace('_', '-')}", type=int, metavar="N", help=text)


def rtl(args: argparse.Namespace) -> int:
    """Run ``casspec rtl``."""
    from cassandra_spec.api.gateware import GatewareOptions, export_gateware

    given = {name: getattr(args, name) for name in GatewareOptions.__annotations__}
    made = export_gateware(
        args.destination,
        None if args.tested else args.top,
        lanes=args.lanes,
        schemes=args.schemes,
        period=args.period,
        reset=args.reset,
        initial=not args.no_initial,
        **{name: value for name, value in given.items() if value is not None},
    )
    for path in made:
        print(path)
    return 0
