"""Add flags in the one form that all commands share."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from cassandra_spec.toolkit.running import CommandParser, integer

Flags: TypeAlias = argparse.ArgumentParser | argparse._ArgumentGroup
MAX_COUNT = 2**31 - 1
"""The largest count that a flag takes."""


@dataclasses.dataclass(frozen=True)
class Command:
    """A subcommand, whose module is imported when the subcommand is given."""

    name: str
    text: str  # its line in the help
    place: str  # "module:function" in the package; the function adds the flags to a parser

    def define(self, parser: CommandParser) -> None:
        """Add the flags."""
        module, _, function = self.place.partition(":")
        getattr(importlib.import_module(f"cassandra_spec.{module}"), function)(parser)


def add_commands(
    parser: CommandParser, commands: Iterable[Command], metavar: str = "COMMAND"
) -> None:
    """Add subcommands; a command line must name one."""
    inner: argparse._SubParsersAction[CommandParser] = parser.add_subparsers(
        metavar=metavar, required=True
    )
    for each in commands:
        description = f"{each.text[0].upper()}{each.text[1:]}."
        made = inner.add_parser(each.name, help=each.text, description=description)
        made.define_later(each.define)


def describe(
    parser: CommandParser, epilog: str, run: Callable[[argparse.Namespace], int] | None = None
) -> None:
    """Set the examples and notes below the options, and the function of a subcommand."""
    parser.epilog = epilog
    if run:
        parser.set_defaults(run=run)


def add_count(
    parser: Flags, name: str, text: str, default: int | None = None, *, low: int = 1, many: str = ""
) -> None:
    """Add ``--NAME N``, an integer of at least ``low``; ``many`` is argparse's ``nargs``."""
    shown = "" if default is None else f"{' ' if text else ''}(default {default})"
    parser.add_argument(
        f"--{name}",
        type=integer(low, MAX_COUNT),
        nargs=many or None,
        default=default,
        metavar="N",
        help=f"{text}{shown}",
    )


def add_seed(parser: Flags, text: str, default: int | None = None) -> None:
    """Add ``--seed N``."""
    kind = integer(0, 2**63 - 1)
    parser.add_argument("--seed", type=kind, default=default, metavar="N", help=text)


def add_number(
    parser: Flags, name: str, text: str, default: float | None = None, metavar: str = "X"
) -> None:
    """Add ``--NAME X``, a number; the code that uses it checks its range."""
    parser.add_argument(f"--{name}", type=float, default=default, metavar=metavar, help=text)


def add_some(
    parser: Flags,
    name: str,
    text: str,
    default: Sequence[Any] = (),
    choices: Sequence[Any] | None = None,
    **more: Any,
) -> None:
    """Add ``--NAME A B ...``, words, restricted to ``choices`` if given."""
    parser.add_argument(
        f"--{name}", nargs="+", choices=choices, default=list(default), help=text, **more
    )


def add_repeated(parser: Flags, name: str, metavar: str, text: str, kind: Any = None) -> None:
    """Add ``--NAME TEXT``, a repeatable flag."""
    text = f"{text}; repeatable" if text else "repeatable"
    parser.add_argument(
        f"--{name}", action="append", default=[], type=kind, metavar=metavar, help=text
    )


def add_file(parser: Flags, name: str, text: str, *, required: bool = False) -> None:
    """Add ``--NAME FILE``."""
    parser.add_argument(f"--{name}", type=Path, metavar="FILE", required=required, help=text)


def add_folder(
    parser: Flags, name: str, text: str, default: str | None = None, *, dest: str | None = None
) -> None:
    """Add ``--NAME DIR``; ``dest`` is the attribute that it sets."""
    text = text if default is None else f"{text} (default {default})"
    path = default and Path(default)
    parser.add_argument(f"--{name}", dest=dest, type=Path, default=path, metavar="DIR", help=text)


def add_choice(
    parser: Flags, name: str, choices: Sequence[str], text: str, default: str | None = None
) -> None:
    """Add ``--NAME`` with one of ``choices``; the first is the default."""
    chosen = default or choices[0]
    text = f"{text} (default {chosen})"
    parser.add_argument(f"--{name}", choices=choices, default=chosen, help=text)


def add_switch(parser: Flags, name: str, text: str) -> None:
    """Add the switch ``--NAME``, false by default."""
    parser.add_argument(f"--{name}", action="store_true", help=text)


def add_jobs(parser: Flags, text: str = "worker processes (default: all cores)") -> None:
    """Add ``--jobs N``."""
    add_count(parser, "jobs", text)


def add_cluster(parser: Flags) -> None:
    """Add ``--cluster ADDRESS``."""
    text = "use the workers of this Dask scheduler; they must share the files (packing.md)"
    parser.add_argument("--cluster", metavar="ADDRESS", help=text)


def add_quiet(parser: Flags) -> None:
    """Add ``--quiet``."""
    add_switch(parser, "quiet", "print errors only, no progress")


def add_questions(parser: Flags) -> None:
    """Add ``--questions FILE`` and ``--each N``."""
    add_file(parser, "questions", "Spec-Bench's question.jsonl (default: the bundled prompts)")
    add_count(parser, "each", "use the first N questions of each category")


def add_results(parser: Flags, figure: str = "", *, document: bool = True) -> None:
    """Add ``--json``, ``--figure`` if there is one (what it shows), ``--document``, ``--quiet``."""
    add_file(parser, "json", "write all figures as JSON")
    if figure:
        add_file(parser, "figure", f"write {figure} (SVG)")
    if document:
        add_document(parser)
    add_quiet(parser)


def add_document(parser: Flags) -> None:
    """Add ``--document FILE``, for pages of a checkout."""
    add_file(parser, "document", "update the tables of this Markdown file")


def shows_progress(args: argparse.Namespace) -> bool:
    """Return whether to show progress bars: on a terminal, unless ``--quiet`` is given."""
    return not args.quiet and sys.stderr.isatty()


def say(args: argparse.Namespace, line: str) -> None:
    """Print a line of progress, unless ``--quiet`` is given."""
    if not args.quiet:
        print(line, file=sys.stderr, flush=True)


Ignored: TypeAlias = tuple[Sequence[str], Callable[[argparse.Namespace], bool], str]
"""Flags, the condition under which they have no effect, and the end of the error line."""


def ignored_flag(args: argparse.Namespace, table: Sequence[Ignored]) -> str:
    """Return the error line of the first flag that would have no effect, or an empty string."""
    for names, ignored, how in table:
        for name in names:
            if name in args.given and ignored(args):
                return f"{name} must not be given {how}"
    return ""


def add_destination(parser: Flags, text: str = "new directory", metavar: str = "DEST") -> None:
    """Add ``DEST``, the path that the command writes."""
    parser.add_argument("destination", metavar=metavar, type=Path, help=text)
