"""Define ``casspec bench opening`` and ``streaming``: packed models, or shapes of larger ones."""

from __future__ import annotations

import argparse
from pathlib import Path

from cassandra_spec.golden import CassandraError
from cassandra_spec.native.forms import TARGETS
from cassandra_spec.toolkit import flags

OPENING_EPILOG = """\
examples:
  casspec bench opening packed
  casspec bench opening --shape 1b --rounds 3 --document docs/results/packing.md

A fresh process opens the model with the native engine and runs the target on one token, in turn
with weights that are encoded, encoded and kept in a file, or read from that file. A shape is a
model with random weights, which is packed into OUT once.
"""

STREAMING_EPILOG = """\
examples:
  casspec bench streaming packed --memory-limit 140 200 250
  casspec bench streaming --shape 1b --memory-limit 1100

Reads bypass the page cache, so rates are those of the disk; the first line has the rate of
sequential reading. Tokens per second are estimated from a conditional acceptance rate. A shape is a
model with random weights, which is packed into OUT once.
"""


def add_opening(parser: flags.CommandParser) -> None:
    """Define ``casspec bench opening``."""
    flags.describe(parser, OPENING_EPILOG, _opening)
    _add_source(parser)
    flags.add_choice(parser, "native-target", TARGETS, "form of the target")
    flags.add_count(parser, "threads", "threads of the native engine", 2)
    flags.add_count(parser, "rounds", "rounds", 5)
    flags.add_results(parser)


def _opening(args: argparse.Namespace) -> int:
    from cassandra_spec.bench.report import check_outputs, finish
    from cassandra_spec.lab.decode.opening import lines, measure
    from cassandra_spec.model.backends import native_obstacle
    from cassandra_spec.model.packing.packer import open_packed

    check_outputs(args, "opening")
    source = _source_of(args)
    open_packed(source)
    if obstacle := native_obstacle(source):
        raise CassandraError(obstacle)
    found = measure(source, target=args.native_target, threads=args.threads, rounds=args.rounds)
    finish(args, {"opening": found}, {"opening": lines(found)})
    return 0


def add_streaming(parser: flags.CommandParser) -> None:
    """Define ``casspec bench streaming``."""
    flags.describe(parser, STREAMING_EPILOG, _streaming)
    _add_source(parser)
    flags.add_count(parser, "memory-limit", "memory limits in MB, besides no limit", many="+")
    flags.add_count(parser, "threads", "threads of the native engine", 2)
    flags.add_count(parser, "rounds", "rounds per gamma", 3)
    text = "conditional acceptance rates (default .86)"
    flags.add_some(parser, "acceptance", text, (0.86,), type=float, metavar="A")
    flags.add_results(parser)


def _streaming(args: argparse.Namespace) -> int:
    from cassandra_spec.bench.report import finish
    from cassandra_spec.lab.decode.streaming import costs_table, file_rate, gammas_table, measure

    source = _source_of(args)
    limits = [None, *(limit * 10**6 for limit in args.memory_limit or ())]
    rate = file_rate(source / "model.safetensors")
    found = measure(source, limits, threads=args.threads, rounds=args.rounds)
    size = (source / "model.safetensors").stat().st_size
    text = (
        f"a file of {size / 1e6:,.0f} MB, read at {rate / 1e9:.2f} GB/s\n\n"
        f"{costs_table(found, args.acceptance)}\n\n"
        f"tokens/s at {args.acceptance[0]:g}\n\n{gammas_table(found, args.acceptance[0])}"
    )
    finish(args, {"costs": found}, {"streaming": text})
    return 0


def _add_source(parser: flags.Flags) -> None:
    """Add the packed model, or the shape of one to make."""
    text = "directory of a packed model"
    parser.add_argument("source", metavar="PACKED", type=Path, nargs="?", help=text)
    text = "shape of a model with random weights, instead of PACKED"
    parser.add_argument("--shape", choices=("135m", "1b", "3b"), help=text)
    flags.add_folder(parser, "out", "folder for models of --shape", "build/streaming")


def _source_of(args: argparse.Namespace) -> Path:
    """Return the packed model of these flags; pack the one of a shape first."""
    from cassandra_spec.lab.decode.shapes import save_shape

    if (args.source is None) != bool(args.shape):
        raise CassandraError("either a packed model or --shape must be given")
    return args.source or save_shape(args.shape, args.out / args.shape)
