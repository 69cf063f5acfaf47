"""Define ``casspec accuracy``: perplexity and agreement of packed models."""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path

from cassandra_spec.model import flags as model_flags
from cassandra_spec.toolkit import flags

EPILOG = """\
examples:
  casspec accuracy packed
  casspec accuracy unary mx exact --drafts
  casspec accuracy mx --source smollm2 --text own.txt --json

The first row is the original model, from --source or from the first lossless packed model. The rows
int8 (one scale per output channel) and Wanda (pruning) compress the linear weights lossily, for
comparison. Errors are standard errors over windows. See docs/software/packing.md.
"""


def define(parser: flags.CommandParser) -> None:
    """Define the flags."""
    flags.describe(parser, EPILOG, accuracy)
    parser.add_argument(
        "packed", metavar="PACKED", type=Path, nargs="+", help="directories of packed models"
    )
    parser.add_argument("--source", metavar="SOURCE", help="original model, as for pack")
    flags.add_file(parser, "text", "text to predict (default: the bundled text)")
    flags.add_count(parser, "length", "tokens per window", 512)
    flags.add_count(parser, "tokens", "use the first N tokens of the text (default: all)")
    flags.add_file(parser, "calibration", "calibration text or norms for Wanda, as for pack")
    flags.add_switch(parser, "drafts", "also measure the drafts")
    flags.add_switch(parser, "no-lossy", "leave out the lossy methods")
    flags.add_switch(parser, "json", "print all figures as JSON")
    flags.add_quiet(parser)


def accuracy(args: argparse.Namespace) -> int:
    """Run ``casspec accuracy``."""
    from cassandra_spec.bench.accuracy.study import candidates, original, table_rows
    from cassandra_spec.bench.accuracy.table import accuracy_table
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
