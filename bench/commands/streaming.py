"""Define ``casspec bench streaming``."""

from __future__ import annotations

import argparse
from pathlib import Path

from cassandra_spec.golden import CassandraError
from cassandra_spec.toolkit import flags

EPILOG = """\
examples:
  casspec bench streaming packed --memory-limit 140 200 250
  casspec bench streaming --shape 1b --memory-limit 1100

Reads bypass the page cache, so rates are those of the disk; the first line has the rate of
sequential reading. Tokens per second are estimated from a conditional acceptance rate. A shape is a
model with random weights, which is packed into OUT once.
"""


def register(subparsers: flags.Subparsers) -> None:
    """Add the command."""
    text = "measure rounds of a target streamed from disk, by memory limit"
    parser = flags.add_command(subparsers, "streaming", text, EPILOG, _streaming)
    text = "directory of a packed model"
    parser.add_argument("source", metavar="PACKED", type=Path, nargs="?", help=text)
    text = "shape of a model with random weights, instead of PACKED"
    parser.add_argument("--shape", choices=("135m", "1b", "3b"), help=text)
    flags.add_folder(parser, "out", "folder for models of --shape", "build/streaming")
    flags.add_count(parser, "memory-limit", "memory limits in MB, besides no limit", many="+")
    flags.add_count(parser, "threads", "threads of the native engine", 2)
    flags.add_count(parser, "rounds", "rounds per gamma", 3)
    text = "conditional acceptance rates (default .86)"
    flags.add_some(parser, "acceptance", text, (0.86,), type=float, metavar="A")
    flags.add_results(parser)


def _streaming(args: argparse.Namespace) -> int:
    from cassandra_spec.bench.decode.report import publish
    from cassandra_spec.bench.decode.shapes import save_shape
    from cassandra_spec.bench.streaming import costs_table, file_rate, gammas_table, measure

    if (args.source is None) != bool(args.shape):
        raise CassandraError("either a packed model or --shape must be given")
    source = args.source or save_shape(args.shape, args.out / args.shape)
    limits = [None, *(limit * 10**6 for limit in args.memory_limit or ())]
    rate = file_rate(source / "model.safetensors")
    found = measure(source, limits, threads=args.threads, rounds=args.rounds)
    size = (source / "model.safetensors").stat().st_size
    text = (
        f"a file of {size / 1e6:,.0f} MB, read at {rate / 1e9:.2f} GB/s\n\n"
        f"{costs_table(found, args.acceptance)}\n\n"
        f"tokens/s at {args.acceptance[0]:g}\n\n{gammas_table(found, args.acceptance[0])}"
    )
    publish(args, {"costs": found}, {"streaming": text})
    return 0
