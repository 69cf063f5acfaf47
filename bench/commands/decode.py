"""``casspec bench decode``: tokens per second of every way to decode a model."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from cassandra_spec.bench import equal
from cassandra_spec.golden import CassandraError
from cassandra_spec.model import flags as model_flags
from cassandra_spec.toolkit import flags

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


def register(subparsers: flags.Subparsers) -> None:
    """Add the command."""
    text = "measure tokens per second, beside llama.cpp and transformers"
    parser = flags.add_command(subparsers, "decode", text, EPILOG, _decode)
    model_flags.add_source(parser)
    flags.add_folder(parser, "out", "folder for models and measurements", "build/decode")
    text = "weights as they are, or with noise below their quantisation steps"
    choices = ("dequantised", "dithered")
    flags.add_some(parser, "weights", text, choices[:1], choices)
    flags.add_some(parser, "contenders", "contenders to measure (default: all)", metavar="GLOB")
    parser.add_argument(
        "--llama-python", type=Path, metavar="PATH", help="Python with llama-cpp-python"
    )
    text = "also run native contenders with the code of another checkout"
    parser.add_argument("--beside", type=Path, metavar="CHECKOUT", help=text)
    text = "n-gram table from `casspec bake-table`, for contenders that use one"
    parser.add_argument("--table", type=Path, metavar="FILE", help=text)
    flags.add_count(parser, "threads", "threads of each contender", 2)
    flags.add_count(parser, "rounds", "number of rounds", 8)
    flags.add_count(parser, "prompts", "use the first N of the 24 prompts")
    flags.add_count(parser, "max-tokens", "length limit of each reply", 128)
    flags.add_count(
        parser,
        "slow-tokens",
        "length limit of replies of transformers and torch, one per round",
        24,
    )
    flags.add_count(parser, "context", "fill prompts up to N tokens")
    text = "measure steps in the shapes 135m, 1b, 3b, gemma3-270m instead, on random weights"
    flags.add_some(parser, "shape", text, metavar="NAME")
    text = "conditional acceptance rates for the projections of --shape (default .80 .86 .90)"
    flags.add_some(parser, "acceptance", text, (0.80, 0.86, 0.90), type=float, metavar="A")
    model_flags.add_calibration(parser)
    flags.add_jobs(parser, "worker processes of packing")
    flags.add_results(parser, "a bar chart")


def _decode(args: argparse.Namespace) -> int:
    """``casspec bench decode``."""
    from cassandra_spec.bench.decode.contenders import choose, with_checkout
    from cassandra_spec.bench.decode.report import differing_replies, draw, finish, lines
    from cassandra_spec.bench.decode.run import Bench
    from cassandra_spec.bench.decode.setup import measure_all, open_turns, prepare
    from cassandra_spec.model.weights.sources import open_source

    contenders = choose(args.contenders)
    if args.beside:
        contenders = with_checkout(contenders, args.beside)
    if args.shape:
        return _shapes(args)
    if args.table and not args.table.is_file():
        raise CassandraError(f"table must be a file of `casspec bake-table`, not {args.table}")
    source = open_source(args.source)
    norms = model_flags.norms_of(source, args)
    bench = Bench(
        contenders=contenders,
        folder=args.out,
        max_tokens=args.max_tokens,
        slow_tokens=args.slow_tokens,
        threads=args.threads,
        llama_python=args.llama_python and args.llama_python.absolute(),
        table=args.table and args.table.absolute(),
        jobs=args.jobs,
        say=lambda text: flags.say(args, text),
    )
    sizes = {"rounds": args.rounds, "prompts": args.prompts, "context": args.context}
    bench = prepare(bench, source, norms, **sizes)
    turns = open_turns(bench, source)
    found = measure_all(bench, source, norms, args.weights, turns)
    body = {"summaries": found, "turns": list(turns)}
    title = f"Decoding {args.source}, {args.threads} threads"
    finish(args, body, {"decode": lines(found)}, partial(draw, found, title=title))
    return equal.report(*differing_replies(found))


def _shapes(args: argparse.Namespace) -> int:
    from cassandra_spec.bench.decode.report import finish
    from cassandra_spec.bench.decode.shapes import lines, measure_shapes

    for acceptance in args.acceptance:
        if not 0 <= acceptance <= 1:
            raise CassandraError(f"acceptance must be from 0 to 1, not {acceptance}")
    say = partial(flags.say, args)
    found = measure_shapes(args.shape, args.threads, say, args.context)
    args.figure = None
    finish(args, {"shapes": found}, {"shapes": lines(found, args.acceptance)})
    return 0
