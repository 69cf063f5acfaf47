"""Flags that several commands have."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

from cassandra_spec.report.commands import CommandParser, integer

Flags: TypeAlias = argparse.ArgumentParser | argparse._ArgumentGroup
Subparsers: TypeAlias = "argparse._SubParsersAction[CommandParser]"
MOST = 2**31 - 1
"""The largest count that a flag takes."""


def add_command(
    subparsers: Subparsers,
    name: str,
    text: str,
    epilog: str,
    run: Callable[[argparse.Namespace], int] | None = None,
) -> CommandParser:
    """A subcommand: what it does in a few words, examples, and the function that runs it."""
    description = f"{text[0].upper()}{text[1:]}."
    parser = subparsers.add_parser(name, help=text, description=description, epilog=epilog)
    if run:
        parser.set_defaults(run=run)
    return parser


def add_count(
    parser: Flags, name: str, text: str, default: int | None = None, *, low: int = 1, many: str = ""
) -> None:
    """``--NAME N``, an integer of at least ``low``; ``many`` is that of ``nargs``."""
    shown = "" if default is None else f"{' ' if text else ''}(default {default})"
    parser.add_argument(
        f"--{name}",
        type=integer(low, MOST),
        nargs=many or None,
        default=default,
        metavar="N",
        help=f"{text}{shown}",
    )


def add_file(parser: Flags, name: str, text: str) -> None:
    """``--NAME FILE``."""
    parser.add_argument(f"--{name}", type=Path, metavar="FILE", help=text)


def add_choice(
    parser: Flags, name: str, choices: Sequence[str], text: str, default: str | None = None
) -> None:
    """``--NAME`` with one of some words, the first of them by default."""
    chosen = default or choices[0]
    text = f"{text} (default {chosen})"
    parser.add_argument(f"--{name}", choices=choices, default=chosen, help=text)


def add_switch(parser: Flags, name: str, text: str) -> None:
    """``--NAME``, false without it."""
    parser.add_argument(f"--{name}", action="store_true", help=text)


def add_jobs(parser: Flags, text: str = "processes (default: all cores)") -> None:
    """``--jobs N``."""
    add_count(parser, "jobs", text)


def add_quiet(parser: Flags) -> None:
    """``--quiet``."""
    add_switch(parser, "quiet", "no progress, errors alone")


def shows_progress(args: argparse.Namespace) -> bool:
    """Whether progress bars are wanted: on a terminal, unless ``--quiet`` is given."""
    return not args.quiet and sys.stderr.isatty()


def say(args: argparse.Namespace, line: str) -> None:
    """Print a line of progress, unless ``--quiet`` is given."""
    if not args.quiet:
        print(line, file=sys.stderr, flush=True)


def add_calibration(parser: Flags) -> None:
    """``--calibration FILE``."""
    add_file(parser, "calibration", "text or norms, as for `casspec pack`")


def add_source(parser: Flags) -> None:
    """``[SOURCE]``: a model that is not packed."""
    parser.add_argument(
        "source", metavar="SOURCE", nargs="?", default="smollm2", help="model (default smollm2)"
    )
