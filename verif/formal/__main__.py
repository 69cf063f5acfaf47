"""Prove claims about the gateware and print a table: ``python -m verif.formal`` (``make formal``).

The recorded table of docs/verification.md is written with ``--document``.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from golden.errors import CassandraError
from verif.formal.prover import Outcome, missing_tools, prove
from verif.formal.registry import claims

__all__ = ["main", "recorded", "table"]

_BEGIN, _END = "<!-- formal -->", "<!-- /formal -->"
_METHODS = {
    "combinational": "SAT",
    "rewriting": "SAT and rewriting",
    "reachable": "reachability (PDR)",
    "bounded": "bounded model checking",
    "structural": "netlist",
}


def table(outcomes: Sequence[Outcome]) -> str:
    """Claims, methods, bounds and seconds as a table in Markdown."""
    lines = ["| claim | what holds | method | proved for | s |", "|---|---|---|---|---|"]
    for outcome in outcomes:
        claim = outcome.claim
        bound = claim.bound if outcome.verdict == "proved" else f"**{outcome.verdict}**"
        method, seconds = _METHODS[claim.method], f"{outcome.seconds:.1f}"
        lines.append(f"| `{claim.name}` | {claim.what} | {method} | {bound} | {seconds} |")
    return "\n".join(lines)


def recorded(document: str, text: str) -> str:
    """The document with the text between its markers.

    Raises CassandraError if it has none.
    """
    if _BEGIN not in document or _END not in document:
        raise CassandraError(f"document must have the markers {_BEGIN} and {_END}")
    block = f"{_BEGIN}\n{text}\n{_END}"
    return re.sub(
        re.escape(_BEGIN) + ".*?" + re.escape(_END), lambda _: block, document, flags=re.S
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Prove; 0 if everything that was asked for holds, 1 if not, 2 if it cannot be tried."""
    parser = argparse.ArgumentParser(prog="python -m verif.formal", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAMES", help="names or patterns of claims")
    parser.add_argument("--list", action="store_true", help="print the claims and stop")
    parser.add_argument("--fast", action="store_true", help="those of `make test` alone")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="where intermediate files stay")
    parser.add_argument("--document", type=Path, help="a document with the markers of the table")
    options = parser.parse_args(argv)
    try:
        return _run(options)
    except CassandraError as error:
        print(f"formal: {error}", file=sys.stderr)
        return 2


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
    print(table(outcomes))
    if options.document:
        text = recorded(options.document.read_text(encoding="utf-8"), table(outcomes))
        options.document.write_text(text, encoding="utf-8")
    return int(any(outcome.verdict != "proved" for outcome in outcomes))


if __name__ == "__main__":
    raise SystemExit(main())
