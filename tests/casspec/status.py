"""Exit codes of the command, also where the parser ends it."""

from __future__ import annotations

from cassandra_spec.casspec.__main__ import main

__all__ = ["status_of"]


def status_of(*words: str) -> int:
    """The exit code of ``casspec WORDS``."""
    try:
        return main(words)
    except SystemExit as error:
        return int(error.code or 0)
