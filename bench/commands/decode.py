"""Define ``casspec bench decode``: tokens per second of the ways to decode a model."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cassandra_spec.golden import CassandraError
from cassandra_spec.model import flags as model_flags
from cassandra_spec.toolkit import flags

if TYPE_CHECKING:
    from cassandra_spec.bench.decode.run import Bench
    from cassandra_spec.model.weights.sources import Source

EPILOG = """\
examples:
  casspec bench decode smollm2
  casspec bench decode smollm2 --contenders "native plain*" "*hybrid*" --rounds 4
  casspec bench decode smollm2 --context 1536 --rounds 4 --contenders "native*"

Contenders take turns, each in its own process, which is stopped during the turns of the others; the
memory bandwidth is measured before each turn. Figures are medians over rounds with quartiles;
ratios are taken within each round. The command fails if a speculative reply differs from plain
decoding. Measurements are kept in OUT; run the command again to resume.
docs/results/decoding.md has our figures and describes the method.
"""


def define(parser: flags.CommandParser) -> None:
    """Define the flags."""
    flags.describe(parser, EPILOG, _decode)
    model_flags.add_source(parser)
    add_sizes(parser)
    flags.add_some(parser, "contenders", "contenders to measure (default: all)", metavar="GLOB")
    text = "n-gram table from `casspec bake-table`, for contenders that use one"
    parser.add_argument("--table", type=Path, metavar="FILE", help=text)
    flags.add_count(parser, "prompts", "use the first N of the 24 prompts")
    text = "length limit of replies outside the native engine, one per round"
    flags.add_count(parser, "slow-tokens", text, 24)
    flags.add_count(parser, "context", "fill prompts up to N tokens")
    flags.add_results(parser, "a bar chart", document=False)


def add_sizes(parser: flags.CommandParser, out: str = "build/decode", **sizes: int) -> None:
    """Add the flags of every benchmark of contenders; ``sizes`` are other defaults."""
    flags.add_folder(parser, "out", "folder for models and measurements", out)
    flags.add_count(parser, "threads", "threads of each contender", 2)
    flags.add_count(parser, "rounds", "number of rounds", sizes.get("rounds", 8))
    flags.add_count(parser, "max-tokens", "length limit of each reply", sizes.get("tokens", 128))
    model_flags.add_calibration(parser)
    flags.add_jobs(parser, "worker processes of packing")


def sizes_of(args: argparse.Namespace) -> Mapping[str, Any]:
    """Return the fields of a benchmark that the flags describe."""
    return {
        "folder": args.out,
        "max_tokens": args.max_tokens,
        "threads": args.threads,
        "jobs": args.jobs,
        "say": partial(flags.say, args),
    }


def table_of(args: argparse.Namespace) -> Path | None:
    """Return the table's path. Raises :class:`CassandraError` if it is no file."""
    if args.table and not args.table.is_file():
        raise CassandraError(f"table must be a file of `casspec bake-table`, not {args.table}")
    return args.table and args.table.absolute()


def _decode(args: argparse.Namespace) -> int:
    from cassandra_spec.bench.decode.contenders import choose
    from cassandra_spec.bench.decode.run import DEQUANTISED, Bench
    from cassandra_spec.model.weights.sources import open_source

    bench = Bench(
        **sizes_of(args),
        contenders=choose(args.contenders),
        table=table_of(args),
        slow_tokens=args.slow_tokens,
    )
    source = open_source(args.source)
    return measure(args, bench, source, {DEQUANTISED: source})


def measure(
    args: argparse.Namespace, bench: Bench, source: Source, sources: Mapping[str, Source]
) -> int:
    """Let the contenders take their turns with the model's weights, by kind."""
    from cassandra_spec.bench import equal
    from cassandra_spec.bench.decode.report import differing_replies, draw, lines
    from cassandra_spec.bench.decode.setup import measure_all, open_turns, prepare
    from cassandra_spec.bench.report import finish

    norms = model_flags.norms_of(source, args)
    sizes = {"rounds": args.rounds, "prompts": args.prompts, "context": args.context}
    bench = prepare(bench, source, norms, **sizes)
    turns = open_turns(bench, source)
    found = measure_all(bench, sources, norms, turns)
    body = {"summaries": found, "turns": list(turns)}
    title = f"Decoding {args.source}, {args.threads} threads"
    finish(args, body, {"decode": lines(found)}, partial(draw, found, title=title))
    return equal.report(*differing_replies(found))
