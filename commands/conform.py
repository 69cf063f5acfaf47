"""Define ``casspec conform``, which compares two ways to decode."""

from __future__ import annotations

import argparse
from functools import partial

from cassandra_spec.toolkit import flags

EPILOG = """\
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


def define(parser: flags.CommandParser) -> None:
    """Define the flags."""
    flags.describe(parser, EPILOG, _conform)
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
    from cassandra_spec.bench.questions import Question, bundled_questions
    from cassandra_spec.bench.report import check_outputs
    from cassandra_spec.bench.study.prompts import read_prompts
    from cassandra_spec.commands.ways import open_ways
    from cassandra_spec.model.output import write_json

    questions = bundled_questions("bench")
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
