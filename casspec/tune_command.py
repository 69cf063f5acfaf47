"""``casspec tune``: the best settings of a model."""

from __future__ import annotations

import argparse

from cassandra_spec.golden.format import SCHEMES
from cassandra_spec.model import flags as model_flags
from cassandra_spec.report import flags

EPILOG = """\
examples:
  casspec tune smollm2 tuned.toml
  casspec tune smollm2 tuned.toml --schemes unary exact --plot front.svg
  casspec pack smollm2 packed --recipe tuned.toml

Measures candidates on 8 prompts that no other figure is taken of, coarse to fine, each with the
gamma and the minimum margin that suit it best, and writes the best as a file that `casspec pack
--recipe` takes. What was measured is kept in OUT.state.json: run the command again to go on.
Scheme mx rounds the target and takes part only if it is named.
docs/software/acceptance.md describes the search and both objectives.
"""


def register(subparsers: flags.Subparsers) -> None:
    """Add the command."""
    text = "search the best settings of a model"
    parser = flags.add_command(subparsers, "tune", text, EPILOG, tune)
    model_flags.add_study_flags(parser)
    flags.add_destination(parser, "file for `pack --recipe`", "OUT")
    text = "to search (default: those with an exact target)"
    flags.add_some(parser, "schemes", text, ("unary", "exact"), SCHEMES)
    flags.add_file(parser, "plot", "the Pareto front, as SVG")


def tune(args: argparse.Namespace) -> int:
    """``casspec tune``."""
    from cassandra_spec.bench.tuning import save_best, summary
    from cassandra_spec.model.output import write_file
    from cassandra_spec.model.study import tuning
    from cassandra_spec.model.study.figure import draw_front
    from cassandra_spec.model.weights.architectures import layer_numbers

    state_file = args.destination.with_name(args.destination.name + ".state.json")
    study = model_flags.open_study(args, "development")
    state = tuning.State(state_file, study.about())
    scores = tuning.tune(
        study.measure,
        state,
        depth=study.depth,
        schemes=args.schemes,
        layers=len(layer_numbers(study.source.tensors)),
        update=lambda done, all: flags.say(args, f"{done} of {all} candidates of this stage"),
    )
    save_best(args.destination, scores[0])
    if args.plot:
        write_file(args.plot, draw_front(scores, title=str(args.source)))
    print(summary(scores, args.destination))
    return 0
