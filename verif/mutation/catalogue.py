"""The planted faults of ``faults.toml``: file, old text, new text, and the checks that must fail.

A check is ``claim:NAME`` (:mod:`cassandra_spec.verif.formal`), or ``sim:BLOCK`` or ``suite:BLOCK``:
the cocotb suite of a block (:mod:`cassandra_spec.verif.blocks`, or a module of
:mod:`cassandra_spec.verif` with a function ``design``), followed by ``/REGULAR_EXPRESSION`` if some
of its tests suffice. ``suite`` uses Verilator; ``sim`` uses Amaranth's simulator
(:mod:`cassandra_spec.verif.tools.simulated`), which needs no build. ``test:FILE`` are tests for
pytest (``rtl.test_read_master``), with ``/EXPRESSION`` for ``-k``. The cheapest check comes first.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

from cassandra_spec.golden.errors import CassandraError

ROOT = Path(__file__).resolve().parents[2]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mutation:
    """One fault: ``old``, which occurs once in ``file``, becomes ``new``."""

    name: str
    file: str
    old: str
    new: str
    checks: tuple[str, ...]

    def applied(self, text: str) -> str:
        """Return the text of the file with the fault.

        Raises CassandraError if ``old`` does not occur exactly once.
        """
        if text.count(self.old) != 1:
            raise CassandraError(
                f"old must occur once in {self.file}, not {text.count(self.old)} times"
                f" ({self.name})"
            )
        return text.replace(self.old, self.new)


def _read(path: Path) -> Iterator[Mutation]:
    for file, blocks in tomllib.loads(path.read_text(encoding="utf-8")).items():
        for checks, faults in blocks.items():
            names = tuple(checks.split(", "))
            for name, (old, new) in faults.items():
                full = f"{Path(file).stem}.{name}"
                yield Mutation(name=full, file=file, old=old, new=new, checks=names)


MUTATIONS = tuple(_read(Path(__file__).with_name("faults.toml")))
"""All planted faults."""


def mutations(patterns: Sequence[str] = ()) -> list[Mutation]:
    """Return the faults whose names match a pattern (``*`` and ``?``); by default all.

    Raises CassandraError for a pattern that matches none.
    """
    for pattern in patterns:
        if not any(fnmatch.fnmatchcase(mutation.name, pattern) for mutation in MUTATIONS):
            names = ", ".join(mutation.name for mutation in MUTATIONS)
            raise CassandraError(f"PATTERN must match one of {names}, not {pattern!r}")
    return [
        mutation
        for mutation in MUTATIONS
        if not patterns or any(fnmatch.fnmatchcase(mutation.name, p) for p in patterns)
    ]
