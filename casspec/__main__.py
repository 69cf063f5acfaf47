"""The command ``casspec``, as ``python -m cassandra_spec.casspec`` and as the script of that
name.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

__all__ = ["main"]

INTERRUPTED, TERMINATED = 130, 143


class _Terminated(KeyboardInterrupt):
    """The process was asked to end (SIGTERM)."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; 0, 2 for bad input and full disks, 130 or 143 when interrupted."""
    try:
        with _termination_as_exception():
            from cassandra_spec.casspec.command import (
                run,  # takes a moment, and may be interrupted, too
            )

            return run(argv)
    except KeyboardInterrupt as error:
        terminated = isinstance(error, _Terminated)
        what = "terminated" if terminated else "interrupted"
        print("; ".join([f"casspec: {what}", *_notes(error)]), file=sys.stderr)
        return TERMINATED if terminated else INTERRUPTED


def _notes(error: BaseException) -> Sequence[str]:
    return getattr(error, "__notes__", ())


@contextmanager
def _termination_as_exception() -> Iterator[None]:
    def terminate(number: int, frame: FrameType | None) -> NoReturn:
        raise _Terminated

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


if __name__ == "__main__":
    raise SystemExit(main())
