"""``casspec train-exits``: early exits of a frozen model, trained on its own text."""

from __future__ import annotations

import argparse
from typing import Any

from cassandra_spec.casspec import own_text
from cassandra_spec.report import flags

EPILOG = """\
examples:
  casspec train-exits packed exits.safetensors
  casspec train-exits packed exits.safetensors --layers 8 16 --epochs 5 --seed 1
  casspec train-exits packed exits.safetensors --tokens 0 --text notes.txt --text prompts.jsonl

An exit drafts with the first layers of the model alone, and says how sure it is. Replies never
depend on it, only their speed does. The model itself is not changed. The same seed gives the same
exits. Run the command again to go on after an interrupt.
docs/drafters.md describes exits and what they bring.
"""


def register(subparsers: flags.Subparsers) -> None:
    """Add the command."""
    text = "train early exits of a model on its own text"
    parser = flags.add_command(subparsers, "train-exits", text, EPILOG, _train)
    own_text.add_flags(parser, tokens=100_000)
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
    baking = own_text.baking(args)
    with own_text.backend(args) as (backend, reply):
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
