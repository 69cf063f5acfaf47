"""``casspec chat``: a conversation of several turns."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from cassandra_spec.casspec import flags
from cassandra_spec.casspec.generate_command import add_generation, open_backend, print_outcome

if TYPE_CHECKING:
    from cassandra_spec.drafting import Prompt, Replies

EPILOG = """\
examples:
  casspec chat packed
  casspec chat packed --system "Answer in one sentence." --max-tokens 256

Each line of input is a message; the model sees the whole conversation through its chat template.
The end of the input (Ctrl-D) or Ctrl-C ends it, and prints the figures over all replies.
"""


def register(subparsers: flags.Subparsers) -> None:
    """Add the command."""
    text = "talk with a packed model, in several turns"
    parser = flags.add_command(subparsers, "chat", text, EPILOG, _chat)
    parser.add_argument("source", metavar="PACKED", type=Path, help="directory of a packed model")
    parser.set_defaults(raw=False, json=False)
    add_generation(parser)


def _chat(args: argparse.Namespace) -> int:
    """``casspec chat``."""
    from cassandra_spec.drafting import Replies

    with open_backend(args) as (backend, settings):
        replies = Replies(backend, settings)
        try:
            replies.run(_turns(args, replies), lambda _, text: print(text, end="", flush=True))
        except KeyboardInterrupt as error:
            if type(error) is not KeyboardInterrupt:
                raise  # terminated
        if replies:
            print_outcome(replies.generation(), args)
    return 0


def _turns(args: argparse.Namespace, replies: Replies) -> Iterator[Prompt]:
    """The conversation up to each message of the user."""
    history = [{"role": "system", "content": args.system}] if args.system is not None else []
    shown = "> " if sys.stdin.isatty() else ""
    while line := _message(shown):
        history.append({"role": "user", "content": line})
        yield list(history)
        history.append({"role": "assistant", "content": replies.last_text})
        print(flush=True)


def _message(shown: str) -> str:
    """The next line that is not empty; nothing at the end of the input."""
    print(shown, end="", file=sys.stderr, flush=True)
    for line in sys.stdin:
        if text := line.strip():
            return text
    return ""
