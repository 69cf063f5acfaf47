"""What the paper states, from ``paper.toml``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from cassandra_spec.system.errors import unknown
from cassandra_spec.system.files import HERE, read_toml


@cache
def paper() -> Mapping[str, Any]:
    """All of it."""
    return read_toml(HERE / "figures" / "paper.toml")


def claim(name: str) -> float:
    """One figure of its text."""
    return float(paper()["figures"][name])


def lengths(name: str) -> tuple[int, int]:
    """Tokens of prompt and output in its Table I; an unknown name lists the known ones."""
    known = paper()["lengths"]
    if name not in known:
        unknown("workload", name, known)
    prompt, output = known[name]
    return prompt, output
