"""A block with a fault beside the block without: whether an output of it ever differs.

The smallest block is the cell with the fault. Inputs of the block are free, what it reads of its
memories among them, so what is proved of a block holds wherever it is used. The converse is not
true: the design may never show a block the inputs with which a fault would be seen.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.report.programs import run_program
from cassandra_spec.verif.mutation.beside import GATES

_PATH = re.compile(r"\$flatten((?:\\[\w$]+\.)+)")


def equal_in_block(folder: Path, cell: str, change: str, seconds: int) -> str | None:
    """The cell, or the smallest block around it of which it is proved; None: there is none.

    ``folder`` has ``good.json`` of :func:`cassandra_spec.verif.mutation.drawn.draw`; ``change`` is
    what ``mutate`` is told of the fault.
    """
    own = "c:" + re.sub(r"[^\w$.]", "?", cell)
    if _equal(folder, own, change, seconds):
        return cell
    for block in blocks_of(cell):
        inside = "c:$flatten" + "".join(f"?{name}." for name in block.split(".")) + "*"
        if _equal(folder, f"{inside} t:$mem* {own} %d %d", change, seconds):
            return block
    return None


def blocks_of(cell: str) -> Iterator[str]:
    """Paths of the blocks in which a cell of a flat netlist was, the smallest first."""
    found = _PATH.match(cell)
    names = re.findall(r"[\w$]+", found[1]) if found else []
    for depth in range(len(names), 0, -1):
        yield ".".join(names[:depth])


def _equal(folder: Path, cells: str, change: str, seconds: int) -> bool:
    """Of these cells; a block's memories are its surroundings, unless the fault is in one."""
    script = (
        f"read_json good.json; submod -name block {cells}; copy block faulty;"
        f" mutate -module faulty {change}; miter -equiv -flatten block faulty beside;"
        f" hierarchy -top beside; {GATES} block.aig"
    )
    run_program(["yosys", "-q", "-p", script], folder, error=CassandraError)
    commands = f"read_aiger block.aig; strash; scorr; pdr -T {seconds}"
    log = run_program(["yosys-abc", "-c", commands], folder, error=CassandraError)
    return "Property proved" in log
