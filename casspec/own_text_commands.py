"""``casspec bake-table`` and ``train-exits``: what is learnt from a model's own text."""

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

TABLE_EPILOG = """\
examples:
  casspec bake-table packed packed/table.safetensors
  casspec bake-table packed table.safetensors --tokens 200000 --seed 1
  casspec bake-table packed table.safetensors --text notes.txt --text prompts.jsonl --size 4

The model samples user turns and replies to them; the table says what follows its last tokens most
often. Replies never depend on it, only their speed does. A text is counted as it is; the prompts in
a .jsonl file (a text in each line, or an object with a text as prompt) are replied to first.
The same seed gives the same table. Run the command again to go on after an interrupt.
docs/software/table.md describes the file, and what it brings.
"""

EXITS_EPILOG = """\
examples:
  casspec train-exits packed exits.safetensors
  casspec train-exits packed exits.safetensors --layers 8 16 --epochs 5 --seed 1
  casspec train-exits packed exits.safetensors --tokens 0 --text notes.txt --text prompts.jsonl

An exit drafts with the first layers of the model alone, and says how sure it is. Replies never
depend on it, only their speed does. The model itself is not changed. The same seed gives the same
exits. Run the command again to go on after an interrupt.
docs/software/drafters.md describes exits and what they bring.
"""

_MB = 10**6


def register(subparsers: flags.Subparsers) -> None:
    """Add both commands."""
    _add_table(subparsers)
    _add_exits(subparsers)


def _add_table(subparsers: flags.Subparsers) -> None:
    text = "make a table of n-grams from a model's own text"
    parser = flags.add_command(subparsers, "bake-table", text, TABLE_EPILOG, _bake)
    _add_flags(parser, tokens=50_000)
    parser.add_argument(
        "--order", type=int, choices=(1, 2, 3), default=3, help="most tokens of a run (default 3)"
    )
    flags.add_count(parser, "size", "most megabytes; the rarest runs are left out (default: all)")


def _bake(args: argparse.Namespace) -> int:
    """``casspec bake-table``."""
    from cassandra_spec.model.baking import bake_table

    baking = _baking(args, order=args.order, most_bytes=args.size and args.size * _MB)
    with _backend(args) as (backend, reply):
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


def _add_exits(subparsers: flags.Subparsers) -> None:
    text = "train early exits of a model on its own text"
    parser = flags.add_command(subparsers, "train-exits", text, EXITS_EPILOG, _train)
    _add_flags(parser, tokens=100_000)
    flags.add_count(parser, "layers", "before each exit (default 9 17 24)", many="+")
    flags.add_count(parser, "epochs", "", 3)
    text = "of tokens that leave a cascade at an exit (default 0.95)"
    flags.add_number(parser, "precision", text, 0.95, "P")


def _train(args: argparse.Namespace) -> int:
    """``casspec train-exits``."""
    from cassandra_spec.model.exits.run import train_exits
    from cassandra_spec.model.exits.training import Training

    chosen: dict[str, Any] = {"layers": tuple(args.layers)} if args.layers else {}
    training = Training(epochs=args.epochs, precision=args.precision, seed=args.seed, **chosen)
    baking = _baking(args)
    with _backend(args) as (backend, reply):
        done = train_exits(
            backend,
            args.source,
            args.destination,
            baking,
            reply,
            training,
            progress=not args.quiet,
        )
    if done.resumed:
        flags.say(args, f"{done.resumed} conversations and epochs were there from before")
    for each in done.exits:
        flags.say(
            args,
            f"layer {each.layer}: {each.agreement:.3f} of held-out tokens as the model"
            f" (ridge probe {each.probe:.3f}), calibration error {each.calibration_error:.3f},"
            f" threshold {each.threshold:.3f}",
        )
    flags.say(args, f"{args.destination}: {done.tokens:,} tokens, {done.seconds:.0f} s of training")
    return 0


def _add_flags(parser: flags.Flags, *, tokens: int) -> None:
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


def _baking(args: argparse.Namespace, **fields: Any) -> Baking:
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
def _backend(args: argparse.Namespace) -> Iterator[tuple[Backend, Settings]]:
    """The backend that generates the text, and how it replies."""
    from cassandra_spec.drafting import ADAPTIVE, Settings
    from cassandra_spec.model.backends import BACKENDS, Opening

    alone = args.backend == "native" and args.batch == 1
    reply = Settings(gamma=ADAPTIVE, min_margin=0.75) if alone else Settings(gamma=0)
    opening = Opening(threads=args.threads, sequences=args.batch)
    with BACKENDS[args.backend](args.source, opening, reply) as made:
        yield made, reply
