"""``casspec compare``: every draft method on the same prompts."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from cassandra_spec.report import flags

EPILOG = """\
examples:
  casspec compare packed
  casspec compare packed packed-unary --page compare.html --json compare.json
  casspec compare packed --methods cassandra@4 cassandra@8+low int8@8 fractal:n=8:w=8
  casspec compare packed --questions question.jsonl --each 5 --max-tokens 64

A method is NAME:option=value, then @GAMMA and +low (above low drafters), where wanted. All run on
the first model, the first Cassandra on each. Ctrl-C ends with the prompts that all have answered.
docs/drafters.md describes methods and figures.
"""


def register(subparsers: flags.Subparsers) -> None:
    """Add the command."""
    text = "all draft methods on the same prompts"
    parser = flags.add_command(subparsers, "compare", text, EPILOG, _compare)
    parser.add_argument(
        "sources", metavar="PACKED", type=Path, nargs="+", help="directories of packed models"
    )
    flags.add_some(parser, "methods", "(default: each as its file says)", (), metavar="METHOD")
    flags.add_file(parser, "questions", "of Spec-Bench (default: the bundled prompts)")
    flags.add_count(parser, "each", "questions of a category, at most")
    flags.add_count(parser, "gamma", "of methods without @GAMMA", 4)
    flags.add_count(parser, "max-tokens", "of each reply", 128)
    text = "no loop: prefix-only methods (own=yes) from one teacher-forced pass over plain replies"
    flags.add_switch(parser, "forced", text)
    flags.add_file(parser, "json", "write all figures")
    flags.add_file(parser, "figure", "bars, as SVG")
    flags.add_file(parser, "page", "everything, as one page of HTML")
    flags.add_file(parser, "document", "put the tables between its markers")
    flags.add_quiet(parser)


def _compare(args: argparse.Namespace) -> int:
    from cassandra_spec.bench.compare import report, run
    from cassandra_spec.bench.compare.forced import run_forced
    from cassandra_spec.bench.levels import ALL, read_questions

    questions = read_questions(args.questions, args.each)
    contenders = [
        run.Contender.read(text, gamma=args.gamma, max_tokens=args.max_tokens)
        for text in args.methods or run.default_contenders()
    ]
    compared = run.Run(args.sources, contenders)
    answered = len(questions)
    if args.forced:
        run_forced(compared, questions, partial(flags.say, args), max_tokens=args.max_tokens)
    else:
        answered = compared.run(questions, partial(flags.say, args))
    if not answered:
        return 130
    found = compared.figures()
    print("\n\n".join(table.text() for table in report.tables(found)))
    report.save(
        found,
        title=f"Draft methods, {args.sources[0].name}",
        json_file=args.json,
        figure=args.figure,
        page_file=args.page,
        document=args.document,
        block="compare forced" if args.forced else "compare",
    )
    differing = sum(each.looped - each.identical for each in found if each.category == ALL)
    print(f"\n{'FAIL' if differing else 'PASS'}: {differing} replies differ from the plain ones")
    return 1 if differing else 0 if answered == len(questions) else 130
