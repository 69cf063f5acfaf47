"""Define ``casspec bench opening``."""

from __future__ import annotations

import argparse

from cassandra_spec.bench.commands.drafts import add_source, source_of
from cassandra_spec.golden import CassandraError
from cassandra_spec.native.forms import TARGETS
from cassandra_spec.toolkit import flags

EPILOG = """\
examples:
  casspec bench opening packed
  casspec bench opening --shape 1b --rounds 3 --document docs/results/packing.md

A fresh process opens the model with the native engine and runs the target on one token, in turn
with weights that are encoded, encoded and kept in a file, or read from that file. A shape is a
model with random weights, which is packed into OUT once.
"""


def register(subparsers: flags.Subparsers) -> None:
    """Add the command."""
    text = "measure how long a fresh process takes to open a model, and its memory"
    parser = flags.add_command(subparsers, "opening", text, EPILOG, _opening)
    add_source(parser)
    flags.add_choice(parser, "native-target", TARGETS, "form of the target")
    flags.add_count(parser, "threads", "threads of the native engine", 2)
    flags.add_count(parser, "rounds", "rounds", 5)
    flags.add_results(parser)


def _opening(args: argparse.Namespace) -> int:
    from cassandra_spec.bench.decode.report import check_outputs, finish
    from cassandra_spec.bench.opening import lines, measure
    from cassandra_spec.model.backends import native_obstacle
    from cassandra_spec.model.packing.packer import open_packed

    check_outputs(args, "opening")
    source = source_of(args)
    open_packed(source)
    if obstacle := native_obstacle(source):
        raise CassandraError(obstacle)
    found = measure(source, target=args.native_target, threads=args.threads, rounds=args.rounds)
    finish(args, {"opening": found}, {"opening": lines(found)})
    return 0
