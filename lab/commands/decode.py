"""Define ``casspec bench decode`` with rivals, dithered weights, and shapes of larger models."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cassandra_spec.bench.commands import decode
from cassandra_spec.golden import CassandraError
from cassandra_spec.toolkit import flags

if TYPE_CHECKING:
    from cassandra_spec.lab.decode.rivals import RivalBench

EPILOG = """\
examples:
  casspec bench decode smollm2 --llama-python bench/bin/python
  casspec bench decode smollm2 --weights dequantised dithered --figure docs/results/decode.svg \\
      --document docs/results/decoding.md#amx
  casspec bench decode smollm2 --contenders "native plain*" "*hybrid*" --rounds 4
  casspec bench decode smollm2 --context 1536 --rounds 4 --contenders "native*"
  casspec bench decode smollm2 --contenders "*hybrid*" --beside ../before
  casspec bench decode --shape 1b 3b --document docs/results/decoding.md
  casspec bench decode --shape 1b --context 32000

Contenders take turns, each in its own process, which is stopped during the turns of the others; the
memory bandwidth is measured before each turn. Figures are medians over rounds with quartiles;
ratios are taken within each round. The command fails if a speculative reply differs from plain
decoding. llama.cpp is included if --llama-python names a Python with llama-cpp-python (the extra
`bench`). Measurements are kept in OUT; run the command again to resume.
docs/results/decoding.md has the figures and describes the method.
"""


def define(parser: flags.CommandParser) -> None:
    """Define the flags."""
    decode.define(parser)
    flags.describe(parser, EPILOG, _decode)
    add_rivals(parser)
    flags.add_document(parser)
    text = "weights as they are, or with noise below their quantisation steps"
    choices = ("dequantised", "dithered")
    flags.add_some(parser, "weights", text, choices[:1], choices)
    text = "measure steps in the shapes 135m, 1b, 3b, gemma3-270m instead, on random weights"
    flags.add_some(parser, "shape", text, metavar="NAME")
    text = "conditional acceptance rates for the projections of --shape (default .80 .86 .90)"
    flags.add_some(parser, "acceptance", text, (0.80, 0.86, 0.90), type=float, metavar="A")


def add_rivals(parser: flags.CommandParser) -> None:
    """Add the flags of contenders that are not this checkout's."""
    parser.add_argument(
        "--llama-python", type=Path, metavar="PATH", help="Python with llama-cpp-python"
    )
    text = "also run native contenders with the code of another checkout"
    parser.add_argument("--beside", type=Path, metavar="CHECKOUT", help=text)


def open_bench(args: argparse.Namespace, chosen: Sequence[str], **fields: Any) -> RivalBench:
    """Return the benchmark of the chosen contenders."""
    from cassandra_spec.bench.decode.contenders import choose
    from cassandra_spec.lab.decode.rivals import CONTENDERS, RivalBench, with_checkout

    contenders = choose(chosen, CONTENDERS)
    if args.beside:
        contenders = with_checkout(contenders, args.beside)
    llama = args.llama_python and args.llama_python.absolute()
    return RivalBench(**decode.sizes_of(args), contenders=contenders, llama_python=llama, **fields)


def _decode(args: argparse.Namespace) -> int:
    from cassandra_spec.lab.decode.weights import make_source
    from cassandra_spec.model.weights.sources import open_source

    if args.shape:
        return _shapes(args)
    fields = {"table": decode.table_of(args), "slow_tokens": args.slow_tokens}
    bench, source = open_bench(args, args.contenders, **fields), open_source(args.source)
    sources = {kind: make_source(source, kind) for kind in args.weights}
    return decode.measure(args, bench, source, sources)


def _shapes(args: argparse.Namespace) -> int:
    from cassandra_spec.bench.report import finish
    from cassandra_spec.lab.decode.shapes import lines, measure_shapes

    for acceptance in args.acceptance:
        if not 0 <= acceptance <= 1:
            raise CassandraError(f"acceptance must be from 0 to 1, not {acceptance}")
    say = partial(flags.say, args)
    found = measure_shapes(args.shape, args.threads, say, args.context)
    args.figure = None
    finish(args, {"shapes": found}, {"shapes": lines(found, args.acceptance)})
    return 0
