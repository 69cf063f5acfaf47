"""Coverage points of Verilator: lines, branches and toggles of a design, merged over runs."""

from __future__ import annotations

import bisect
import dataclasses
import functools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.verif.linecov.subjects import subject_of

KINDS = ("line", "branch", "toggle")

_ESCAPES = {"__DOT__": ".", "__BRA__": "[", "__KET__": "]"}
_BITS = re.compile(r"\[-?\d+\]$")
_ASSIGNED = re.compile(r" +(?:assign )?\\?(?P<name>\S+) +=(?!=) (?P<value>.*);")
_NAMELESS = re.compile(r"\\(\$\d+) ")
_DEPTH = 4  # nesting of unnamed signals that is written out
_CODE = re.compile(r"__0([0-9a-fA-F]{2})")


@dataclasses.dataclass(frozen=True, kw_only=True, order=True)
class Point:
    """A line, branch or toggle at a place of the source."""

    kind: str  # one of KINDS
    module: str  # path of the instance below the subject's root; empty: the root
    line: int  # of the source
    column: int
    what: str  # toggle: ``signal[bit]:0->1``, as Verilog names it; branch: its direction


@dataclasses.dataclass(frozen=True, kw_only=True)
class Design:
    """A source, and the count of each point of its subject."""

    name: str  # of the top module
    source: Path
    counts: dict[Point, int]
    root: str = ""  # path of the counted instance; empty: the top
    engines: frozenset[str] = frozenset()  # paths of inner instances that another suite counts

    @functools.cached_property
    def lines(self) -> list[str]:
        """The lines of the source."""
        return self.source.read_text().splitlines()

    def text(self, point: Point) -> str:
        """Return a point's line; for a toggle, its name and the first assignment to its signal.

        Unnamed signals in the assignment are written out.
        """
        if point.kind != "toggle":
            return self.lines[point.line - 1]
        signal = _BITS.sub("", point.what.rpartition(":")[0])
        value = self._value(self._module_at(point.line), signal)
        return f"{point.what} = {value}" if value else point.what

    def _value(self, module: int, signal: str, depth: int = _DEPTH) -> str:
        value = self._assigned.get((module, signal), "")
        if not depth:
            return value
        return _NAMELESS.sub(
            lambda found: f"({self._value(module, found[1], depth - 1) or found[1]})", value
        )

    def _module_at(self, line: int) -> int:
        """Return the number of the source's module that contains a line."""
        return bisect.bisect_left(self._ends, line)

    @functools.cached_property
    def _ends(self) -> list[int]:
        return [number for number, line in enumerate(self.lines, 1) if line == "endmodule"]

    @functools.cached_property
    def _assigned(self) -> dict[tuple[int, str], str]:
        """The first assignment to each whole signal, by module and name."""
        values: dict[tuple[int, str], str] = {}
        for number, line in enumerate(self.lines, 1):
            if match := _ASSIGNED.match(line):
                values.setdefault((self._module_at(number), match["name"]), match["value"])
        return values

    def module(self, path: str) -> str:
        """Return the Verilog module of an instance, by its path below the root."""
        return ".".join(part for part in (self.name, self.root, path) if part)

    @property
    def holes(self) -> list[Point]:
        """Points that were never hit, in the order of the source."""
        missed = (point for point, count in self.counts.items() if not count)
        return sorted(missed, key=lambda point: (point.line, point))


def designs(folder: Path) -> list[Design]:
    """Return every source of a folder (:mod:`cassandra_spec.verif.tools.counting`) with its counts.

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
        found.append(_restricted(source, counts))
    return found


def _restricted(source: Path, counts: dict[Point, int]) -> Design:
    """Return the design of a source, with the points of its subject."""
    name = source.stem.rpartition("-")[0]
    subject = subject_of(name)
    modules = {point.module for point in counts}
    inside = {module: subject.inside(module) for module in modules}
    engines = {engine for module in modules if (engine := subject.engine_around(module))}
    kept = {
        dataclasses.replace(point, module=path): count
        for point, count in counts.items()
        if (path := inside[point.module]) is not None
    }
    below = frozenset(engine.removeprefix(f"{subject.root}.") for engine in engines)
    return Design(name=name, source=source, counts=kept, root=subject.root, engines=below)


def read(lines: Iterable[str]) -> Iterator[tuple[Point, int]]:
    """Yield points and counts from a file of Verilator."""
    for line in lines:
        if line.startswith("C '"):
            keys, _, count = line[3:].rpartition("' ")
            fields = dict(part.split("\x02", 1) for part in keys.split("\x01") if part)
            yield _point(fields), int(count)


def _point(fields: dict[str, str]) -> Point:
    # Instances have the names of their modules here; Verilator shortens long names in `page` only.
    path = fields["h"].removeprefix("TOP.")
    return Point(
        kind=fields["page"].partition("/")[0].removeprefix("v_"),
        module=plain(path.partition(".")[2]),
        line=int(fields["l"]),
        column=int(fields["n"]),
        what=plain(fields["o"]),
    )


def plain(name: str) -> str:
    """Return a name as in Verilog: Verilator writes ``$17`` as ``__02417``."""
    for escape, text in _ESCAPES.items():
        name = name.replace(escape, text)
    return _CODE.sub(lambda found: chr(int(found[1], 16)), name)
