"""``casspec bench exits``, ``projection`` and ``tables``."""

from __future__ import annotations

import argparse
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cassandra_spec.model import flags as model_flags
from cassandra_spec.report import flags

EXITS_EPILOG = """\
examples:
  casspec bench exits packed exits.safetensors
  casspec bench exits packed exits.safetensors --free 8 --json exits.json --figure exits.svg

Known replies are followed in one pass of the model: what an exit would draft after each token, how
many tokens a verification would emit, and how often the exit is right when it is sure. The cascade
replies to some prompts without a verifier, with thresholds for the largest F1 and for a precision.
docs/software/drafters.md says what the figures mean.
"""

PROJECTION_EPILOG = """\
examples:
  casspec bench projection packed
  casspec bench projection packed --ranks 256 144 --json projection.json
  casspec bench projection packed --ranks 256 144 --own-text 20000

Attention of low rank drafts, by weights and by activations, along known replies; so do keys and
values of low rank, and block attention residuals. The perplexity is that of the draft alone,
without a verifier. docs/software/drafters.md says what the figures mean.
"""

TABLES_EPILOG = """\
examples:
  casspec bench tables packed 50k.safetensors 200k.safetensors
  casspec bench tables packed table.safetensors --questions question.jsonl --each 4

The native engine replies to the prompts plainly; then each table is asked at every place of the
replies for what comes next, with its orders up to 1, 2 and 3. These are counts, the same on a busy
machine. docs/results/table.md explains the columns.
"""


def add_exits(subparsers: flags.Subparsers) -> None:
    """``casspec bench exits``."""
    text = "early exits: agreement, rounds, confidence, the lossy cascade"
    parser = flags.add_command(subparsers, "exits", text, EXITS_EPILOG, _exits)
    model_flags.add_packed(parser)
    parser.add_argument("file", metavar="EXITS", type=Path, help="of casspec train-exits")
    flags.add_count(parser, "free", "replies without a verifier", 4, low=0)
    _add_common(parser)
    flags.add_file(parser, "figure", "reliability, as SVG")


def add_projection(subparsers: flags.Subparsers) -> None:
    """``casspec bench projection``."""
    text = "low-rank attention as a draft, by rank"
    parser = flags.add_command(subparsers, "projection", text, PROJECTION_EPILOG, _projection)
    model_flags.add_packed(parser)
    flags.add_count(parser, "ranks", "(default: 256 192 144)", many="+")
    text = "tokens of the model's own conversations to calibrate on, instead of the bundled text"
    flags.add_count(parser, "own-text", text)
    _add_common(parser)


def add_tables(subparsers: flags.Subparsers) -> None:
    """``casspec bench tables``."""
    text = "tables of n-grams: what they know of the model's replies"
    parser = flags.add_command(subparsers, "tables", text, TABLES_EPILOG, _tables)
    model_flags.add_packed(parser)
    parser.add_argument("tables", metavar="TABLE", type=Path, nargs="+", help="of bake-table")
    flags.add_file(parser, "questions", "of Spec-Bench, first turns (default: the bundled prompts)")
    flags.add_count(parser, "each", "questions of a category, at most")
    _add_common(parser)


def _add_common(parser: flags.Flags) -> None:
    flags.add_count(parser, "max-tokens", "of each reply", 128)
    flags.add_count(parser, "threads", "of the native engine (default: all cores)")
    flags.add_file(parser, "json", "write all figures")
    flags.add_file(parser, "document", "put the tables between its markers")
    flags.add_quiet(parser)


def _exits(args: argparse.Namespace) -> int:
    from cassandra_spec.bench.compare import exits
    from cassandra_spec.bench.decode.report import check_outputs, save
    from cassandra_spec.model.output import write_file

    check_outputs(args.json, args.figure, document=args.document, block="exits")
    bench = exits.Bench(args.source, args.file, max_tokens=args.max_tokens, threads=args.threads)
    found = bench.run(args.free, lambda line: flags.say(args, line))
    text = f"{exits.exit_lines(found.exits)}\n\n{exits.cascade_lines(found.cascades)}"
    print(text)
    body: dict[str, Sequence[Any]] = {"exits": found.exits, "cascades": found.cascades}
    save(body, args.json, {"exits": text}, args.document)
    if args.figure:
        write_file(
            args.figure, exits.draw(found.exits, title=f"Confidence of exits, {args.source.name}")
        )
    return 0


def _projection(args: argparse.Namespace) -> int:
    from cassandra_spec.bench.compare import projection
    from cassandra_spec.bench.decode.report import check_outputs, save

    check_outputs(args.json, document=args.document, block="projection")
    ranks = args.ranks or (256, 192, 144)
    options = {"max_tokens": args.max_tokens, "threads": args.threads}
    bench = projection.Bench(args.source, ranks, own_text=args.own_text, **options)
    found = bench.run(lambda line: flags.say(args, line))
    text = projection.lines(found)
    print(text)
    save({"projection": [found]}, args.json, {"projection": text}, args.document)
    return 0


def _tables(args: argparse.Namespace) -> int:
    from cassandra_spec.bench import tables
    from cassandra_spec.bench.compare.questions import read_questions
    from cassandra_spec.bench.decode.report import check_outputs, save
    from cassandra_spec.model.baking import open_table

    check_outputs(args.json, document=args.document, block="tables")
    for path in args.tables:  # a wrong one is refused before the model runs
        open_table(path, args.source)
    questions = read_questions(args.questions, args.each)
    say = functools.partial(flags.say, args)
    known = tables.known_replies(args.source, questions, args.max_tokens, args.threads, say)
    found = list(tables.measure_tables(args.source, args.tables, known))
    text = tables.lines(found)
    print(text)
    save({"tables": found}, args.json, {"tables": text}, args.document)
    return 0
