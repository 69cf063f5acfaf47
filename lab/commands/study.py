"""Define ``casspec bench acceptance`` and ``small-model``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cassandra_spec.bench.study import flags as study_flags
from cassandra_spec.toolkit import flags

if TYPE_CHECKING:
    from cassandra_spec.lab.study.acceptance import Row

ACCEPTANCE_EPILOG = """\
examples:
  casspec bench acceptance smollm2
  casspec bench acceptance smollm2 --settings "exact-*" --gamma 3 5 --json acceptance.json
  casspec bench acceptance ~/models/llama --prompts own.txt --max-tokens 256
  casspec bench acceptance smollm2 --settings exact-4 --draft hybrid --rows 7 --low 3
  casspec bench acceptance smollm2 --figure acceptance.svg

Packs the model with each of the settings and evaluates its draft along the target's greedy replies.
Intervals are 95 % bootstrap intervals over prompts. `best` is the gamma with the least traffic.
docs/results/acceptance.md defines the figures and lists the settings.
"""

SMALL_EPILOG = """\
examples:
  casspec bench small-model small
  casspec bench acceptance small --prompts lines.txt

Takes some minutes on two cores. Trains on the calibration text (model/data/README.md).
"""


def add_acceptance(parser: flags.CommandParser) -> None:
    """Add ``casspec bench acceptance``."""
    flags.describe(parser, ACCEPTANCE_EPILOG, _acceptance)
    study_flags.add_study_flags(parser)
    flags.add_some(parser, "settings", "settings to measure (default: all)", metavar="GLOB")
    flags.add_some(parser, "gamma", "draft lengths (default: 3 5)", (3, 5), type=int, metavar="N")
    flags.add_file(parser, "json", "write all figures as JSON")
    text = "plot acceptance against bits (SVG), instead of the table of settings"
    flags.add_file(parser, "figure", text)


def _acceptance(args: argparse.Namespace) -> int:
    from cassandra_spec.lab.study.acceptance import heading, measure_settings
    from cassandra_spec.lab.study.settings import choose

    if args.figure:
        return _figure(args)
    chosen = choose(args.settings)
    study = study_flags.open_study(args, "bench")
    study.check_gammas(args.gamma)
    found: list[Row] = []
    print(heading(args.gamma))
    for line, rows in measure_settings(study, chosen, args.gamma):
        print(line, flush=True)
        found += rows
    _save(args, found)
    return 0


def _figure(args: argparse.Namespace) -> int:
    from cassandra_spec.lab.study.acceptance import PLOT_GAMMA, curve_table, measure_curves
    from cassandra_spec.lab.study.figure import draw
    from cassandra_spec.model.output import write_file

    curves = measure_curves(study_flags.open_study(args, "bench"))
    print(curve_table(curves))
    write_file(args.figure, draw(curves, title=f"{args.source}, gamma {PLOT_GAMMA}"))
    _save(args, [found for rows in curves.values() for found in rows])
    return 0


def _save(args: argparse.Namespace, found: Sequence[Row]) -> None:
    from cassandra_spec.model.output import write_json

    if args.json:
        write_json(args.json, {"source": args.source, "rows": [row.to_dict() for row in found]})
        print(f"{args.json}: {len(found)} rows", file=sys.stderr)


def add_small_model(parser: flags.CommandParser) -> None:
    """Add ``casspec bench small-model``."""
    flags.describe(parser, SMALL_EPILOG, _small_model)
    flags.add_destination(parser)
    flags.add_count(parser, "steps", "training steps", 600)
    flags.add_quiet(parser)


def _small_model(args: argparse.Namespace) -> int:
    from cassandra_spec.lab.study.small import train_small

    train_small(args.destination, steps=args.steps, progress=flags.shows_progress(args))
    return 0
