"""Put each planted fault into a copy of the gateware and run its checks (``make mutants``).

``python -m cassandra_spec.verif.mutation [--out build/mutation] [PATTERN...]`` continues an
interrupted run: a result stays valid until the fault or a source changes, including those of the
checks. A table is printed and written to ``results.json`` in the folder of ``--out``. With
``--cluster`` the folder of ``--out`` is on a disk that all machines share, each worker takes faults
of its own checkout, and all checkouts must have the same sources.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
import sys
from collections.abc import Sequence
from functools import partial

from cassandra_spec.toolkit import flags
from cassandra_spec.toolkit.running import CommandParser, run_command
from cassandra_spec.toolkit.tables import text_table
from cassandra_spec.toolkit.workers.pool import Workers
from cassandra_spec.verif.mutation.catalogue import ROOT, mutations
from cassandra_spec.verif.mutation.trial import SCRATCH, Result, kept, sources_of


def table(results: Sequence[Result]) -> str:
    """Format one line per fault: the check that found it, and the seconds."""
    rows = [(each.name, each.caught_by or "NOTHING", f"{each.seconds:.0f}") for each in results]
    return text_table(("fault", "found by", "s"), rows, left=2)


def main(argv: Sequence[str] | None = None) -> int:
    """Run; return 0 if every fault is found, 1 if one is not, 2 if one cannot be tried."""
    return run_command(_parser, _run, argv)


def _parser() -> CommandParser:
    parser = CommandParser(prog="cassandra_spec.verif.mutation", description=__doc__)
    text = "mutations to run, by name (default: all)"
    parser.add_argument("patterns", nargs="*", metavar="PATTERN", help=text)
    flags.add_folder(parser, "out", "folder for results and logs", "build/mutation")
    flags.add_jobs(parser, "worker processes (default 1)")
    flags.add_cluster(parser)
    return parser


def _run(options: argparse.Namespace) -> int:
    out, sources = options.out.resolve(), sources_of(ROOT)
    chosen, results = mutations(options.patterns), []
    with Workers(options.jobs, cluster=options.cluster, default=1) as workers:
        shutil.rmtree(out / SCRATCH, ignore_errors=True)
        (out / SCRATCH).mkdir(parents=True)
        for result in workers.map(partial(kept, out=out, sources=sources), chosen):
            results.append(result)
            line = f"{result.seconds:6.0f} s  {result.name}: {result.caught_by or 'NOT FOUND'}"
            print(f"{len(results)} of {len(chosen)}: {line}", file=sys.stderr, flush=True)
    shutil.rmtree(out / SCRATCH, ignore_errors=True)
    print(table(results))
    rows = [dataclasses.asdict(result) for result in results]
    (out / "results.json").write_text(json.dumps(rows, indent=1), encoding="utf-8")
    return int(any(not result.caught_by for result in results))


if __name__ == "__main__":
    raise SystemExit(main())
