"""Exit codes of the command, also where the parser ends it."""

from __future__ import annotations

import re

import pytest

from cassandra_spec.commands.__main__ import main

__all__ = ["Output", "error_of", "status_of"]

Output = pytest.CaptureFixture[str]


def status_of(*words: str) -> int:
    """Return the exit code of ``casspec WORDS``."""
    try:
        return main(words)
    except SystemExit as error:
        return int(error.code or 0)


def error_of(output: Output, *words: str) -> str:
    """Return the line of a command that must fail in the way that bad input does."""
    assert status_of(*words) == 2
    out, err = output.readouterr()
    if words[0] == "serve":  # says what it loads
        err = re.sub(r"^casspec: loading .*\n", "", err)
    assert out == ""
    assert err.startswith("casspec: error: ")
    assert err.endswith("\n")
    assert err.count("\n") == 1
    return err.removeprefix("casspec: error: ").rstrip("\n")
