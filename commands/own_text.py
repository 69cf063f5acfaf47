"""Define ``casspec bake-table`` and ``train-exits``, which learn from a model's own text."""

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

EXITS_EPILOG = """\
examples:
  casspec train-exits packed exits.safetensors
  casspec train-exits packed exits.safetensors --layers 8 16 --epochs 5 --seed 1
  casspec train-exits packed exits.safetensors --tokens 0 --text notes.txt --text prompts.jsonl

An early exit drafts with the first layers of the model and estimates its confidence. Replies do not
depend on the exits, only their speed does. The model is not changed. The same seed gives the same
exits. To resume after an interrupt, run the command again. docs/software/drafters.md describes
exits and their effect.
"""

_MB = 10**6


def register(subparsers: flags.Subparsers) -> None:
    """Add both commands."""
    _add_table(subparsers)
    _add_exits(subparsers)


def _add_table(subparsers: flags.Subparsers) -> None:
    text = "build a table of n-grams from a model's own text"
    parser = flags.add_command(subparsers, "bake-table", text, TABLE_EPILOG, _bake)
    _add_flags(parser, tokens=50_000)
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

    baking = _baking(args, order=args.order, max_bytes=args.size and args.size * _MB)
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
    text = "train early exits on a model's own text"
    parser = flags.add_command(subparsers, "train-exits", text, EXITS_EPILOG, _train)
    _add_flags(parser, tokens=100_000)
    flags.add_count(parser, "layers", "layers before each exit (default 9 17 24)", many="+")
    flags.add_count(parser, "epochs", "passes over the text", 3)
    text = "precision that sets the confidence thresholds of the cascade (default 0.95)"
    flags.add_number(parser, "precision", text, 0.95, "P")


def _train(args: argparse.Namespace) -> int:
    """Run ``casspec train-exits``."""
    from cassandra_spec.bench.exits.run import train_exits
    from cassandra_spec.bench.exits.training import Training

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


def _baking(args: argparse.Namespace, **fields: Any) -> Baking:
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
def _backend(args: argparse.Namespace) -> Iterator[tuple[Backend, Settings]]:
    """Open the backend that generates the text; yield it and the settings of replies."""
    from cassandra_spec.drafting import ADAPTIVE, Settings
    from cassandra_spec.model.backends import BACKENDS, Opening

    alone = args.backend == "native" and args.batch == 1
    reply = Settings(gamma=ADAPTIVE, min_margin=0.75) if alone else Settings(gamma=0)
    opening = Opening(threads=args.threads, sequences=args.batch)
    with BACKENDS[args.backend](args.source, opening, reply) as made:
        yield made, reply
