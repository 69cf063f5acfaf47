"""Find the commands of a checkout: the wheel has no laboratory."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Sequence

from cassandra_spec.toolkit.flags import Subparsers

_LAB = "cassandra_spec.lab"
Registers = Sequence[Callable[[Subparsers], None]]


def lab_commands() -> tuple[Registers, Registers]:
    """Return what adds the laboratory's commands and benchmarks; nothing without a checkout."""
    if importlib.util.find_spec(_LAB) is None:
        return (), ()
    found = importlib.import_module(f"{_LAB}.commands")
    return found.COMMANDS, found.BENCHMARKS
