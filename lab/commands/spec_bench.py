"""Define ``casspec bench spec-bench``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from cassandra_spec.commands import generate_flags
from cassandra_spec.model import flags as model_flags
from cassandra_spec.toolkit import flags

if TYPE_CHECKING:
    from cassandra_spec.drafting import Settings

EPILOG = """\
examples:
  casspec bench spec-bench packed --questions question.jsonl
  casspec bench spec-bench packed --questions question.jsonl --draft hybrid --min-margin 0.75 \\
      --table table.safetensors --journal answers
  casspec bench spec-bench packed --questions question.jsonl --backend torch --each 1

The same backend answers each turn twice, with drafts and by plain decoding; the command fails if
the replies differ. Speed-ups are those of whole requests, as on the leaderboard, with 95 %
intervals over questions. Prompts are never cut: a turn is left out if prompt and reply exceed the
model's context. Ctrl-C prints the figures so far; with --journal, run the command again to resume.
docs/results/levels.md describes the figures.
"""


def define(parser: flags.CommandParser) -> None:
    """Define the flags."""
    flags.describe(parser, EPILOG, _spec_bench)
    model_flags.add_packed(parser)
    flags.add_file(parser, "questions", "Spec-Bench's question.jsonl", required=True)
    flags.add_count(parser, "each", "use the first N questions of each category")
    flags.add_count(parser, "max-tokens", "length limit of each reply", 256)
    flags.add_file(parser, "journal", "save replies to this file, and reuse those in it")
    flags.add_results(parser, "a bar chart")
    generate_flags.add_drafts(parser)
    generate_flags.add_backend(parser)
    generate_flags.set_greedy(parser)


def _spec_bench(args: argparse.Namespace) -> int:
    from cassandra_spec.bench import equal
    from cassandra_spec.bench.report import check_outputs, finish
    from cassandra_spec.lab.drafts import spec_bench
    from cassandra_spec.lab.questions import read_questions

    questions = read_questions(args.questions, args.each)
    check_outputs(args, "spec-bench")
    with generate_flags.open_model(args) as model:
        settings = model.settings_of(**generate_flags.reply_options(args))
        about = generate_flags.identity_of(model)
        run = spec_bench.Run(model.backend, settings, about=about, journal=args.journal)
        asked = run.run(questions, partial(flags.say, args))
        if not asked:
            return 130
        found = run.figures()
    title = f"Spec-Bench, {args.source.name}, {_draft_name(settings)}, {args.backend} backend"
    tables = spec_bench.tables(found, title=title, left_out=run.left_out)
    text = "\n\n".join(table.text() for table in tables)
    body: dict[str, Sequence[Any]] = {"figures": found, "answers": run.answered}
    finish(args, body, {"spec-bench": text}, partial(spec_bench.draw, found, title=title))
    differing = found[-1].turns - found[-1].identical
    return equal.report(differing, whole=asked == len(questions))


def _draft_name(settings: Settings) -> str:
    """Return the draft and its length in a few words."""
    if not settings.gamma or settings.draft == "none":
        return "plain"
    return f"draft {settings.draft}, gamma {settings.gamma}"
