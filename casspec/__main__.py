"""The command ``casspec``: one line for every error, and nothing left behind."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from casspec.arguments import build_parser
from golden.errors import CassandraError

__all__ = ["main"]

BAD_INPUT, INTERRUPTED, TERMINATED = 2, 130, 143


class _Terminated(KeyboardInterrupt):
    """The process was asked to end (SIGTERM)."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; 0, 2 for bad input and full disks, 130 or 143 when interrupted."""
    args = build_parser().parse_args(argv)
    try:
        with _termination_as_exception():
            code: int = args.run(args)
            sys.stdout.flush()
    except CassandraError as error:
        return _fail(str(error))
    except OSError as error:
        return _fail_of_system(error, args)
    except MemoryError:
        return _fail("there is not enough memory")
    except KeyboardInterrupt as error:
        terminated = isinstance(error, _Terminated)
        print("casspec: terminated" if terminated else "casspec: interrupted", file=sys.stderr)
        return TERMINATED if terminated else INTERRUPTED
    return code


def _fail(message: str) -> int:
    print(f"casspec: error: {' '.join(message.split())}", file=sys.stderr)
    return BAD_INPUT


def _fail_of_system(error: OSError, args: argparse.Namespace) -> int:
    """Name the file; a full disk does not say which, so it is the one that is written."""
    _forget_output()
    if isinstance(error, BrokenPipeError):
        return 0  # whoever reads the output has seen enough
    where = error.filename or getattr(args, "destination", None) or "standard output"
    return _fail(f"{where}: {error.strerror or error}")


def _forget_output() -> None:
    """What cannot be printed now must not be tried again when Python exits."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


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
