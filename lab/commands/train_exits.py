"""Define ``casspec train-exits``, which trains early exits on a model's own text."""

from __future__ import annotations

import argparse
from typing import Any

from cassandra_spec.commands.own_text import add_own_text_flags, open_backend, own_text
from cassandra_spec.toolkit import flags

EPILOG = """\
examples:
  casspec train-exits packed exits.safetensors
  casspec train-exits packed exits.safetensors --layers 8 16 --epochs 5 --seed 1
  casspec train-exits packed exits.safetensors --tokens 0 --text notes.txt --text prompts.jsonl

An early exit drafts with the first layers of the model and estimates its confidence. Replies do not
depend on the exits, only their speed does. The model is not changed. The same seed gives the same
exits. To resume after an interrupt, run the command again. docs/software/drafters.md describes
exits and their effect.
"""


def define(parser: flags.CommandParser) -> None:
    """Define the flags."""
    flags.describe(parser, EPILOG, _train)
    add_own_text_flags(parser, tokens=100_000)
    flags.add_count(parser, "layers", "layers before each exit (default 9 17 24)", many="+")
    flags.add_count(parser, "epochs", "passes over the text", 3)
    text = "precision that sets the confidence thresholds of the cascade (default 0.95)"
    flags.add_number(parser, "precision", text, 0.95, "P")


def _train(args: argparse.Namespace) -> int:
    """Run ``casspec train-exits``."""
    from cassandra_spec.lab.exits.run import train_exits
    from cassandra_spec.lab.exits.training import Training

    chosen: dict[str, Any] = {"layers": tuple(args.layers)} if args.layers else {}
    training = Training(epochs=args.epochs, precision=args.precision, seed=args.seed, **chosen)
    baking = own_text(args)
    with open_backend(args) as (backend, reply):
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
