"""Define ``casspec bench exits``, ``projection`` and ``tables``."""

from __future__ import annotations

import argparse
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cassandra_spec.model import flags as model_flags
from cassandra_spec.toolkit import flags

EXITS_EPILOG = """\
examples:
  casspec bench exits packed exits.safetensors
  casspec bench exits packed exits.safetensors --free 8 --json exits.json --figure exits.svg

Evaluates exits in one pass over known replies: their drafts after each token, tokens per
verification, and how accurate an exit is at each confidence. The cascade also replies to some
prompts without a verifier, with thresholds for the largest F1 and for a given precision.
docs/software/drafters.md defines the figures.
"""

PROJECTION_EPILOG = """\
examples:
  casspec bench projection packed
  casspec bench projection packed --ranks 256 144 --json projection.json
  casspec bench projection packed --ranks 256 144 --own-text 20000

Evaluates drafts along known replies: low-rank attention, fitted to weights or to activations,
low-rank keys and values, and block attention residuals. The perplexity is the draft's.
docs/software/drafters.md defines the figures.
"""

TABLES_EPILOG = """\
examples:
  casspec bench tables packed 50k.safetensors 200k.safetensors
  casspec bench tables packed table.safetensors --questions question.jsonl --each 4

The native engine gives the greedy replies to first turns; then each table predicts the next token
at each position of the replies, with n-grams of up to 1, 2 and 3 tokens. The figures are counts, so
they do not depend on the machine's load. docs/results/table.md explains the columns.
"""


def add_exits(parser: flags.CommandParser) -> None:
    """Add ``casspec bench exits``."""
    flags.describe(parser, EXITS_EPILOG, _exits)
    model_flags.add_packed(parser)
    parser.add_argument("file", metavar="EXITS", type=Path, help="file from `casspec train-exits`")
    flags.add_count(parser, "free", "number of replies without a verifier", 4, low=0)
    _add_sizes(parser)
    flags.add_results(parser, "a reliability diagram")


def add_projection(parser: flags.CommandParser) -> None:
    """Add ``casspec bench projection``."""
    flags.describe(parser, PROJECTION_EPILOG, _projection)
    model_flags.add_packed(parser)
    flags.add_count(parser, "ranks", "ranks to measure (default: 256 192 144)", many="+")
    text = "calibrate on N tokens of the model's own conversations instead of the bundled text"
    flags.add_count(parser, "own-text", text)
    _add_sizes(parser)
    flags.add_results(parser)


def add_tables(parser: flags.CommandParser) -> None:
    """Add ``casspec bench tables``."""
    flags.describe(parser, TABLES_EPILOG, _tables)
    model_flags.add_packed(parser)
    parser.add_argument(
        "tables", metavar="TABLE", type=Path, nargs="+", help="files from bake-table"
    )
    flags.add_questions(parser)
    _add_sizes(parser)
    flags.add_results(parser)


def _add_sizes(parser: flags.Flags) -> None:
    flags.add_count(parser, "max-tokens", "length limit of each reply", 128)
    flags.add_count(parser, "threads", "threads of the native engine (default: all cores)")


def _exits(args: argparse.Namespace) -> int:
    from cassandra_spec.bench.report import check_outputs, finish
    from cassandra_spec.lab.compare import exits

    check_outputs(args, "exits")
    bench = exits.Bench(args.source, args.file, max_tokens=args.max_tokens, threads=args.threads)
    found = bench.run(args.free, lambda line: flags.say(args, line))
    text = f"{exits.exit_lines(found.exits)}\n\n{exits.cascade_lines(found.cascades)}"
    body: dict[str, Sequence[Any]] = {"exits": found.exits, "cascades": found.cascades}
    title = f"Confidence of exits, {args.source.name}"
    finish(args, body, {"exits": text}, functools.partial(exits.draw, found.exits, title=title))
    return 0


def _projection(args: argparse.Namespace) -> int:
    from cassandra_spec.bench.report import check_outputs, finish
    from cassandra_spec.lab.compare import projection

    check_outputs(args, "projection")
    ranks = args.ranks or (256, 192, 144)
    options = {"max_tokens": args.max_tokens, "threads": args.threads}
    bench = projection.Bench(args.source, ranks, own_text=args.own_text, **options)
    found = bench.run(lambda line: flags.say(args, line))
    finish(args, {"projection": [found]}, {"projection": projection.lines(found)})
    return 0


def _tables(args: argparse.Namespace) -> int:
    from cassandra_spec.bench.report import check_outputs, finish
    from cassandra_spec.lab.compare.known_replies import known_replies
    from cassandra_spec.lab.drafts import tables
    from cassandra_spec.lab.questions import read_questions
    from cassandra_spec.model.baking import open_table

    check_outputs(args, "tables")
    for path in args.tables:  # a wrong one is refused before the model runs
        open_table(path, args.source)
    questions = read_questions(args.questions, args.each)
    known = known_replies(
        args.source,
        [each.turns[0] for each in questions],
        max_tokens=args.max_tokens,
        threads=args.threads,
        say=functools.partial(flags.say, args),
    )
    found = list(tables.measure_tables(args.source, args.tables, known))
    finish(args, {"tables": found}, {"tables": tables.lines(found)})
    return 0
