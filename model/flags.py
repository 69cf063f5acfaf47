"""Add flags that several commands share: sources and levels of drafting."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from cassandra_spec.drafting.settings import DraftCache, Levels
from cassandra_spec.toolkit import flags

if TYPE_CHECKING:
    from cassandra_spec.model.packing.calibration import Norms
    from cassandra_spec.model.weights.sources import Source


def add_calibration(parser: flags.Flags) -> None:
    """Add ``--calibration FILE``."""
    flags.add_file(parser, "calibration", "text or norms, as for `casspec pack`")


def add_source(parser: flags.Flags) -> None:
    """Add ``[SOURCE]``, an unpacked model."""
    parser.add_argument(
        "source", metavar="SOURCE", nargs="?", default="smollm2", help="model (default smollm2)"
    )


def add_packed(parser: flags.Flags) -> None:
    """Add ``PACKED``, a packed model."""
    parser.add_argument("source", metavar="PACKED", type=Path, help="directory of a packed model")


# --- levels of drafting (docs/software/levels.md) -------------------------------------------------

VIEW_FLAGS = ("--low", "--no-tail", "--alternatives", "--alternative-margin")
"""Flags that add tokens before, beside or behind a chain of the draft view."""

LEVEL_FLAGS = ("--table", "--branches", "--rows", *VIEW_FLAGS)


def add_levels(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Add ``--table``, and a flag for each field of :class:`cassandra_spec.drafting.Levels`."""
    group = parser.add_argument_group(
        "low drafters: copies and n-gram table (docs/software/levels.md)"
    )
    flags.add_file(group, "table", "n-gram table from `casspec bake-table`")
    flags.add_count(
        group,
        "low",
        "low drafters' tokens checked in each pass of the draft view",
        Levels.low,
        low=0,
    )
    text = "low drafters' candidates per position; 1: a chain, not a tree"
    flags.add_count(group, "branches", text, Levels.branches)
    flags.add_count(group, "rows", "pad each verification to N drafted tokens", Levels.rows, low=0)
    flags.add_switch(group, "no-tail", "do not pad verifications")
    text = "verify at most N second-best tokens of the draft view in a pass"
    flags.add_count(group, "alternatives", text, Levels.alternatives, low=0)
    text = (
        "verify a second-best token where its logit is within X of the best"
        f" (default {Levels.alternative_margin})"
    )
    flags.add_number(group, "alternative-margin", text, Levels.alternative_margin)
    return group


def levels_of(args: argparse.Namespace) -> Levels:
    """Return the levels that the flags describe."""
    return Levels(
        low=args.low,
        branches=args.branches,
        rows=args.rows,
        tail=not args.no_tail,
        alternatives=args.alternatives,
        alternative_margin=args.alternative_margin,
    )


# --- what drafts read of the KV cache (docs/software/kv.md) ---------------------------------------

DRAFT_CACHE_FLAGS = ("--kv-window", "--kv-sinks")


def add_draft_cache(parser: flags.Flags) -> None:
    """Add the flags of :class:`cassandra_spec.drafting.DraftCache`."""
    text = "read the last N positions of the KV cache in draft passes; 0: all of them"
    flags.add_count(parser, "kv-window", text, DraftCache.window, low=0)
    text = "read the first N positions of the KV cache in draft passes, too"
    flags.add_count(parser, "kv-sinks", text, DraftCache.sinks, low=0)


def draft_cache_of(args: argparse.Namespace) -> DraftCache:
    """Return the part of the KV cache that the flags describe."""
    return DraftCache(window=args.kv_window or None, sinks=args.kv_sinks)


def norms_of(source: Source, args: argparse.Namespace) -> Norms:
    """Return the norms of the inputs: from ``--calibration``, from the cache, or measured now."""
    from cassandra_spec.model.packing import calibration

    return calibration.load_or_calibrate(
        source,
        calibration.Calibration(text=args.calibration),
        cache=calibration.cache_directory(),
        progress=flags.shows_progress(args),
    )
