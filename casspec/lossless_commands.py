"""``casspec bench spec-bench`` and ``conform``: ways to decode beside each other."""

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
docs/results/levels.md describes the figures.
"""

CONFORM_EPILOG = """\
examples:
  casspec conform "packed plain" "packed draft=hybrid min-margin=0.75"
  casspec conform "packed backend=torch" "packed backend=native plain" --count 4
  casspec conform http://127.0.0.1:8080/v1 http://127.0.0.1:8081/v1 --json found.json
  casspec conform "http://127.0.0.1:8000 model=mine key=VARIABLE" "packed plain"
  casspec conform "packed plain" "model.gguf python=bench/bin/python"

A way to decode is a packed model with flags of `casspec generate`; or the address of a server of
OpenAI's interface, with the name of its model and of a variable of the environment that has the
key; or a GGUF file beside a packed model whose tokens it takes, decoded by the llama-cpp-python of
a Python. Exit code: 0 if all is identical, 1 if a reply or a row differs.
docs/software/serving.md says what is compared.
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


def register(subparsers: flags.Subparsers) -> None:
    """Add ``casspec conform``."""
    text = "whether two ways to decode give the same replies: is an engine's speculation lossless?"
    parser = flags.add_command(subparsers, "conform", text, CONFORM_EPILOG, _conform)
    for name in ("one", "other"):
        parser.add_argument(name, metavar=name.upper(), help='a way to decode: "WHAT name=value"')
    text = "text file with one prompt in each line (default: those that come along)"
    flags.add_file(parser, "prompts", text)
    flags.add_count(parser, "count", "prompts, the first ones (default: all)")
    flags.add_count(parser, "max-tokens", "of each reply", 128)
    flags.add_switch(parser, "raw", "no chat template: the model goes on with the prompt")
    flags.add_file(parser, "journal", "keep answers, and take those that are there")
    flags.add_file(parser, "json", "write the report")
    flags.add_quiet(parser)


def _conform(args: argparse.Namespace) -> int:
    import contextlib

    from cassandra_spec.bench.compare.answers import Answers
    from cassandra_spec.bench.compare.questions import Question, read_questions
    from cassandra_spec.bench.conform.run import Run, lines
    from cassandra_spec.bench.decode.report import check_outputs
    from cassandra_spec.casspec.ways import open_ways
    from cassandra_spec.model.output import write_json
    from cassandra_spec.model.study.prompts import read_prompts

    questions = read_questions(None)
    if args.prompts:
        texts = read_prompts(args.prompts)
        questions = [Question(category="prompts", turns=(text,)) for text in texts]
    questions = questions[: args.count]
    check_outputs(args.json)
    with contextlib.ExitStack() as stack:
        ways = open_ways(stack, (args.one, args.other), max_tokens=args.max_tokens, raw=args.raw)
        run = Run(ways, Answers(args.journal))
        asked = run.run(questions, partial(flags.say, args))
    print(lines(run))
    write_json(args.json, run.to_dict())
    return 1 if run.differs else 0 if asked == len(questions) else 130
