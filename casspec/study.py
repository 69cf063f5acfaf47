"""Flags of everything that follows drafts along replies, and what they describe."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from cassandra_spec.casspec import flags
from cassandra_spec.casspec.levels import add_levels, levels_of

if TYPE_CHECKING:
    from cassandra_spec.model.packing.calibration import Norms
    from cassandra_spec.model.study.drafts import Study
    from cassandra_spec.model.weights.sources import Source


def add_study_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument("source", metavar="SOURCE", help="model that is not packed")
    text = "text file with one prompt in each line (default: those that come along)"
    flags.add_file(parser, "prompts", text)
    flags.add_count(parser, "max-tokens", "of each reply", 128)
    flags.add_calibration(parser)
    flags.add_jobs(parser)
    flags.add_quiet(parser)
    text = "the draft view alone, or above low drafters"
    flags.add_choice(add_levels(parser), "draft", ("model", "hybrid"), text)


def norms_of(source: Source, args: argparse.Namespace) -> Norms:
    """Norms of the inputs from ``--calibration``, or from the cache, or measured now."""
    from cassandra_spec.model.packing.calibration import (
        Calibration,
        cache_directory,
        load_or_calibrate,
    )

    calibration = Calibration(text=args.calibration)
    progress = flags.shows_progress(args)
    return load_or_calibrate(source, calibration, cache=cache_directory(), progress=progress)


def open_study(args: argparse.Namespace, use: str) -> Study:
    """The model with the prompts and the calibration of the flags."""
    from cassandra_spec.drafting import NgramTable, Settings
    from cassandra_spec.model.study.drafts import Study
    from cassandra_spec.model.study.prompts import bundled_prompts, read_prompts
    from cassandra_spec.model.weights.sources import open_source

    source = open_source(args.source)
    asked = Settings(draft=args.draft, levels=levels_of(args))
    bundled = [prompt.text for prompt in bundled_prompts(use)]
    return Study(
        source,
        read_prompts(args.prompts) if args.prompts else bundled,
        norms=norms_of(source, args),
        max_tokens=args.max_tokens,
        jobs=args.jobs,
        progress=flags.shows_progress(args),
        asked=asked,
        table=args.table and NgramTable.load(args.table, vocabulary=_vocabulary(source)),
    )


def _vocabulary(source: Source) -> int:
    from cassandra_spec.model.weights.architectures import EMBEDDING

    return source.tensors[EMBEDDING].shape[0]
