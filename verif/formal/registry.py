"""All claims, by module."""

from __future__ import annotations

import fnmatch
import importlib
from collections.abc import Sequence

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.verif.formal.prover import Claim

MODULES = (
    "cassandra_spec.verif.formal.networks",
    "cassandra_spec.verif.formal.control",
    "cassandra_spec.verif.formal.structure",
    "cassandra_spec.verif.formal.selection",
    "cassandra_spec.verif.formal.packers",
    "cassandra_spec.verif.formal.encoder",
    "cassandra_spec.verif.formal.store",
    "cassandra_spec.verif.formal.bus",
    "cassandra_spec.verif.formal.drain",
)
"""Modules with a tuple ``CLAIMS``, in the order of the table."""


def claims(patterns: Sequence[str] = ()) -> list[Claim]:
    """Return the claims whose names match or begin with a pattern (``*``, ``?``); by default all.

    Raises CassandraError for a pattern that matches nothing.
    """
    every: list[Claim] = []
    for module in MODULES:
        every.extend(importlib.import_module(module).CLAIMS)
    for pattern in patterns:
        if not any(_matches(claim, pattern) for claim in every):
            names = ", ".join(claim.name for claim in every)
            raise CassandraError(f"NAMES must match one of {names}, not {pattern!r}")
    return [c for c in every if not patterns or any(_matches(c, p) for p in patterns)]


def _matches(claim: Claim, pattern: str) -> bool:
    return fnmatch.fnmatchcase(claim.name, pattern) or claim.name.startswith(f"{pattern}.")
