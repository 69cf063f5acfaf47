"""Prove claims about the gateware and print a table: ``python -m cassandra_spec.verif.formal``
(``make formal``). The results are written to ``results.json`` in the folder of ``--out``, too.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.toolkit import flags
from cassandra_spec.toolkit.running import CommandParser, run_command
from cassandra_spec.toolkit.tables import text_table
from cassandra_spec.verif.formal.prover import Outcome, missing_tools, prove
from cassandra_spec.verif.formal.registry import claims

_METHODS = {
    "combinational": "SAT",
    "rewriting": "SAT and rewriting",
    "reachable": "reachability (PDR)",
    "corresponding": "correspondence and PDR",
    "inductive": "k-induction",
    "bounded": "bounded model checking",
    "structural": "netlist",
}


def _row(outcome: Outcome) -> dict[str, str]:
    """Format one claim: the statement, the method, the number of cycles, and the time."""
    claim = outcome.claim
    return {
        "claim": claim.name,
        "what holds": claim.what,
        "method": _METHODS[claim.method],
        "proved for": claim.bound if outcome.verdict == "proved" else f"({outcome.verdict})",
        "s": f"{outcome.seconds:.1f}",
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Prove; return 0 if everything requested holds, 1 if not, 2 if the proof cannot run."""
    return run_command(_parser, _run, argv)


def _parser() -> CommandParser:
    parser = CommandParser(prog="cassandra_spec.verif.formal", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAMES", help="names or patterns of claims")
    flags.add_switch(parser, "list", "print the claims and stop")
    flags.add_switch(parser, "fast", "prove only the claims of `make test`")
    flags.add_folder(parser, "keep", "keep intermediate files in this folder")
    flags.add_folder(parser, "out", "folder for results", "build/formal")
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
    rows = [_row(outcome) for outcome in outcomes]
    shown = ("claim", "method", "proved for", "s")
    print(text_table(shown, [[row[name] for name in shown] for row in rows], left=3))
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "results.json").write_text(json.dumps(rows, indent=1), encoding="utf-8")
    return int(any(outcome.verdict != "proved" for outcome in outcomes))


if __name__ == "__main__":
    raise SystemExit(main())
