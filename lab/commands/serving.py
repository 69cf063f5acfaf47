"""Define ``casspec bench serving`` and ``casspec bench soak-server``."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from cassandra_spec.bench import equal
from cassandra_spec.golden import CassandraError
from cassandra_spec.lab.serving.requests import KINDS
from cassandra_spec.model import flags as model_flags
from cassandra_spec.toolkit import flags

CLIENTS = (1, 2, 4, 8, 16)
TEMPERATURES = (0.0, 0.7)

EPILOG = """\
examples:
  casspec bench serving packed
  casspec bench serving packed --clients 1 4 --temperatures 0 --rounds 5 --journal answers
  casspec bench serving packed --questions question.jsonl --longest 200 \\
      --llama-server bin/llama-server --llama-model BF16=bf16.gguf --llama-model Q8_0=q8.gguf \\
      --llama-drafts ngram-simple --journal answers --document docs/results/serving.md
  casspec bench serving packed --also "lookup=--draft lookup" --also "noise=packed-noise --gamma 4"

Starts the servers on free ports of this machine: `casspec serve` with --plain, with its default
flags and with those of --also; llama-server with each model, without drafts and with those of
--llama-drafts (values of its --spec-type). Each load runs on all servers in turn; a server without
load is stopped. Clients stream chat completions; the seed of a sampled reply depends on its prompt.
Ratios are taken within a round. The command fails if a reply of `casspec serve` with drafts differs
from the plain one. Ctrl-C prints the figures so far; with --journal, run the command again to
resume. docs/results/serving.md describes the figures.
"""

SOAK_EPILOG = """\
examples:
  casspec bench soak-server packed --minutes 30
  casspec bench soak-server packed --minutes 2 --clients 12 --slots 4 --seed 7 --json soak.json
  casspec bench soak-server packed --minutes 10 --flags "--draft hybrid --gamma 4"

