"""What Verilator counts: lines, branches and changes of bits of a design, merged over runs."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from cassandra_spec.golden.errors import CassandraError

KINDS = ("line", "branch", "toggle")

_ESCAPES = {"__DOT__": ".", "__BRA__": "[", "__KET__": "]"}
_CODE = re.compile(r"__0([0-9a-fA-F]{2})")


@dataclasses.dataclass(frozen=True, kw_only=True, order=True)
class Point:
    """Something that a run may see: where it is, and what."""

    kind: str  # one of KINDS
    module: str  # path of the instance below the top; empty: the top
    line: int  # of the source
    column: int
    what: str  # of a toggle: ``signal[bit]:0->1``, as Verilog names it; of a branch: which way


@dataclasses.dataclass(frozen=True, kw_only=True)
class Design:
    """A source and how often each of its points was seen."""

    name: str  # of the top module
    source: Path
    counts: dict[Point, int]

    @property
    def holes(self) -> list[Point]:
        """Points that were never seen, in the order of the source."""
        missed = (point for point, count in self.counts.items() if not count)
        return sorted(missed, key=lambda point: (point.line, point))

    @property
    def lines(self) -> list[str]:
        """The source."""
        return self.source.read_text().splitlines()


def designs(folder: Path) -> list[Design]:
    """Every source of a folder (:mod:`cassandra_spec.verif.tools.counting`) with its runs' sum.

    Raises CassandraError if a source has no counts.
    """
    found = []
    for source in sorted(folder.glob("*.v")):
        counts: dict[Point, int] = {}
        for path in sorted(folder.glob(f"{source.stem}.*.dat")):
            for point, count in read(path.read_text(encoding="latin1").splitlines()):
                counts[point] = counts.get(point, 0) + count
        if not counts:
            raise CassandraError(f"{source.name} must have the counts of a run, not none")
        name = source.stem.rpartition("-")[0]
        found.append(Design(name=name, source=source, counts=counts))
    return found


def read(lines: Iterable[str]) -> Iterator[tuple[Point, int]]:
    """Points and counts of a file that Verilator has written."""
    for line in lines:
        if line.startswith("C '"):
            keys, _, count = line[3:].rpartition("' ")
            fields = dict(part.split("\x02", 1) for part in keys.split("\x01") if part)
            yield _point(fields), int(count)


def _point(fields: dict[str, str]) -> Point:
    page, _, path = fields["page"].partition("/")
    return Point(
        kind=page.removeprefix("v_"),
        module=plain(path.partition(".")[2]),
        line=int(fields["l"]),
        column=int(fields["n"]),
        what=plain(fields["o"]),
    )


def plain(name: str) -> str:
    """A name as Verilog has it: Verilator writes ``$17`` as ``__02417``."""
    for escape, text in _ESCAPES.items():
        name = name.replace(escape, text)
    return _CODE.sub(lambda found: chr(int(found[1], 16)), name)
