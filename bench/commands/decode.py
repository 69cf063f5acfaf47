"""``casspec bench decode``: tokens per second of every way to decode a model."""

from __future__ import annotations

import argparse
from pathlib import Path

from cassandra_spec.golden import CassandraError
from cassandra_spec.model import flags as model_flags
from cassandra_spec.report import flags

EPILOG = """\
examples:
  casspec bench decode smollm2 --llama-python bench/bin/python
  casspec bench decode smollm2 --weights dequantised dithered --figure docs/results/decode.svg \\
      --document docs/results/decoding.md#amx
  casspec bench decode smollm2 --contenders "native plain*" "*hybrid*" --rounds 4
  casspec bench decode smollm2 --context 1536 --rounds 4 --contenders "native*"
  casspec bench decode smollm2 --contenders "*hybrid*" --beside ../before
  casspec bench decode --shape 1b 3b --document docs/results/decoding.md

Contenders take turns, each in a process of its own that is stopped while others have theirs; before
every turn the speed of memory is measured. Figures are medians over rounds with their quartiles;
ratios are taken round by round. Speculative replies must be those of plain decoding, and the
command fails if one is not. llama.cpp takes part if --llama-python names a Python that has
llama-cpp-python (the extra `bench`). What was measured is kept in OUT: run the command again to go
on. docs/results/decoding.md has the figures and describes the method.
"""


def register(subparsers: flags.Subparsers) -> None:
    """Add the command."""
    text = "tokens per second of every way to decode, beside llama.cpp and transformers"
    parser = flags.add_command(subparsers, "decode", text, EPILOG, _decode)
    model_flags.add_source(parser)
    flags.add_folder(parser, "out", "for models, files and what was measured", "build/decode")
    text = "as they are, or with noise below their steps, as if never quantised"
    choices = ("dequantised", "dithered")
    flags.add_some(parser, "weights", text, choices[:1], choices)
    flags.add_some(parser, "contenders", "some of them (default: all)", metavar="GLOB")
    parser.add_argument("--llama-python", type=Path, metavar="PATH", help="runs llama.cpp")
    text = "let native contenders decode by the code of another checkout, too"
    parser.add_argument("--beside", type=Path, metavar="CHECKOUT", help=text)
    text = "of `casspec bake-table`, for contenders that draft with one"
    parser.add_argument("--table", type=Path, metavar="FILE", help=text)
    flags.add_count(parser, "threads", "", 2)
    flags.add_count(parser, "rounds", "the prompts go round", 8)
    flags.add_count(parser, "prompts", "the first N of them (24)")
    flags.add_count(parser, "max-tokens", "of each reply", 128)
    flags.add_count(parser, "slow-tokens", "of transformers' and torch's, one in each round", 24)
    flags.add_count(parser, "context", "put text before prompts, N tokens in all")
    text = "instead: costs of steps in the shapes 135m, 1b, 3b, on random weights"
    flags.add_some(parser, "shape", text, metavar="NAME")
    text = "conditional rates for the gains that --shape projects (default .80 .86 .90)"
    flags.add_some(parser, "acceptance", text, (0.80, 0.86, 0.90), type=float, metavar="A")
    model_flags.add_calibration(parser)
    flags.add_jobs(parser, "processes for packing")
    flags.add_file(parser, "json", "write all figures")
    flags.add_file(parser, "figure", "bars, as SVG")
    flags.add_file(parser, "document", "put the table between its markers")
    flags.add_quiet(parser)


def _decode(args: argparse.Namespace) -> int:
    """``casspec bench decode``."""
    from cassandra_spec.bench.decode.contenders import choose, with_checkout
    from cassandra_spec.bench.decode.report import differing_replies, draw, lines, save
    from cassandra_spec.bench.decode.run import Bench
    from cassandra_spec.bench.decode.setup import measure_all, open_turns, prepare
    from cassandra_spec.model.output import write_file
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
    print(lines(found))
    body = {"summaries": found, "turns": list(turns)}
    save(body, args.json, {"decode": lines(found)}, args.document)
    if args.figure:
        title = f"Decoding {args.source}, {args.threads} threads"
        write_file(args.figure, draw(found, title=title))
    differing, compared = differing_replies(found)
    print(f"\n{'FAIL' if differing else 'PASS'}: {differing} of {compared} replies differ")
    return 1 if differing else 0


def _shapes(args: argparse.Namespace) -> int:
    from cassandra_spec.bench.decode.report import save
    from cassandra_spec.bench.decode.shapes import lines, measure_shapes

    for acceptance in args.acceptance:
        if not 0 <= acceptance <= 1:
            raise CassandraError(f"acceptance must be from 0 to 1, not {acceptance}")
    found = measure_shapes(args.shape, args.threads, lambda text: flags.say(args, text))
    text = lines(found, args.acceptance)
    print(text)
    save({"shapes": found}, args.json, {"shapes": text}, args.document)
    return 0
