"""``casspec bench sampling``: acceptance of sampled tokens by temperature and rule."""

from __future__ import annotations

import argparse

from cassandra_spec.model import flags as model_flags
from cassandra_spec.toolkit import flags

EPILOG = """\
examples:
  casspec bench sampling packed
  casspec bench sampling packed --questions question.jsonl --each 4 \\
      --document docs/results/acceptance.md

The draft view drafts chains. A drafted token is accepted if noise that belongs to its place makes
the target choose it, too, or by the paper's Eq. 1 (rejection). The rate is that of tokens whose
predecessors in the round were all accepted, with the standard error of independent tokens.
"""

TEMPERATURES = (0.3, 0.7, 1.0)


def register(subparsers: flags.Subparsers) -> None:
    """Add the command."""
    text = "measure acceptance of sampled tokens, by temperature and rule"
    parser = flags.add_command(subparsers, "sampling", text, EPILOG, _sampling)
    model_flags.add_packed(parser)
    flags.add_questions(parser)
    text = f"sampling temperatures (default {' '.join(map(str, TEMPERATURES))})"
    flags.add_some(parser, "temperatures", text, TEMPERATURES, type=float, metavar="T")
    flags.add_count(parser, "tokens", "length limit of each reply", 64)
    flags.add_count(parser, "gamma", "length of each chain", 3)
    flags.add_count(parser, "threads", "threads of the native engine", 2)
    flags.add_results(parser)


def _sampling(args: argparse.Namespace) -> int:
    from cassandra_spec.bench.decode.report import publish
    from cassandra_spec.bench.questions import read_questions
    from cassandra_spec.bench.sampling import lines, measure

    found = measure(
        args.source,
        read_questions(args.questions, args.each),
        temperatures=args.temperatures,
        tokens=args.tokens,
        gamma=args.gamma,
        threads=args.threads,
        say=lambda text: flags.say(args, text),
    )
    publish(args, {"accepted": found}, {"sampling": lines(found)})
    return 0
