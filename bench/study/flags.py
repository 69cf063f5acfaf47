"""Add the flags of studies, and open the study that they describe."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from cassandra_spec.model import flags as model_flags
from cassandra_spec.toolkit import flags

if TYPE_CHECKING:
    from cassandra_spec.bench.study.drafts import Study


def add_study_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of a study."""
    parser.add_argument("source", metavar="SOURCE", help="unpacked model")
    text = "text file, one prompt per line (default: the bundled prompts)"
    flags.add_file(parser, "prompts", text)
    flags.add_count(parser, "max-tokens", "length limit of each reply", 128)
    model_flags.add_calibration(parser)
    flags.add_jobs(parser)
    flags.add_quiet(parser)
    text = "draft source: `model` (the draft view), `hybrid` (with low drafters)"
    flags.add_choice(model_flags.add_levels(parser), "draft", ("model", "hybrid"), text)


def open_study(args: argparse.Namespace, use: str) -> Study:
    """Open the model with the prompts and the calibration of the flags."""
    from cassandra_spec.bench.study.drafts import Study
    from cassandra_spec.bench.study.prompts import bundled_prompts, read_prompts
    from cassandra_spec.drafting import NgramTable, Settings
    from cassandra_spec.golden.model_types import EMBEDDING
    from cassandra_spec.model.weights.sources import open_source

    source = open_source(args.source)
    vocabulary = source.tensors[EMBEDDING].shape[0]
    asked = Settings(draft=args.draft, levels=model_flags.levels_of(args))
    bundled = [prompt.text for prompt in bundled_prompts(use)]
    return Study(
        source,
        read_prompts(args.prompts) if args.prompts else bundled,
        norms=model_flags.norms_of(source, args),
        max_tokens=args.max_tokens,
        jobs=args.jobs,
        progress=flags.shows_progress(args),
        asked=asked,
        table=args.table and NgramTable.load(args.table, vocabulary=vocabulary),
    )
