"""``casspec bake-table``: a table of n-grams from a model's own text."""

from __future__ import annotations

import argparse
from pathlib import Path

from cassandra_spec.casspec import flags
from cassandra_spec.casspec.generate_backends import BACKENDS, BF16
from cassandra_spec.report.commands import integer

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
    parser.add_argument("source", metavar="PACKED", type=Path, help="directory of a packed model")
    parser.add_argument("destination", metavar="OUT", type=Path, help="file to write")
    flags.add_count(parser, "tokens", "of the model's own text, at least", 50_000, low=0)
    text = "text, or prompts in JSON lines (.jsonl); can be given repeatedly"
    parser.add_argument("--text", action="append", default=[], type=Path, metavar="FILE", help=text)
    parser.add_argument(
        "--order", type=int, choices=(1, 2, 3), default=3, help="most tokens of a run (default 3)"
    )
    flags.add_count(parser, "size", "most megabytes; the rarest runs are left out (default: all)")
    flags.add_count(parser, "turn-tokens", "of a user turn, at most", 64)
    flags.add_count(parser, "max-tokens", "of each reply", 128)
    parser.add_argument(
        "--seed", type=integer(0, 2**63 - 1), default=0, metavar="N", help="default 0"
    )
    flags.add_choice(parser, "backend", ("native", "torch"), "as for `casspec generate`")
    flags.add_count(parser, "threads", "of the native backend (default: all processors)")
    flags.add_quiet(parser)
    # what the backends of `generate` have flags for, and a table does not
    parser.set_defaults(
        native_target="bf16",
        table=None,
        verify=False,
        codec="golden",
        kv=BF16,
        temperature=0.0,
        top_k=None,
        top_p=None,
    )


def _bake(args: argparse.Namespace) -> int:
    """``casspec bake-table``."""
    from cassandra_spec.drafting import ADAPTIVE, Settings
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
    with BACKENDS[args.backend](args, reply) as backend:
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
