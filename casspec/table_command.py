"""``casspec bake-table``: a table of n-grams from a model's own text."""

from __future__ import annotations

import argparse

from cassandra_spec.casspec import own_text
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
    own_text.add_flags(parser, tokens=50_000)
    parser.add_argument(
        "--order", type=int, choices=(1, 2, 3), default=3, help="most tokens of a run (default 3)"
    )
    flags.add_count(parser, "size", "most megabytes; the rarest runs are left out (default: all)")


def _bake(args: argparse.Namespace) -> int:
    """``casspec bake-table``."""
    from cassandra_spec.model.baking import bake_table

    baking = own_text.baking(args, order=args.order, most_bytes=args.size and args.size * _MB)
    with own_text.backend(args) as (backend, reply):
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
