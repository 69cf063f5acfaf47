"""Define ``casspec compare``, which runs draft methods on the same prompts."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cassandra_spec.golden import CassandraError
from cassandra_spec.toolkit import flags

if TYPE_CHECKING:
    from cassandra_spec.bench.questions import Question
    from cassandra_spec.lab.compare.contenders import Ready

EPILOG = """\
examples:
  casspec compare packed
  casspec compare packed packed-unary --page compare.html --json compare.json
  casspec compare packed --methods cassandra@4 cassandra@8+low int8@8 fractal:n=8:w=8
  casspec compare packed --questions question.jsonl --each 5 --journal answers
  casspec compare packed --no-verifier --methods geodesic ott-od:table=t.safetensors:threshold=0.45
  casspec compare packed --readiness --methods geodesic exit:file=exits.safetensors

A method is NAME[:option=value...][@GAMMA][+low]; +low adds low drafters. All methods run on the
first model, and the first Cassandra method on each model. Ctrl-C prints the figures of the prompts
that all methods have answered; with --journal, run the command again to resume.
docs/software/drafters.md describes methods and figures.
"""


def define(parser: flags.CommandParser) -> None:
    """Define the flags."""
    flags.describe(parser, EPILOG, _compare)
    parser.add_argument(
        "sources", metavar="PACKED", type=Path, nargs="+", help="directories of packed models"
    )
    flags.add_some(parser, "methods", "methods, see below (default: all)", (), metavar="METHOD")
    flags.add_questions(parser)
    flags.add_count(parser, "gamma", "draft length of methods without @GAMMA", 4)
    flags.add_count(parser, "max-tokens", "length limit of each reply", 128)
    text = "evaluate prefix-only methods (own=yes, exit, ott-od) in one pass over plain replies"
    flags.add_switch(parser, "forced", text)
    text = "with --forced: use torch's replies and products, for the loop's exact figures (slower)"
    flags.add_switch(parser, "torch", text)
    text = "let methods reply without a verifier (networks, cascade, ott-od with a threshold)"
    flags.add_switch(parser, "no-verifier", text)
    text = "suppress stop tokens in the first N tokens of all replies"
    flags.add_count(parser, "min-tokens", text, 0, low=0)
    text = "report which methods fit the model, and their gain on development prompts"
    flags.add_switch(parser, "readiness", text)
    flags.add_file(parser, "journal", "save replies to this file, and reuse those in it")
    flags.add_file(parser, "page", "write all tables and plots as an HTML page")
    flags.add_results(parser, "a bar chart")


def _compare(args: argparse.Namespace) -> int:
    from cassandra_spec.bench import equal
    from cassandra_spec.bench.answers import ROOMS, Answers
    from cassandra_spec.bench.report import check_outputs
    from cassandra_spec.lab.compare import contenders, readiness, report
    from cassandra_spec.lab.compare.forced import forced_turns
    from cassandra_spec.lab.compare.run import Run
    from cassandra_spec.lab.questions import ALL, read_questions

    _check(args)
    block = "compare forced" if args.forced else "compare"
    check_outputs(args, block)
    questions = read_questions(
        args.questions, args.each, uses=["development" if args.readiness else "bench"]
    )
    answers = Answers(args.journal, (*ROOMS, "lab"))
    texts = args.methods or contenders.default_contenders()
    sizes, refused = {"gamma": args.gamma, "max_tokens": args.max_tokens}, dict[str, str]()
    if args.readiness:
        ready, refused = readiness.prepare(args.sources[0], texts, **sizes)
    else:
        asked = [contenders.Contender.read(text, **sizes) for text in texts]
        ready = contenders.prepare(args.sources, asked)
    if args.no_verifier:
        return _alone(args, ready, questions)
    answered = len(questions)
    with forced_turns(ready, answers, torch=args.torch) if args.forced else nullcontext() as turns:
        compared = Run(ready, min_tokens=args.min_tokens, answers=answers, turns=turns)
        if ready:
            answered = compared.run(questions, partial(flags.say, args))
    if not answered:
        return 130
    found = compared.figures()
    shown = report.tables(found) if found else []
    if args.readiness:
        shown = [readiness.table(args.sources[0], found, refused), *shown]
    print("\n\n".join(table.text() for table in shown))
    if found:
        report.save(
            found,
            title=f"Draft methods, {args.sources[0].name}",
            json_file=args.json,
            figure=args.figure,
            page_file=args.page,
            document=args.document,
            block=block,
        )
    differing = sum(each.looped - each.identical for each in found if each.category == ALL)
    code = equal.report(differing, whole=answered == len(questions))
    return 1 if refused else code


def _alone(args: argparse.Namespace, ready: Sequence[Ready], questions: Sequence[Question]) -> int:
    from cassandra_spec.lab.compare import alone
    from cassandra_spec.model.output import write_json

    say = partial(flags.say, args)
    found = alone.run_alone(ready, questions, say, max_tokens=args.max_tokens)
    print(alone.table(found).text())
    write_json(args.json, [dataclasses.asdict(each) for each in found])
    return 0


def _check(args: argparse.Namespace) -> None:
    """Raise :class:`CassandraError` if options exclude each other."""
    others = (args.forced, args.min_tokens, args.readiness, args.journal)
    if args.no_verifier and (any(others) or args.figure or args.page or args.document):
        raise CassandraError("no-verifier must be with methods, questions, sizes and json alone")
    if args.forced and (args.min_tokens or args.readiness):
        raise CassandraError("forced must be without min-tokens and readiness")
    if args.torch and not args.forced:
        raise CassandraError("torch must be with forced")
    if args.min_tokens > args.max_tokens:
        raise CassandraError(
            f"min-tokens must be at most max-tokens ({args.max_tokens}), not {args.min_tokens}"
        )
    if args.readiness and len(args.sources) > 1:
        raise CassandraError(f"PACKED must be one model with readiness, not {len(args.sources)}")
