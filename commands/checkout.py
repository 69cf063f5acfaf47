"""Find the commands of a checkout: the wheel has no laboratory."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence

from cassandra_spec.toolkit.flags import Command

_LAB = "cassandra_spec.lab"


def lab_commands(table: str) -> Sequence[Command]:
    """Return a table of the laboratory, COMMANDS or BENCHMARKS; empty without a checkout."""
    if importlib.util.find_spec(_LAB) is None:
        return ()
    found: Sequence[Command] = getattr(importlib.import_module(f"{_LAB}.commands"), table)
    return found
