"""``casspec accuracy``: perplexity and agreement. Flags, and what they call."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cassandra_spec.report.tables import text_table

if TYPE_CHECKING:
    from cassandra_spec.model.accuracy import Candidate, Row
    from cassandra_spec.model.weights.sources import Source

__all__ = ["EPILOG", "accuracy", "register"]

EPILOG = """\
examples:
  casspec accuracy packed
  casspec accuracy unary mx exact --drafts
  casspec accuracy mx --source smollm2 --text own.txt --json

The first line is the model itself, from --source or from the first packed model that is lossless.
Rounding to 8 bits (one scale for each output channel) and Wanda's pruning are lossy compression to
compare with, of linear weights. Errors are standard errors over windows. docs/packing.md says more.
"""

_HEADER = ("model", "bits/weight", "perplexity", "agreement with BF16", "loss above BF16")


def register(parser: argparse.ArgumentParser) -> None:
    """Add the flags of ``casspec accuracy``."""
    parser.set_defaults(run=accuracy)
    parser.add_argument(
        "packed", metavar="PACKED", type=Path, nargs="+", help="directories of packed models"
    )
    parser.add_argument("--source", metavar="SOURCE", help="the original model, as for pack")
    parser.add_argument(
        "--text", type=Path, metavar="FILE", help="text (default: one that comes along)"
    )
    parser.add_argument(
        "--length", type=int, default=512, metavar="N", help="tokens in a window (default 512)"
    )
    parser.add_argument(
        "--tokens", type=int, metavar="N", help="no more of the text than this (default: all)"
    )
    parser.add_argument(
        "--calibration", type=Path, metavar="FILE", help="text or norms for Wanda, as for pack"
    )
    parser.add_argument(
        "--drafts", action="store_true", help="the drafts of the packed models, too"
    )
    parser.add_argument(
        "--no-lossy", action="store_true", help="no lossy compression to compare with"
    )
    parser.add_argument("--json", action="store_true", help="everything, for other programs")
    parser.add_argument("--quiet", action="store_true", help="no progress, errors alone")


def accuracy(args: argparse.Namespace) -> int:
    """``casspec accuracy``."""
    from cassandra_spec.model.accuracy import original, table_rows
    from cassandra_spec.model.packing.calibration import HELD_OUT, read_text
    from cassandra_spec.model.weights.sources import open_source

    text = read_text(args.text, HELD_OUT)
    source = open_source(args.source) if args.source else original(args.packed)
    rows = list(
        table_rows(
            source,
            _candidates(args, source),
            text,
            length=args.length,
            most=args.tokens,
            progress=not args.quiet and sys.stderr.isatty(),
        )
    )
    if args.json:
        body = [dataclasses.asdict(row) for row in rows]
        about = {"source": source.label, "text": str(args.text or HELD_OUT), "length": args.length}
        print(json.dumps({**about, "rows": body}, indent=1))
    else:
        _print(rows, args.length)
    return 0


def _candidates(args: argparse.Namespace, source: Source) -> list[Candidate]:
    from cassandra_spec.model.accuracy import bf16_candidate, lossy_candidates, packed_candidates
    from cassandra_spec.model.packing.calibration import (
        Calibration,
        cache_directory,
        load_or_calibrate,
    )

    found = [bf16_candidate(source)]
    if not args.no_lossy:
        settings = Calibration(text=args.calibration)
        norms = load_or_calibrate(
            source, settings, cache=cache_directory(), progress=not args.quiet
        )
        found += lossy_candidates(source, norms)
    for path in args.packed:
        found += packed_candidates(path, drafts=args.drafts)
    return found


def _print(rows: list[Row], length: int) -> None:
    print(text_table(_HEADER, [_line(row) for row in rows]))
    print(
        f"\n{rows[0].accuracy.tokens:,} tokens predicted in windows of {length};"
        " +- is one standard error over windows"
    )


def _line(row: Row) -> list[str]:
    found = row.accuracy
    return [
        row.name,
        f"{row.bits:.2f}",
        f"{found.perplexity:.3f} +- {found.perplexity_error:.3f}",
        f"{found.agreement:.2%} +- {found.agreement_error:.2%}",
        f"{found.loss_increase:.4f} +- {found.loss_increase_error:.4f}",
    ]
