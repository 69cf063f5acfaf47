"""Count instructions of the kernels, and project passes on 64-bit Arm (docs/results/arm.md).

``python -m cassandra_spec.lab.instructions`` takes half an hour: QEMU logs every instruction, and
a program of this machine stops after each. Debian: g++-aarch64-linux-gnu, qemu-user-static.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from cassandra_spec.lab.instructions.counting import COUNTED, SHAPE, machines, open_counter
from cassandra_spec.lab.instructions.projection import (
    ROWS,
    Counts,
    matrix_bytes,
    projection_table,
)
from cassandra_spec.native.forms import FORMS
from cassandra_spec.toolkit import flags
from cassandra_spec.toolkit.documents import provenance, publish
from cassandra_spec.toolkit.running import CommandParser, run_command
from cassandra_spec.toolkit.tables import markdown_table


def count_all(say: Callable[[str], object]) -> Counts:
    """Count every form, on the instruction sets of each machine."""
    found = {}
    for machine in machines():
        with open_counter(machine) as counter:
            for isa in COUNTED[machine]:
                for form in FORMS:
                    for rows in ROWS:
                        found[form, isa, rows] = counter.per_weight(form, isa, rows)
                    say(f"{isa}: {form}")
    return found


def count_table(counts: Counts) -> str:
    """Format a row for each form: bytes, and instructions for 1 and 8 rows."""
    isas = list(dict.fromkeys(isa for _, isa, _ in counts))
    rows = [
        [f"`{form}`", f"{matrix_bytes(form, SHAPE) / (SHAPE[0] * SHAPE[1]):.2f}"]
        + [", ".join(f"{counts[form, isa, count]:.2f}" for count in ROWS) for isa in isas]
        for form in FORMS
    ]
    return markdown_table(["form", "bytes", *(f"`{isa}`" for isa in isas)], rows)


def _parser() -> CommandParser:
    parser = CommandParser(prog="cassandra_spec.lab.instructions", description=__doc__)
    flags.add_file(parser, "document", "update the tables of this Markdown file")
    return parser


def _run(args: argparse.Namespace) -> int:
    counts = count_all(lambda text: print(text, file=sys.stderr))
    for name, table in (("counts", count_table(counts)), ("projection", projection_table(counts))):
        publish(f"{provenance()}\n\n{table}", args.document, name)
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Count and print."""
    return run_command(_parser, _run, argv)


if __name__ == "__main__":
    sys.exit(main())
