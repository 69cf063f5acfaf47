"""Define ``casspec bake-table``, which learns from a model's own text."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cassandra_spec.model import flags as model_flags
from cassandra_spec.toolkit import flags

if TYPE_CHECKING:
    from cassandra_spec.drafting import Backend, Settings
    from cassandra_spec.model.baking import Baking

TABLE_EPILOG = """\
examples:
  casspec bake-table packed packed/table.safetensors
  casspec bake-table packed table.safetensors --tokens 200000 --seed 1
  casspec bake-table packed table.safetensors --text notes.txt --text prompts.jsonl --size 4

The model samples conversations; the table stores the most frequent next tokens of each n-gram in
them. Replies do not depend on the table, only their speed does. Text files are counted directly;
the prompts of a .jsonl file (a string per line, or an object with a string "prompt") are answered
by the model first. The same seed gives the same table. To resume after an interrupt, run the
command again. docs/software/table.md describes the file and its effect.
"""

_MB = 10**6


def define(parser: flags.CommandParser) -> None:
    """Define the flags."""
    flags.describe(parser, TABLE_EPILOG, _bake)
    add_own_text_flags(parser, tokens=50_000)
    parser.add_argument(
        "--order",
        type=int,
        choices=(1, 2, 3),
        default=3,
        help="longest context of an entry, in tokens (default 3)",
    )
    flags.add_count(
        parser, "size", "size limit in MB; the rarest entries are left out (default: no limit)"
    )


def _bake(args: argparse.Namespace) -> int:
    """Run ``casspec bake-table``."""
    from cassandra_spec.model.baking import bake_table

    baking = own_text(args, order=args.order, max_bytes=args.size and args.size * _MB)
    with open_backend(args) as (backend, reply):
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


def add_own_text_flags(parser: flags.Flags, *, tokens: int) -> None:
    """Add PACKED, OUT and the flags of the model's own text; ``tokens`` is its default length."""
    model_flags.add_packed(parser)
    flags.add_destination(parser, "file to write", "OUT")
    flags.add_count(parser, "tokens", "length of the model's own text", tokens, low=0)
    flags.add_repeated(
        parser, "text", "FILE", "also learn from a text, or from prompts (.jsonl)", Path
    )
    flags.add_count(parser, "turn-tokens", "length limit of sampled user turns", 64)
    flags.add_count(parser, "max-tokens", "length limit of each reply", 128)
    flags.add_seed(parser, "seed of the sampler (default 0)", 0)
    flags.add_choice(parser, "backend", ("native", "torch"), "engine that generates the text")
    text = "conversations that the native backend generates at once; the text does not depend on it"
    flags.add_count(parser, "batch", text, 16)
    flags.add_count(parser, "threads", "threads of the native backend (default: all processors)")
    flags.add_quiet(parser)


def own_text(args: argparse.Namespace, **fields: Any) -> Baking:
    """Return the settings of the text from the flags and further ``fields``."""
    from cassandra_spec.model.baking import Baking

    return Baking(
        tokens=args.tokens,
        texts=tuple(args.text),
        turn_tokens=args.turn_tokens,
        reply_tokens=args.max_tokens,
        seed=args.seed,
        **fields,
    )


@contextmanager
def open_backend(args: argparse.Namespace) -> Iterator[tuple[Backend, Settings]]:
    """Open the backend that generates the text; yield it and the settings of replies."""
    from cassandra_spec.drafting import ADAPTIVE, Settings
    from cassandra_spec.model.backends import BACKENDS, Opening

    alone = args.backend == "native" and args.batch == 1
    reply = Settings(gamma=ADAPTIVE, min_margin=0.75) if alone else Settings(gamma=0)
    opening = Opening(threads=args.threads, sequences=args.batch)
    with BACKENDS[args.backend](args.source, opening, reply) as made:
        yield made, reply
