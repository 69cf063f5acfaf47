"""Prove claims about the gateware and print a table: ``python -m cassandra_spec.verif.formal``
(``make formal``).

``--document docs/verification.md`` records what was proved in its table; other rows stay.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.report.commands import CommandParser, run_command
from cassandra_spec.verif.formal.prover import Outcome, missing_tools, prove
from cassandra_spec.verif.formal.registry import claims
from cassandra_spec.verif.tools.recording import RecordedTable

__all__ = ["TABLE", "cells", "main"]

_METHODS = {
    "combinational": "SAT",
    "rewriting": "SAT and rewriting",
    "reachable": "reachability (PDR)",
    "corresponding": "correspondence and PDR",
    "inductive": "k-induction",
    "bounded": "bounded model checking",
    "structural": "netlist",
}


TABLE = RecordedTable(
    mark="formal",
    columns=("claim", "what holds", "method", "proved for", "s"),
    absent="Not in the table, because they have not been recorded ({number}): {names}.",
)


def cells(outcome: Outcome) -> tuple[str, ...]:
    """What the table says of a claim: meaning, method, bound or verdict, seconds."""
    claim = outcome.claim
    bound = claim.bound if outcome.verdict == "proved" else f"**{outcome.verdict}**"
    return claim.what, _METHODS[claim.method], bound, f"{outcome.seconds:.1f}"


def main(argv: Sequence[str] | None = None) -> int:
    """Prove; 0 if everything that was asked for holds, 1 if not, 2 if it cannot be tried."""
    return run_command(_parser, _run, argv)


def _parser() -> CommandParser:
    parser = CommandParser(prog="cassandra_spec.verif.formal", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAMES", help="names or patterns of claims")
    parser.add_argument("--list", action="store_true", help="print the claims and stop")
    parser.add_argument("--fast", action="store_true", help="those of `make test` alone")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="where intermediate files stay")
    parser.add_argument("--document", type=Path, help="a document with the markers of the table")
    return parser


def _run(options: argparse.Namespace) -> int:
    chosen = [claim for claim in claims(options.names) if claim.fast or not options.fast]
    if options.list:
        print(*(f"{claim.name}: {claim.what}" for claim in chosen), sep="\n")
        return 0
    if missing_tools():
        tools = ", ".join(missing_tools())
        raise CassandraError(f"{tools} must be on PATH, not absent (Debian: apt install yosys)")
    outcomes = []
    for claim in chosen:
        outcome = prove(claim, options.keep and options.keep / claim.name)
        print(f"{outcome.verdict:>9} {outcome.seconds:7.1f} s  {claim.name}", file=sys.stderr)
        outcomes.append(outcome)
    rows = {outcome.claim.name: cells(outcome) for outcome in outcomes}
    print(TABLE.text(rows))
    if options.document:
        TABLE.record(options.document, rows, [claim.name for claim in claims()])
    return int(any(outcome.verdict != "proved" for outcome in outcomes))


if __name__ == "__main__":
    raise SystemExit(main())
