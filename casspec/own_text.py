"""Flags of commands that learn from a model's own text, and the backend that generates it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cassandra_spec.model import flags as model_flags
from cassandra_spec.report import flags

if TYPE_CHECKING:
    from cassandra_spec.drafting import Backend, Settings
    from cassandra_spec.model.baking import Baking


def add_flags(parser: flags.Flags, *, tokens: int) -> None:
    """PACKED, OUT, and how the text is made: ``tokens`` of it by default."""
    model_flags.add_packed(parser)
    flags.add_destination(parser, "file to write", "OUT")
    flags.add_count(parser, "tokens", "of the model's own text, at least", tokens, low=0)
    flags.add_repeated(parser, "text", "FILE", "text, or prompts in JSON lines (.jsonl)", Path)
    flags.add_count(parser, "turn-tokens", "of a user turn, at most", 64)
    flags.add_count(parser, "max-tokens", "of each reply", 128)
    flags.add_seed(parser, "default 0", 0)
    flags.add_choice(parser, "backend", ("native", "torch"), "as for `casspec generate`")
    text = "conversations that the native backend holds side by side; the text is the same"
    flags.add_count(parser, "batch", text, 16)
    flags.add_count(parser, "threads", "of the native backend (default: all processors)")
    flags.add_quiet(parser)


def baking(args: argparse.Namespace, **fields: Any) -> Baking:
    """What the flags say of the text; ``fields`` are further ones."""
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
def backend(args: argparse.Namespace) -> Iterator[tuple[Backend, Settings]]:
    """The backend that generates the text, and how it replies."""
    from cassandra_spec.drafting import ADAPTIVE, Settings
    from cassandra_spec.model.backends import BACKENDS, Opening

    alone = args.backend == "native" and args.batch == 1
    reply = Settings(gamma=ADAPTIVE, min_margin=0.75) if alone else Settings(gamma=0)
    opening = Opening(threads=args.threads, sequences=args.batch)
    with BACKENDS[args.backend](args.source, opening, reply) as made:
        yield made, reply
