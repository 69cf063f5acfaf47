"""What the paper states, from ``paper.toml``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from system.files import HERE, read_toml

__all__ = ["claim", "paper"]


@cache
def paper() -> Mapping[str, Any]:
    """All of it."""
    return read_toml(HERE / "paper.toml")


def claim(name: str) -> float:
    """One figure of its text."""
    return float(paper()["figures"][name])
