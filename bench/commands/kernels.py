"""Define ``casspec bench kernels``."""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys

from cassandra_spec.native.limits import PROMPT_ROWS
from cassandra_spec.native.linear import FORMS
from cassandra_spec.toolkit import flags

EPILOG = """\
examples:
  casspec bench kernels
  casspec bench kernels --cached --threads 1
  casspec bench kernels --forms bf16 draft5 --rows 1 2 3 4 5 6 7 8 --rounds 15

The layers have SmolLM2's shapes and random weights; a pass multiplies all of them by 1 to 128 rows.
`GB/s` counts stored bytes of weights, for one row: median, minimum and maximum over rounds. `of
reading` is its ratio to the speed of plain reading in the same round; `N rows` is the time of a
pass over N rows, relative to one row. docs/software/kernels.md describes the forms.
"""


def define(parser: flags.CommandParser) -> None:
    """Define the flags."""
    flags.describe(parser, EPILOG, _kernels)
    flags.add_some(parser, "forms", "weight formats to measure (default: all)", FORMS, FORMS)
    counts = range(1, PROMPT_ROWS + 1)
    text = "rows of a pass, besides 1 (default: 2 4 8)"
    flags.add_some(parser, "rows", text, (2, 4, 8), counts, type=int, metavar="N")
    flags.add_count(parser, "threads", "numbers of threads (default: 1 and all cores)", many="+")
    flags.add_count(parser, "layers", "number of layers", 10)
    flags.add_count(parser, "rounds", "number of rounds", 7)
    flags.add_switch(parser, "cached", "measure one small matrix that stays in a core's cache")
    flags.add_file(parser, "json", "write all figures as JSON")


def _kernels(args: argparse.Namespace) -> int:
    from cassandra_spec.bench.kernels import Measurement, kernel_table, measure_kernels
    from cassandra_spec.model.output import write_json

    threads = args.threads or sorted({1, len(os.sched_getaffinity(0))})
    options = {"forms": args.forms, "rows": args.rows, "rounds": args.rounds, "threads": threads}
    plan = Measurement(layers=args.layers, **options)
    if args.cached:
        plan = Measurement.cached(**options)
    results = measure_kernels(plan, lambda text: print(text, file=sys.stderr, flush=True))
    write_json(args.json, [dataclasses.asdict(result) for result in results])
    print(kernel_table(results))
    return 0
