"""The boundary of every command: one line for every error, whatever its kind and text."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.toolkit.running import LONGEST_LINE, CommandParser, integer, run_command

Output = pytest.CaptureFixture[str]


class Panic(BaseException):
    """A Rust library raises no Exception but this."""


def parser() -> CommandParser:
    built = CommandParser(prog="it")
    built.add_argument("--count", type=integer(0, 10), default=1)
    built.add_argument("--name")
    built.add_subparsers().add_parser("sub")
    return built


def raising(error: BaseException) -> Callable[[argparse.Namespace], int]:
    def run(options: argparse.Namespace) -> int:
        raise error

    return run


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (CassandraError("count must be 1, not 2"), "it: error: count must be 1, not 2"),
        (RuntimeError("two\nlines"), "it: error: RuntimeError: two lines"),
        (KeyError("model_type"), "it: error: KeyError: 'model_type'"),
        (Panic("no entry"), "it: error: Panic: no entry"),
        (MemoryError(), "it: error: there is not enough memory"),
        (OSError("no tokenizer here"), "it: error: OSError: no tokenizer here"),
        (OSError(2, "No such file", "x.json"), "it: error: x.json: No such file"),
        (OSError(28, "No space left"), "it: error: standard output: No space left"),
        (UnicodeError("\ud800\x1b[0m"), r"it: error: UnicodeError: \ud800\x1b[0m"),
    ],
)
def test_every_error_is_one_line(error: BaseException, line: str, capsys: Output) -> None:
    assert run_command(parser, raising(error), []) == 2
    assert capsys.readouterr() == ("", f"{line}\n")


def test_a_long_error_is_cut(capsys: Output) -> None:
    assert run_command(parser, raising(CassandraError("x" * 10**6)), []) == 2
    line = capsys.readouterr().err
    assert (len(line), line[-4:]) == (LONGEST_LINE + 1, "...\n")
    assert run_command(parser, raising(CassandraError("\0" * 10**6)), []) == 2
    assert len(capsys.readouterr().err) == LONGEST_LINE + 1


def test_debug_shows_the_trace(capsys: Output) -> None:
    for flags in (["--debug"], ["sub", "--debug"], ["--debug", "sub"]):
        assert run_command(parser, raising(KeyError("x")), flags) == 2
        lines = capsys.readouterr().err.splitlines()
        assert lines[0] == "Traceback (most recent call last):"
        assert lines[-1] == "it: error: KeyError: 'x'"


def test_the_exit_code_is_that_of_the_command() -> None:
    assert run_command(parser, lambda options: options.count, ["--count", "7"]) == 7


def test_interrupts_and_notes(capsys: Output) -> None:
    error = KeyboardInterrupt()
    error.add_note("run it again to go on")
    assert run_command(parser, raising(error), []) == 130
    assert capsys.readouterr().err == "it: interrupted; run it again to go on\n"


@pytest.mark.parametrize("value", ["-1", "11", "1" + "0" * 40, "1" + "0" * 5000, "x", "", "1.5"])
def test_integers_have_bounds(value: str, capsys: Output) -> None:
    with pytest.raises(SystemExit) as status:
        run_command(parser, lambda options: 0, ["--count", value])
    line = capsys.readouterr().err
    assert status.value.code == 2
    assert line.startswith("it: error: argument --count: must be an integer from 0 to 10, not ")
    assert line.count("\n") == 1
    assert len(line) <= LONGEST_LINE + 1


def test_an_error_of_arguments_is_cut(capsys: Output) -> None:
    with pytest.raises(SystemExit):
        run_command(parser, lambda options: 0, ["sub", "y" * 10**6])
    line = capsys.readouterr().err
    assert len(line) <= LONGEST_LINE + 1
    assert line.endswith("--help)\n")


PROGRAM = """
import sys
from cassandra_spec.toolkit.running import CommandParser, run_command

def run(options):
    print("caf\\u00e9 \\u2192 \\udcff", options.name)
    return 0

def parser():
    built = CommandParser(prog="it")
    built.add_argument("--name")
    return built

sys.exit(run_command(parser, run))
"""


@pytest.mark.parametrize(
    ("encoding", "expected"),
    [
        ("ascii", rb"caf\xe9 \u2192 \udcff \udcfe"),
        ("latin-1", b"caf\xe9 \\u2192 \\udcff \\udcfe"),
        ("utf-8", "café → \\udcff \\udcfe".encode()),
    ],
)
def test_any_text_can_be_printed_on_any_terminal(encoding: str, expected: bytes) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "--name", b"\xfe"],
        env=os.environ | {"PYTHONIOENCODING": encoding, "PYTHONUTF8": "1"},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, expected, b"")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_standard_streams_may_be_closed(closed: str) -> None:
    done = subprocess.run(
        ["sh", "-c", f'"$0" -c "$1" {closed}', sys.executable, PROGRAM],
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert bool(done.stdout) == (">&-" not in closed.replace("2>&-", ""))
