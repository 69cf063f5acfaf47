"""``casspec bench context``: decoding speed by context and along a long reply."""

from __future__ import annotations

import argparse
from pathlib import Path

from cassandra_spec.bench import equal
from cassandra_spec.bench.commands import decode
from cassandra_spec.lab.commands.decode import add_rivals, open_bench
from cassandra_spec.model import flags as model_flags
from cassandra_spec.toolkit import flags

CONTEXTS = (256, 2048, 4096, 8000)

EPILOG = """\
examples:
  casspec bench context smollm2 --llama-python bench/bin/python
  casspec bench context smollm2 --contexts 2048 8000 --beside ../before
  casspec bench context smollm2 --reply 4000 --rounds 2 --json context.json --figures docs/results

Contenders take turns on the same prompts, each in its own process, as in `casspec bench decode`:
plain decoding, the draft view, the hybrid, and llama.cpp in BF16 with flash attention off and on.
Text before each prompt fills it up to the context length. Figures are medians over rounds with
quartiles; ratios are taken within each round. The command fails if a speculative reply differs from
plain decoding. --reply N also times replies of N tokens to short prompts, in windows of 256 tokens.
"""


def define(parser: flags.CommandParser) -> None:
    """Define the flags."""
    flags.describe(parser, EPILOG, _context)
    model_flags.add_source(parser)
    decode.add_sizes(parser, "build/context", tokens=64, rounds=5)
    add_rivals(parser)
    shown = ", ".join(map(str, CONTEXTS))
    text = f"prompt lengths in tokens, ascending (default {shown})"
    flags.add_some(parser, "contexts", text, CONTEXTS, type=int, metavar="N")
    flags.add_count(parser, "reply", "also time replies of N tokens")
    text = "write context.svg, and reply.svg with --reply"
    parser.add_argument("--figures", type=Path, metavar="FOLDER", help=text)
    flags.add_results(parser)


def _context(args: argparse.Namespace) -> int:
    """``casspec bench context``."""
    from cassandra_spec.bench.decode.report import differing_replies
    from cassandra_spec.bench.report import finish
    from cassandra_spec.lab.decode import context as by_context
    from cassandra_spec.model.output import write_file
    from cassandra_spec.model.weights.sources import open_source

    by_context.check_contexts(args.contexts)
    if args.figures:
        args.figures.mkdir(parents=True, exist_ok=True)
    fields = {"table": None, "slow_tokens": args.max_tokens}
    bench = open_bench(args, by_context.CONTENDERS, **fields)
    source = open_source(args.source)
    norms = model_flags.norms_of(source, args)
    found = by_context.measure_contexts(bench, source, norms, args.contexts, args.rounds)
    texts, plots = {"context": by_context.context_lines(found)}, []
    title = f"{args.source}, {args.threads} threads"
    plots.append(by_context.context_plot(found, f"Decoding by context: {title}"))
    compared = [each.summary for each in found]
    windows: list[by_context.AlongReply] = []
    if args.reply:
        windows, replies = by_context.measure_reply(bench, source, norms, args.reply, args.rounds)
        texts["reply"] = by_context.reply_lines(windows)
        plots.append(by_context.reply_plot(windows, f"Decoding along a reply: {title}"))
        compared += replies
    finish(args, {"contexts": found, "windows": windows}, texts)
    for plot in plots if args.figures else ():
        write_file(args.figures / f"{plot.name}.svg", plot.svg().encode())
    return equal.report(*differing_replies(compared))