Asks a plain server for the reply to each request, one at a time. Then clients send the same
requests at random to a server with drafts, together, streamed and whole; some disconnect early.
Every finished reply must be the one of the request alone: texts, ends and log-probabilities. Exit
code: 0 if all are and no slot is lost, 1 if not, 130 after Ctrl-C, which ends early.
"""


def add_serving(parser: flags.CommandParser) -> None:
    """Define ``casspec bench serving``."""
    flags.describe(parser, EPILOG, _serving)
    model_flags.add_packed(parser)
    shown = " ".join(map(str, CLIENTS))
    text = f"numbers of concurrent clients (default {shown})"
    flags.add_some(parser, "clients", text, CLIENTS, type=int, metavar="N")
    text = "sampling temperatures; 0: greedy (default 0 0.7)"
    flags.add_some(parser, "temperatures", text, TEMPERATURES, type=float, metavar="T")
    flags.add_questions(parser)
    flags.add_count(parser, "longest", "leave out prompts of more than N tokens")
    flags.add_count(parser, "fill", "fill prompts up to N tokens with the beginning of one text")
    flags.add_count(parser, "max-tokens", "length limit of each reply", 64)
    flags.add_count(parser, "replies", "replies of each load, at least one for each client", 8)
    flags.add_count(parser, "rounds", "number of rounds", 3)
    flags.add_count(parser, "threads", "threads of each server", 2)
    flags.add_count(parser, "context", "length limit of prompt and reply together", 2048)
    flags.add_repeated(
        parser, "also", "LABEL=[PACKED] FLAGS", "casspec serve with other flags, or another model"
    )
    parser.add_argument(
        "--llama-server", type=Path, metavar="PATH", help="llama.cpp's server program"
    )
    flags.add_repeated(parser, "llama-model", "LABEL=FILE", "GGUF file for llama-server")
    text = "also run llama-server with drafts of these types, such as ngram-simple"
    flags.add_some(parser, "llama-drafts", text, metavar="TYPE")
    flags.add_file(parser, "journal", "save measurements to this file, and reuse those in it")
    flags.add_results(parser, "a plot")


def _serving(args: argparse.Namespace) -> int:
    from cassandra_spec.bench.answers import Answers
    from cassandra_spec.bench.report import check_outputs, finish
    from cassandra_spec.lab.serving import contenders as all_contenders
    from cassandra_spec.lab.serving import report
    from cassandra_spec.lab.serving.run import CODE, Bench, make_cells

    _check(args)
    check_outputs(args, "serving")
    sizes = all_contenders.Sizes(
        slots=max(args.clients),
        threads=args.threads,
        context=args.context,
        max_tokens=args.max_tokens,
    )
    contenders = [
        *all_contenders.own_contenders(args.source, args.also, sizes),
        *all_contenders.llama_contenders(
            args.llama_server, args.llama_model, args.llama_drafts, sizes
        ),
    ]
    all_contenders.require_distinct(contenders)
    cells = make_cells(
        _prompts(args),
        rounds=args.rounds,
        temperatures=args.temperatures,
        clients=args.clients,
        replies=args.replies,
    )
    answers = Answers(args.journal, CODE)
    say = partial(flags.say, args)
    with Bench(contenders, cells, max_tokens=args.max_tokens, answers=answers, say=say) as bench:
        whole = bench.run()
    if not bench.loads:
        return 130
    found = report.summaries(bench.loads, contenders)
    title = f"Servers under load, {args.source.name}, {args.threads} threads"
    body: dict[str, Sequence[Any]] = {"figures": found, "loads": bench.loads}
    draw = partial(report.draw, found, title=title)
    finish(args, body, {"serving": report.table(found)}, draw)
    differing = report.faults(found, contenders)
    return equal.report(differing, whole=whole)


def _check(args: argparse.Namespace) -> None:
    """Raise :class:`CassandraError` if a number is out of its range."""
    from cassandra_spec.native.limits import MAX_ROWS

    for count in args.clients:
        if not 1 <= count <= MAX_ROWS:
            raise CassandraError(f"clients must be from 1 to {MAX_ROWS}, not {count}")
    for temperature in args.temperatures:
        if not 0 <= temperature <= 2:
            raise CassandraError(f"temperatures must be from 0 to 2, not {temperature:g}")
    if args.max_tokens + (args.fill or 1) > args.context:
        raise CassandraError(
            f"context must be at least max-tokens and fill together, not {args.context}"
        )


def _prompts(args: argparse.Namespace) -> Sequence[str]:
    """Return the first turns of the questions that fit, categories in turn."""
    from cassandra_spec.bench.decode.prompts import fill_up
    from cassandra_spec.bench.questions import in_turn
    from cassandra_spec.drafting import encode_prompt
    from cassandra_spec.lab.questions import read_questions
    from cassandra_spec.model.packing.calibration import HELD_OUT, read_text
    from cassandra_spec.model.pretrained import load_tokenizer

    tokenizer = load_tokenizer(args.source)
    room = args.context - args.max_tokens
    most = min(each for each in (room, args.longest, args.fill) if each is not None)
    questions = read_questions(args.questions, args.each, uses=("bench", "soak"))
    texts = [each.turns[0] for each in in_turn(questions)]
    found = [text for text in texts if len(encode_prompt(tokenizer, text)) <= most]
    if not found:
        raise CassandraError(f"questions must have a prompt of at most {most} tokens")
    if args.fill is None:
        return found
    filler = read_text(None, HELD_OUT)
    return [fill_up(tokenizer, text, filler, args.fill) for text in found]


def add_soak(parser: flags.CommandParser) -> None:
    """Define ``casspec bench soak-server``."""
    flags.describe(parser, SOAK_EPILOG, _soak)
    model_flags.add_packed(parser)
    flags.add_number(parser, "minutes", "time under load (default 30)", 30.0)
    flags.add_count(parser, "clients", "concurrent clients", 8)
    flags.add_count(parser, "slots", "requests that the server decodes at once", 6)
    flags.add_count(parser, "requests", "number of different requests", 160)
    flags.add_count(parser, "max-tokens", "length limit of the longest reply", 96)
    flags.add_count(parser, "threads", "threads of each server", 2)
    flags.add_count(parser, "context", "length limit of prompt and reply together", 4096)
    flags.add_seed(parser, "seed of requests and clients (default 1)", 1)
    text = "kinds of requests (default: all)"
    flags.add_some(parser, "kinds", text, list(KINDS), list(KINDS))
    text = "more flags of `casspec serve` for the server under load, as one word"
    parser.add_argument("--flags", metavar="FLAGS", default="", help=text)
    flags.add_results(parser)


def _soak(args: argparse.Namespace) -> int:
    from cassandra_spec.bench.report import check_outputs, finish
    from cassandra_spec.lab.serving.requests import draw_requests
    from cassandra_spec.lab.serving.servers import LocalServer, casspec_serve
    from cassandra_spec.lab.serving.soak import Soak, lines, replies_alone

    if not args.minutes > 0:
        raise CassandraError(f"minutes must be above 0, not {args.minutes:g}")
    check_outputs(args, "soak-server")
    requests = draw_requests(
        args.kinds, count=args.requests, max_tokens=args.max_tokens, seed=args.seed
    )
    say = partial(flags.say, args)
    shared = ["--threads", str(args.threads), "--context", str(args.context)]
    with LocalServer("plain", casspec_serve(args.source, *shared, "--slots", "1", "--plain")) as it:
        alone = replies_alone(it, requests, say)
    given = [*shared, "--slots", str(args.slots), *shlex.split(args.flags)]
    sizes = {"clients": args.clients, "slots": args.slots, "seed": args.seed}
    with LocalServer("server", casspec_serve(args.source, *given)) as it:
        soak = Soak(it, requests, alone, **sizes, say=say)
        whole = soak.run(60 * args.minutes)
    for each in soak.found.differences:
        print(f"differs: {each.line()}", file=sys.stderr)
    finish(args, {"soak": [soak.found]}, {"soak-server": lines(soak.found)})
    print(f"\n{'PASS' if soak.found.passed else 'FAIL'}")
    return 1 if not soak.found.passed else 0 if whole else 130
