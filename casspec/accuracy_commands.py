"""``casspec accuracy``: perplexity and agreement. Flags, and what they call."""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path

from cassandra_spec.model import flags as model_flags
from cassandra_spec.report import flags

EPILOG = """\
examples:
  casspec accuracy packed
  casspec accuracy unary mx exact --drafts
  casspec accuracy mx --source smollm2 --text own.txt --json

The first line is the model itself, from --source or from the first packed model that is lossless.
Rounding to 8 bits (one scale for each output channel) and Wanda's pruning are lossy compression to
compare with, of linear weights. Errors are standard errors over windows. packing.md says more.
"""


def register(subparsers: flags.Subparsers) -> None:
    """Add the command."""
    text = "measure what compression does to a model's predictions"
    parser = flags.add_command(subparsers, "accuracy", text, EPILOG, accuracy)
    parser.add_argument(
        "packed", metavar="PACKED", type=Path, nargs="+", help="directories of packed models"
    )
    parser.add_argument("--source", metavar="SOURCE", help="the original model, as for pack")
    flags.add_file(parser, "text", "text (default: one that comes along)")
    flags.add_count(parser, "length", "tokens in a window", 512)
    flags.add_count(parser, "tokens", "no more of the text than this (default: all)")
    flags.add_file(parser, "calibration", "text or norms for Wanda, as for pack")
    flags.add_switch(parser, "drafts", "the drafts of the packed models, too")
    flags.add_switch(parser, "no-lossy", "no lossy compression to compare with")
    flags.add_switch(parser, "json", "everything, for other programs")
    flags.add_quiet(parser)


def accuracy(args: argparse.Namespace) -> int:
    """``casspec accuracy``."""
    from cassandra_spec.bench.accuracy import accuracy_table
    from cassandra_spec.model.accuracy import candidates, original, table_rows
    from cassandra_spec.model.packing.calibration import HELD_OUT, read_text
    from cassandra_spec.model.weights.sources import open_source

    text = read_text(args.text, HELD_OUT)
    source = open_source(args.source) if args.source else original(args.packed)
    norms = None if args.no_lossy else model_flags.norms_of(source, args)
    rows = list(
        table_rows(
            source,
            candidates(source, args.packed, norms, drafts=args.drafts),
            text,
            length=args.length,
            most=args.tokens,
            progress=flags.shows_progress(args),
        )
    )
    if args.json:
        body = [dataclasses.asdict(row) for row in rows]
        about = {"source": source.label, "text": str(args.text or HELD_OUT), "length": args.length}
        print(json.dumps({**about, "rows": body}, indent=1))
    else:
        print(accuracy_table(rows, args.length))
    return 0
