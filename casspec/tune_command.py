"""``casspec tune``: the best settings of a model."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cassandra_spec.casspec.bench_commands import add_study_flags, open_study
from cassandra_spec.golden.format import SCHEMES
from cassandra_spec.report.tables import text_table

if TYPE_CHECKING:
    from cassandra_spec.model.study.tuning import Score

__all__ = ["EPILOG", "register", "tune"]

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

_SHOWN = 12


def register(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.set_defaults(run=tune)
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
    from cassandra_spec.model.output import write_file
    from cassandra_spec.model.study import tuning
    from cassandra_spec.model.study.figure import draw_front

    state_file = args.destination.with_name(args.destination.name + ".state.json")
    study = open_study(args, "development")
    state = tuning.State(state_file, study.about())

    def update(done: int, total: int) -> None:
        if not args.quiet:
            print(f"{done} of {total} candidates of this stage", file=sys.stderr)

    scores = tuning.tune(
        study.measure, state, depth=study.depth, schemes=args.schemes, update=update
    )
    _save_plan(args.destination, scores[0])
    if args.plot:
        write_file(args.plot, draw_front(scores, title=str(args.source)))
    _print(args, scores)
    return 0


def _save_plan(path: Path, best: Score) -> None:
    """The best plan, after a line that says how to generate with it."""
    from cassandra_spec.model.output import write_file

    best.candidate.plan().save(path)
    write_file(path, f"# casspec generate PACKED {_flags(best)}\n".encode() + path.read_bytes())


def _flags(score: Score) -> str:
    return f"--gamma {score.gamma} --min-margin {score.min_margin:g}"


def _print(args: argparse.Namespace, scores: list[Score]) -> None:
    best, by_eq_2 = scores[0], max(scores, key=lambda score: score.eq_2)
    print(text_table(["candidate", *_COLUMNS], [_cells(score) for score in scores[:_SHOWN]]))
    print(f"\n{args.destination}: {best.candidate.name}; best with {_flags(best)}")
    if by_eq_2.candidate == best.candidate:
        print("Eq. 2 chooses the same.")
        return
    print(
        f"Eq. 2 would choose {by_eq_2.candidate.name} ({by_eq_2.eq_2:.3f} against"
        f" {best.eq_2:.3f}), whose traffic speed-up is {by_eq_2.speedup:.3f} at its best gamma,"
        f" {by_eq_2.gamma}, against {best.speedup:.3f}."
    )


_COLUMNS = (
    "draft",
    "whole",
    "gamma",
    "margin",
    "accepted",
    "speed-up",
    "margin 0",
    "plain",
    "Eq. 2",
)


def _cells(score: Score) -> list[str]:
    return [
        score.candidate.name,
        f"{score.draft_bits:.2f}",
        f"{score.target_bits:.2f}",
        str(score.gamma),
        f"{score.min_margin:g}",
        f"{score.acceptance:.3f}",
        f"{score.speedup:.3f}",
        f"{score.speedup_without:.3f}",
        f"{score.plain_speedup:.3f}",
        f"{score.eq_2:.3f}",
    ]
