"""Waivers: holes that stay open on purpose, each with its reason (``waivers.toml``)."""

from __future__ import annotations

import dataclasses
import fnmatch
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.verif.linecov.points import KINDS, Design, Point

FILE = Path(__file__).with_name("waivers.toml")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Waiver:
    """Holes of some kinds in some modules of some designs, and the reason to leave them.

    ``design`` and ``module`` are shell patterns: ``design`` several with ``|`` between them,
    ``module`` for the path below the top. ``text`` is a regular expression for a source line or,
    for toggles, for ``SIGNAL:CHANGE = VALUE``, where VALUE is the assignment to the whole signal.
    """

    kinds: tuple[str, ...]
    design: str
    module: str
    text: str
    reason: str

    def about(self, design: Design) -> bool:
        """Return True if the waiver is about this design."""
        return any(fnmatch.fnmatchcase(design.name, one) for one in self.design.split("|"))

    def covers(self, design: Design, hole: Point) -> bool:
        """Return True if the waiver covers this hole."""
        return (
            hole.kind in self.kinds
            and self.about(design)
            and fnmatch.fnmatchcase(hole.module, self.module)
            and re.search(self.text, design.text(hole)) is not None
        )


def load(path: Path = FILE) -> list[Waiver]:
    """Load the waivers of a file.

    Raises CassandraError for one of another kind or without a reason.
    """
    found = []
    for kinds, design, module, text, reason in _rows(tomllib.loads(path.read_text("utf-8"))):
        if not reason or not set(kinds.split()) <= set(KINDS):
            raise CassandraError(
                f"waiver must have kinds of {', '.join(KINDS)} and a reason, not {kinds!r} and"
                f" {reason!r} ({text})"
            )
        fields = {"design": design, "module": module, "text": text, "reason": reason}
        found.append(Waiver(kinds=tuple(kinds.split()), **fields))
    return found


def _rows(table: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield the path of keys to each text of a nested table, and the text."""
    for name, inner in table.items():
        rest = [(inner,)] if isinstance(inner, str) else _rows(inner)
        yield from ((name, *row) for row in rest)


def waived(
    waivers: Iterable[Waiver], holes: Iterable[tuple[Design, Point]]
) -> tuple[set[tuple[str, Point]], list[Waiver]]:
    """Return the covered holes (design's source, point), and the waivers that cover none."""
    covered: set[tuple[str, Point]] = set()
    unused = list(waivers)
    every = list(unused)
    for design, hole in holes:
        for waiver in every:
            if waiver.covers(design, hole):
                covered.add((design.source.name, hole))
                unused = [other for other in unused if other is not waiver]
    return covered, unused
