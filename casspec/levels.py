"""Flags of the levels of drafting (docs/levels.md)."""

from __future__ import annotations

import argparse

from cassandra_spec.casspec import flags
from cassandra_spec.drafting import Levels

_KNOWN = Levels()


def add_levels(parser: flags.Flags) -> None:
    """Add a flag for each field of :class:`cassandra_spec.drafting.Levels`."""
    text = "nodes of the low drafter in a pass of the draft view"
    flags.add_count(parser, "low", text, _KNOWN.low, low=0)
    text = "candidates of one place at most; 1: chains"
    flags.add_count(parser, "branches", text, _KNOWN.branches)
    flags.add_count(parser, "rows", "nodes that verifications are filled to", _KNOWN.rows, low=0)
    flags.add_switch(parser, "no-tail", "verifications are not filled")
    text = "second-best tokens of the draft view in a verification, at most"
    flags.add_count(parser, "alternatives", text, _KNOWN.alternatives, low=0)
    margin = _KNOWN.alternative_margin
    parser.add_argument(
        "--alternative-margin",
        type=float,
        default=margin,
        metavar="X",
        help=f"they are of margins below X (default {margin})",
    )


def levels_of(args: argparse.Namespace) -> Levels:
    """The levels that the flags describe."""
    return Levels(
        low=args.low,
        branches=args.branches,
        rows=args.rows,
        tail=not args.no_tail,
        alternatives=args.alternatives,
        alternative_margin=args.alternative_margin,
    )
