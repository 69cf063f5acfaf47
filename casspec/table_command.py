"""``casspec bake-table``: a table of n-grams from a model's own text."""

from __future__ import annotations

import argparse
from pathlib import Path

from cassandra_spec.casspec import model_flags
from cassandra_spec.report import flags

EPILOG = """\
examples:
  casspec bake-table packed packed/table.safetensors
  casspec bake-table packed table.safetensors --tokens 200000 --seed 1
  casspec bake-table packed table.safetensors --text notes.txt --text prompts.jsonl --size 4

The model samples user turns and replies to them; the table says what follows its last tokens most
often. Replies never depend on it, only their speed does. A text is counted as it is; the prompts in
a .jsonl file (a text in each line, or an object with a text as prompt) are replied to first.
The same seed gives the same table. Run the command again to go on after an interrupt.
docs/table.md describes the file, and what it brings.
"""

_MB = 10**6


def register(subparsers: flags.Subparsers) -> None:
    """Add the command."""
    text = "make a table of n-grams from a model's own text"
    parser = flags.add_command(subparsers, "bake-table", text, EPILOG, _bake)
    model_flags.add_packed(parser)
    flags.add_destination(parser, "file to write", "OUT")
    flags.add_count(parser, "tokens", "of the model's own text, at least", 50_000, low=0)
    flags.add_repeated(parser, "text", "FILE", "text, or prompts in JSON lines (.jsonl)", Path)
    parser.add_argument(
        "--order", type=int, choices=(1, 2, 3), default=3, help="most tokens of a run (default 3)"
    )
    flags.add_count(parser, "size", "most megabytes; the rarest runs are left out (default: all)")
    flags.add_count(parser, "turn-tokens", "of a user turn, at most", 64)
    flags.add_count(parser, "max-tokens", "of each reply", 128)
    flags.add_seed(parser, "default 0", 0)
    flags.add_choice(parser, "backend", ("native", "torch"), "as for `casspec generate`")
    flags.add_count(parser, "threads", "of the native backend (default: all processors)")
    flags.add_quiet(parser)


def _bake(args: argparse.Namespace) -> int:
    """``casspec bake-table``."""
    from cassandra_spec.drafting import ADAPTIVE, Settings
    from cassandra_spec.model.backends import BACKENDS, Opening
    from cassandra_spec.model.baking import Baking, bake_table

    baking = Baking(
        tokens=args.tokens,
        texts=tuple(args.text),
        turn_tokens=args.turn_tokens,
        reply_tokens=args.max_tokens,
        seed=args.seed,
        order=args.order,
        most_bytes=args.size and args.size * _MB,
    )
    native = args.backend == "native"
    reply = Settings(gamma=ADAPTIVE, min_margin=0.75) if native else Settings(gamma=0)
    with BACKENDS[args.backend](args.source, Opening(threads=args.threads), reply) as backend:
        done = bake_table(
            backend, args.source, args.destination, baking, reply, progress=not args.quiet
        )
    if done.resumed:
        flags.say(args, f"{done.resumed} conversations were there from an interrupted run")
    flags.say(
        args,
        f"{args.destination}: {done.entries:,} runs of {done.own_tokens:,} own tokens and "
        f"{done.text_tokens:,} of texts, {done.bytes:,} bytes",
    )
    return 0
