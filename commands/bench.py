"""Define ``casspec bench``, with one subcommand per benchmark."""

from __future__ import annotations

from cassandra_spec.commands.checkout import lab_commands
from cassandra_spec.toolkit import flags
from cassandra_spec.toolkit.flags import Command

EPILOG = """\
examples:
  casspec bench decode smollm2
  casspec bench kernels

A checkout of the project has more benchmarks, and compares with other programs.
"""

BENCHMARKS = (
    Command(
        "decode",
        "measure tokens per second",
        "bench.commands.decode:define",
    ),
    Command(
        "kernels",
        "measure how fast the native kernels read weights, relative to plain reading",
        "bench.commands.kernels:define",
    ),
)
"""The benchmarks of the product. One of the laboratory with the same name replaces it."""


def define(parser: flags.CommandParser) -> None:
    """Define the benchmarks."""
    flags.describe(parser, EPILOG)
    every = {each.name: each for each in (*BENCHMARKS, *lab_commands("BENCHMARKS"))}
    flags.add_commands(parser, every.values(), "BENCHMARK")
