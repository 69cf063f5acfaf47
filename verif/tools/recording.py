"""Tables of results inside documents, whose rows are recorded anew one by one, and their commands.

A table stands between ``<!-- MARK -->`` and ``<!-- /MARK -->``; the first cell of a row is the name
of what was tried, in backquotes.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from cassandra_spec.golden.errors import CassandraError

__all__ = ["RecordedTable", "between", "run_command"]

_NAME = re.compile(r"^\| `([^`]+)` \|")


def between(document: str, mark: str, text: str) -> str:
    """The document with ``text`` in place of what stands between the marks.

    Raises CassandraError if it does not have both, in this order.
    """
    begin, end = f"<!-- {mark} -->", f"<!-- /{mark} -->"
    before, _, rest = document.partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise CassandraError(f"document must have the markers {begin} and {end}")
    return f"{before}{begin}\n{text}\n{end}{after}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordedTable:
    """A table with a row for each of some names."""

    mark: str
    columns: tuple[str, ...]
    absent: str  # a sentence about names without a row, whose number and names it has in braces

    def text(self, rows: Mapping[str, Sequence[str]]) -> str:
        """The table alone: cells by name."""
        return "\n".join([*self._head(), *(_line(name, cells) for name, cells in rows.items())])

    def recorded(
        self, document: str, rows: Mapping[str, Sequence[str]], names: Sequence[str]
    ) -> str:
        """The document with these rows, and with those that it had of other names.

        Rows come in the order of ``names``; one of another name is dropped. Raises CassandraError
        if the document has no markers.
        """
        lines = {name: line for name, line in self._lines(document).items() if name in names}
        lines |= {name: _line(name, cells) for name, cells in rows.items()}
        table = [*self._head(), *(lines[name] for name in names if name in lines)]
        missing = [name for name in names if name not in lines]
        if missing:
            listed = ", ".join(f"`{name}`" for name in missing)
            table += ["", self.absent.format(number=len(missing), names=listed)]
        return between(document, self.mark, "\n".join(table))

    def record(self, path: Path, rows: Mapping[str, Sequence[str]], names: Sequence[str]) -> None:
        """Write :meth:`recorded` to the file of the document."""
        text = self.recorded(path.read_text(encoding="utf-8"), rows, names)
        path.write_text(text, encoding="utf-8")

    def _head(self) -> list[str]:
        return [f"| {' | '.join(self.columns)} |", "|---" * len(self.columns) + "|"]

    def _lines(self, document: str) -> dict[str, str]:
        inside = document.partition(f"<!-- {self.mark} -->")[2].partition(f"<!-- /{self.mark} -->")
        found = ((_NAME.match(line), line) for line in inside[0].splitlines())
        return {match[1]: line for match, line in found if match}


def _line(name: str, cells: Sequence[str]) -> str:
    return f"| {' | '.join([f'`{name}`', *cells])} |"


def run_command(
    parser: argparse.ArgumentParser,
    run: Callable[[argparse.Namespace], int],
    argv: Sequence[str] | None,
) -> int:
    """Run a command with its arguments; 2, and a line that says why, if it cannot be run."""
    options = parser.parse_args(argv)
    try:
        return run(options)
    except CassandraError as error:
        print(f"{parser.prog.rpartition('.')[2]}: {error}", file=sys.stderr)
        return 2
