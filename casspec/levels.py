"""Flags of the levels of drafting (docs/levels.md)."""

from __future__ import annotations

import argparse

from cassandra_spec.casspec import flags
from cassandra_spec.drafting import Levels

VIEW_FLAGS = ("--low", "--no-tail", "--alternatives", "--alternative-margin")
"""Those that say what is around a chain of the draft view."""

LEVEL_FLAGS = ("--table", "--branches", "--rows", *VIEW_FLAGS)


def add_levels(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Add ``--table``, and a flag for each field of :class:`cassandra_spec.drafting.Levels`."""
    group = parser.add_argument_group("low drafters (docs/levels.md)")
    flags.add_file(group, "table", "of n-grams (casspec bake-table)")
    flags.add_count(group, "low", "their tokens in a pass of the draft view", Levels.low, low=0)
    text = "their candidates for one place; 1: chains, no trees"
    flags.add_count(group, "branches", text, Levels.branches)
    flags.add_count(group, "rows", "nodes that verifications are filled to", Levels.rows, low=0)
    flags.add_switch(group, "no-tail", "verifications are not filled")
    text = "second-best tokens of the draft view that a verification may have"
    flags.add_count(group, "alternatives", text, Levels.alternatives, low=0)
    group.add_argument(
        "--alternative-margin",
        type=float,
        default=Levels.alternative_margin,
        metavar="X",
        help=f"of margins below X (default {Levels.alternative_margin})",
    )
    return group


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
