"""Define ``casspec tune``, which searches the best settings of a model."""

from __future__ import annotations

import argparse

from cassandra_spec.bench.study import flags as study_flags
from cassandra_spec.golden.format import SCHEMES
from cassandra_spec.toolkit import flags

EPILOG = """\
examples:
  casspec tune smollm2 tuned.toml
  casspec tune smollm2 tuned.toml --schemes unary exact --plot front.svg
  casspec tune model tuned.toml --cluster 10.0.0.1:8786
  casspec pack smollm2 packed --recipe tuned.toml

The search goes from coarse to fine. It measures each candidate on 8 development prompts, which no
benchmark uses, with the candidate's best gamma and minimum margin, and writes the best candidate as
a recipe for `casspec pack --recipe`. Measurements are kept in OUT.state.json; run the command again
to resume. Scheme mx is lossy and is searched only if --schemes names it.
docs/software/acceptance.md describes the search and both objectives.
"""


def define(parser: flags.CommandParser) -> None:
    """Define the flags."""
    flags.describe(parser, EPILOG, tune)
    study_flags.add_study_flags(parser)
    flags.add_destination(parser, "recipe to write (.toml)", "OUT")
    text = "schemes to search (default: the lossless ones)"
    flags.add_some(parser, "schemes", text, ("unary", "exact"), SCHEMES)
    flags.add_file(parser, "plot", "write the Pareto front (SVG)")
    flags.add_cluster(parser)


def tune(args: argparse.Namespace) -> int:
    """Run ``casspec tune``."""
    from cassandra_spec.bench.study import tuning
    from cassandra_spec.bench.study.figure import draw_front
    from cassandra_spec.bench.study.shared import shared
    from cassandra_spec.bench.study.summary import save_best, summary
    from cassandra_spec.golden.model_types import layer_numbers
    from cassandra_spec.model.output import write_file
    from cassandra_spec.toolkit.workers.pool import Workers

    state_file = args.destination.with_name(args.destination.name + ".state.json")
    beside = args.destination if args.cluster else None
    with Workers(args.jobs if args.cluster else 1, cluster=args.cluster) as workers:
        study = study_flags.open_study(args, "development")
        state = tuning.State(state_file, study.about())
        with shared(study, beside=beside, table=args.table) as sent:
            scores = tuning.tune(
                lambda candidates: workers.map(sent.score, candidates),
                state,
                schemes=args.schemes,
                layers=len(layer_numbers(study.source.tensors)),
                update=lambda done, of: flags.say(args, f"{done} of {of} candidates of this stage"),
            )
    save_best(args.destination, scores[0])
    if args.plot:
        write_file(args.plot, draw_front(scores, title=str(args.source)))
    print(summary(scores, args.destination))
    return 0
