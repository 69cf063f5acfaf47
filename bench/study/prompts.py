"""The prompts that come with the project, by what they are for."""

from __future__ import annotations

import dataclasses
import json
from functools import cache
from pathlib import Path
from typing import Literal, get_args

from cassandra_spec.golden import CassandraError
from cassandra_spec.model.packing.calibration import read_text

Use = Literal["bench", "development", "soak"]
"""For figures; for choosing settings, so that figures are of prompts that chose nothing; more for
the regression, which runs over all three."""

_FILE = Path(__file__).with_name("prompts.json")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prompt:
    """A chat prompt."""

    use: Use
    kind: str  # kind of text: code, story, ...
    text: str


@cache
def bundled_prompts(*uses: Use) -> tuple[Prompt, ...]:
    """Return the bundled prompts of some uses, by default all, in the file's order."""
    known = get_args(Use)
    for use in uses:
        if use not in known:
            raise CassandraError(f"use must be one of {', '.join(known)}, not {use!r}")
    every = [Prompt(**entry) for entry in json.loads(_FILE.read_text(encoding="utf-8"))]
    return tuple(prompt for prompt in every if prompt.use in (uses or known))


def read_prompts(path: Path) -> list[str]:
    """Read the prompts of a text file, one per line that is not empty."""
    return [line.strip() for line in read_text(path).splitlines() if line.strip()]
