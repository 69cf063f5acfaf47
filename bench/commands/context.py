"""``casspec bench context``: decoding speed by context and along a long reply."""

from __future__ import annotations

import argparse
from pathlib import Path

from cassandra_spec.bench import equal
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


def register(subparsers: flags.Subparsers) -> None:
    """Add the command."""
    text = "measure tokens per second by context length, beside llama.cpp"
    parser = flags.add_command(subparsers, "context", text, EPILOG, _context)
    model_flags.add_source(parser)
    flags.add_folder(parser, "out", "folder for models and measurements", "build/context")
    shown = ", ".join(map(str, CONTEXTS))
    text = f"prompt lengths in tokens, ascending (default {shown})"
    flags.add_some(parser, "contexts", text, CONTEXTS, type=int, metavar="N")
    flags.add_count(parser, "reply", "also time replies of N tokens")
    flags.add_count(parser, "max-tokens", "length limit of each reply", 64)
    flags.add_count(parser, "rounds", "number of rounds, each with one prompt", 5)
    parser.add_argument(
        "--llama-python", type=Path, metavar="PATH", help="Python with llama-cpp-python"
    )
    text = "also run native contenders with the code of another checkout"
    parser.add_argument("--beside", type=Path, metavar="CHECKOUT", help=text)
    flags.add_count(parser, "threads", "threads of each contender", 2)
    model_flags.add_calibration(parser)
    flags.add_jobs(parser, "worker processes of packing")
    text = "write context.svg, and reply.svg with --reply"
    parser.add_argument("--figures", type=Path, metavar="FOLDER", help=text)
    flags.add_results(parser)


def _context(args: argparse.Namespace) -> int:
    """``casspec bench context``."""
    from cassandra_spec.bench.decode import context as by_context
    from cassandra_spec.bench.decode.contenders import choose, with_checkout
    from cassandra_spec.bench.decode.report import differing_replies, finish
    from cassandra_spec.bench.decode.run import Bench
    from cassandra_spec.model.output import write_file
    from cassandra_spec.model.weights.sources import open_source

    by_context.check_contexts(args.contexts)
    if args.figures:
        args.figures.mkdir(parents=True, exist_ok=True)
    contenders = choose(by_context.CONTENDERS)
    if args.beside:
        contenders = with_checkout(contenders, args.beside)
    source = open_source(args.source)
    norms = model_flags.norms_of(source, args)
    bench = Bench(
        contenders=contenders,
        folder=args.out,
        max_tokens=args.max_tokens,
        slow_tokens=args.max_tokens,
        threads=args.threads,
        llama_python=args.llama_python and args.llama_python.absolute(),
        table=None,
        jobs=args.jobs,
        say=lambda text: flags.say(args, text),
    )
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
