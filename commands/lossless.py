"""Define ``casspec bench spec-bench`` and ``conform``, which compare ways to decode."""

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

SPEC_BENCH_EPILOG = """\
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

CONFORM_EPILOG = """\
examples:
  casspec conform "packed plain" "packed draft=hybrid min-margin=0.75"
  casspec conform "packed backend=torch" "packed backend=native plain" --count 4
  casspec conform "packed temperature=0.7 seed=1" "packed temperature=0.7 seed=1 plain"
  casspec conform http://127.0.0.1:8080/v1 http://127.0.0.1:8081/v1 --json report.json
  casspec conform "http://127.0.0.1:8000 model=mine key=VARIABLE" "packed plain"
  casspec conform "packed plain" "model.gguf python=bench/bin/python"

A decoder is one of:
  PACKED flag=value ...     a packed model, with the flags of `casspec generate`
  URL model=NAME key=VAR    an OpenAI-compatible server; VAR is the environment variable of its key
  FILE.gguf python=PATH     llama.cpp, run by a Python with llama-cpp-python; the other decoder must
                            be a packed model, whose tokenizer it uses
Exit code: 0 if all replies are identical, 1 if not. docs/software/serving.md describes the report.
"""


def add_spec_bench(subparsers: flags.Subparsers) -> None:
    """Add ``casspec bench spec-bench``."""
    text = "run Spec-Bench: speed-up over plain decoding, by category"
    parser = flags.add_command(subparsers, "spec-bench", text, SPEC_BENCH_EPILOG, _spec_bench)
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
    from cassandra_spec.bench import equal, spec_bench
    from cassandra_spec.bench.decode.report import check_outputs, finish
    from cassandra_spec.bench.questions import read_questions

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


def register(subparsers: flags.Subparsers) -> None:
    """Add ``casspec conform``."""
    text = "compare the replies of two decoders, to check that speculation is lossless"
    parser = flags.add_command(subparsers, "conform", text, CONFORM_EPILOG, _conform)
    for name in ("one", "other"):
        parser.add_argument(
            name, metavar=name.upper(), help='decoder, see below: "NAME flag=value ..."'
        )
    text = "text file, one prompt per line (default: the bundled prompts)"
    flags.add_file(parser, "prompts", text)
    flags.add_count(parser, "count", "use the first N prompts (default: all)")
    flags.add_count(parser, "max-tokens", "length limit of each reply", 128)
    flags.add_switch(parser, "raw", "continue the prompt without a chat template")
    flags.add_file(parser, "journal", "save replies to this file, and reuse those in it")
    flags.add_file(parser, "json", "write the report as JSON")
    flags.add_quiet(parser)


def _conform(args: argparse.Namespace) -> int:
    import contextlib

    from cassandra_spec.bench.answers import Answers
    from cassandra_spec.bench.conform.run import Run, lines
    from cassandra_spec.bench.decode.report import check_outputs
    from cassandra_spec.bench.questions import Question, read_questions
    from cassandra_spec.bench.study.prompts import read_prompts
    from cassandra_spec.commands.ways import open_ways
    from cassandra_spec.model.output import write_json

    questions = read_questions(None)
    if args.prompts:
        texts = read_prompts(args.prompts)
        questions = [Question(category="prompts", turns=(text,)) for text in texts]
    questions = questions[: args.count]
    check_outputs(args)
    with contextlib.ExitStack() as stack:
        ways = open_ways(stack, (args.one, args.other), max_tokens=args.max_tokens, raw=args.raw)
        run = Run(ways, Answers(args.journal))
        asked = run.run(questions, partial(flags.say, args))
    print(lines(run))
    write_json(args.json, run.to_dict())
    return 1 if run.differs else 0 if asked == len(questions) else 130
