"""``casspec bench kernels``: how fast the native kernels read weights."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from cassandra_spec.golden import CassandraError
from cassandra_spec.native.errors import NativeError
from cassandra_spec.native.kernel_times import KernelTime, Measurement, measure_kernels
from cassandra_spec.native.linear import FORMS, MAX_ROWS
from cassandra_spec.report.tables import text_table

__all__ = ["EPILOG", "kernels", "register"]

EPILOG = """\
examples:
  casspec bench kernels
  casspec bench kernels --cached --threads 1
  casspec bench kernels --forms bf16 draft5 --rows 1 2 3 4 5 6 7 8 --rounds 15

Layers of SmolLM2's shapes with random weights; a pass multiplies all of them with 1 to 8 rows.
`GB/s` counts stored bytes of weights for one row: the median over rounds, with the least and the
most. `of reading` is that over the speed of plain reading in the same round; `N rows` is the time
of such a pass over that of one row. docs/native.md, section Layouts and kernels, has the forms.
"""


def register(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.set_defaults(run=kernels)
    parser.add_argument(
        "--forms", nargs="+", choices=FORMS, default=list(FORMS), help="(default: all)"
    )
    parser.add_argument(
        "--rows",
        nargs="+",
        type=int,
        choices=range(1, MAX_ROWS + 1),
        default=[2, 4, 8],
        metavar="N",
        help="beside 1 (default: 2 4 8)",
    )
    parser.add_argument(
        "--threads", nargs="+", type=int, metavar="N", help="(default: 1 and all cores)"
    )
    parser.add_argument("--layers", type=int, default=10, metavar="N", help="(default 10)")
    parser.add_argument("--rounds", type=int, default=7, metavar="N", help="(default 7)")
    parser.add_argument(
        "--cached", action="store_true", help="one small matrix, which stays in a core's cache"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures")


def kernels(args: argparse.Namespace) -> int:
    """``casspec bench kernels``."""
    threads = args.threads or sorted({1, len(os.sched_getaffinity(0))})
    for name, value in (
        ("layers", args.layers),
        ("rounds", args.rounds),
        ("threads", min(threads)),
    ):
        if value < 1:
            raise CassandraError(f"--{name} must be at least 1, not {value}")
    options = {"forms": args.forms, "rows": args.rows, "rounds": args.rounds, "threads": threads}
    plan = (
        Measurement.cached(**options) if args.cached else Measurement(layers=args.layers, **options)
    )
    try:
        results = measure_kernels(plan, lambda text: print(text, file=sys.stderr, flush=True))
    except NativeError as error:
        raise CassandraError(str(error)) from error
    if args.json:
        figures = [dataclasses.asdict(result) for result in results]
        args.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    print(_table(results, sorted({*args.rows} - {1})))
    return 0


def _spread(figures: Sequence[float]) -> str:
    return f"{statistics.median(figures):.1f} [{min(figures):.1f}, {max(figures):.1f}]"


def _table(results: Sequence[KernelTime], rows: Sequence[int]) -> str:
    header = ["form", "threads", "bits/weight", "MB", "GB/s", "of reading"]
    header += [f"{count} rows" for count in rows]
    lines = [
        [
            result.form,
            str(result.threads),
            f"{result.bits:.2f}",
            f"{result.nbytes / 1e6:.0f}",
            _spread([rate / 1e9 for rate in result.rate(1)]),
            f"{statistics.median(result.share(1)):.2f}",
            *(f"{statistics.median(result.relative(count)):.2f}" for count in rows),
        ]
        for result in results
    ]
    return text_table(header, lines)
