"""``casspec tune``: the best settings of a model."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cassandra_spec.casspec.flags import Subparsers, add_command
from cassandra_spec.casspec.study import add_study_flags, open_study
from cassandra_spec.golden.format import SCHEMES

if TYPE_CHECKING:
    from cassandra_spec.model.study.tuning import Score

EPILOG = """\
examples:
  casspec tune smollm2 tuned.toml
  casspec tune smollm2 tuned.toml --schemes unary exact --plot front.svg
  casspec pack smollm2 packed --recipe tuned.toml

Measures candidates on 8 prompts that no other figure is taken of, coarse to fine, each with the
gamma and the minimum margin that suit it best, and writes the best as a file that `casspec pack
--recipe` takes. What was measured is kept in OUT.state.json: run the command again to go on.
Scheme mx rounds the target and takes part only if it is named.
docs/acceptance.md describes the search and both objectives.
"""


def register(subparsers: Subparsers) -> None:
    """Add the command."""
    text = "search the best settings of a model"
    parser = add_command(subparsers, "tune", text, EPILOG, tune)
    add_study_flags(parser)
    parser.add_argument("destination", metavar="OUT", type=Path, help="file for `pack --recipe`")
    parser.add_argument(
        "--schemes",
        nargs="+",
        choices=SCHEMES,
        default=["unary", "exact"],
        help="to search (default: those with an exact target)",
    )
    parser.add_argument("--plot", type=Path, metavar="FILE", help="the Pareto front, as SVG")


def tune(args: argparse.Namespace) -> int:
    """``casspec tune``."""
    from cassandra_spec.bench.tuning import summary
    from cassandra_spec.model.output import write_file
    from cassandra_spec.model.study import tuning
    from cassandra_spec.model.study.figure import draw_front
    from cassandra_spec.model.weights.architectures import layer_numbers

    state_file = args.destination.with_name(args.destination.name + ".state.json")
    study = open_study(args, "development")
    state = tuning.State(state_file, study.about())

    def update(done: int, total: int) -> None:
        if not args.quiet:
            print(f"{done} of {total} candidates of this stage", file=sys.stderr)

    scores = tuning.tune(
        study.measure,
        state,
        depth=study.depth,
        schemes=args.schemes,
        layers=len(layer_numbers(study.source.tensors)),
        update=update,
    )
    _save_plan(args.destination, scores[0])
    if args.plot:
        write_file(args.plot, draw_front(scores, title=str(args.source)))
    print(summary(scores, args.destination))
    return 0


def _save_plan(path: Path, best: Score) -> None:
    """The best plan, after a line that says how to generate with it."""
    from cassandra_spec.bench.tuning import best_flags
    from cassandra_spec.model.output import write_file

    best.candidate.plan().save(path)
    write_file(path, f"# casspec generate PACKED {best_flags(best)}\n".encode() + path.read_bytes())
