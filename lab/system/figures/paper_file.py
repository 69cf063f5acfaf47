"""Read the paper's figures from ``paper.toml``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from cassandra_spec.lab.system.errors import unknown
from cassandra_spec.lab.system.files import HERE, read_toml


@cache
def paper() -> Mapping[str, Any]:
    """Return ``paper.toml``, parsed."""
    return read_toml(HERE / "figures" / "paper.toml")


def claim(name: str) -> float:
    """Return a figure from the paper's text."""
    return float(paper()["figures"][name])


def lengths(name: str) -> tuple[int, int]:
    """Return the prompt and output lengths of a workload in Table I, in tokens."""
    known = paper()["lengths"]
    if name not in known:
        unknown("workload", name, known)
    prompt, output = known[name]
    return prompt, output
