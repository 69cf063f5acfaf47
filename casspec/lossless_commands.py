"""``casspec bench spec-bench``: a draft beside plain decoding, by a public protocol."""

from __future__ import annotations

import argparse
from functools import partial
from typing import TYPE_CHECKING

from cassandra_spec.casspec import generate_flags
from cassandra_spec.model import flags as model_flags
from cassandra_spec.report import flags

if TYPE_CHECKING:
    from cassandra_spec.drafting import Settings

SPEC_BENCH_EPILOG = """\
examples:
  casspec bench spec-bench packed --questions question.jsonl
  casspec bench spec-bench packed --questions question.jsonl --draft hybrid --min-margin 0.75 \\
      --table table.safetensors --journal answers
  casspec bench spec-bench packed --questions question.jsonl --backend torch --each 1

Each turn is answered with the draft and plainly by the same backend, one after the other; the
command fails if a reply differs. Speed-ups are of whole requests, as the leaderboard has them, with
intervals of 95 % over questions. Prompts are never cut: a turn that does not fit the model with its
reply is left out. Ctrl-C ends with the questions so far; with --journal, the same command goes on.
docs/levels.md describes the figures.
"""


def add_spec_bench(subparsers: flags.Subparsers) -> None:
    """``casspec bench spec-bench``."""
    text = "Spec-Bench's protocol: a draft beside plain decoding, by category"
    parser = flags.add_command(subparsers, "spec-bench", text, SPEC_BENCH_EPILOG, _spec_bench)
    model_flags.add_packed(parser)
    flags.add_file(parser, "questions", "of Spec-Bench (question.jsonl)", required=True)
    flags.add_count(parser, "each", "questions of a category, at most")
    flags.add_count(parser, "max-tokens", "of each reply", 256)
    flags.add_file(parser, "journal", "keep answers, and take those that are there")
    flags.add_file(parser, "json", "write all figures and replies")
    flags.add_file(parser, "figure", "bars, as SVG")
    flags.add_file(parser, "document", "put the tables between its markers")
    flags.add_quiet(parser)
    generate_flags.add_drafts(parser)
    generate_flags.add_backend(parser)
    generate_flags.set_greedy(parser)


def _spec_bench(args: argparse.Namespace) -> int:
    from cassandra_spec.bench.compare import spec_bench
    from cassandra_spec.bench.compare.questions import read_questions
    from cassandra_spec.bench.decode.report import check_outputs, save
    from cassandra_spec.model.output import write_file

    questions = read_questions(args.questions, args.each)
    check_outputs(args.json, args.figure, document=args.document, block="spec-bench")
    with generate_flags.open_backend(args) as (backend, settings):
        run = spec_bench.Run(
            backend, settings, about=generate_flags.identity_of(args), journal=args.journal
        )
        asked = run.run(questions, partial(flags.say, args))
        if not asked:
            return 130
        found = run.figures()
    title = f"Spec-Bench, {args.source.name}, {_draft_name(settings)}, {args.backend} backend"
    tables = spec_bench.tables(found, title=title, left_out=run.left_out)
    text = "\n\n".join(table.text() for table in tables)
    print(text)
    save(
        {"figures": found, "answers": run.answered}, args.json, {"spec-bench": text}, args.document
    )
    if args.figure:
        write_file(args.figure, spec_bench.draw(found, title=title))
    differing = found[-1].turns - found[-1].identical
    print(f"\n{'FAIL' if differing else 'PASS'}: {differing} replies differ from the plain ones")
    return 1 if differing else 0 if asked == len(questions) else 130


def _draft_name(settings: Settings) -> str:
    """The draft in a few words."""
    if not settings.gamma or settings.draft == "none":
        return "plain"
    return f"draft {settings.draft}, gamma {settings.gamma}"
