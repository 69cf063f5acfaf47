"""Tables of results inside documents, whose rows are recorded anew one by one.

The first cell of a row is the name of what was tried, in backquotes.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from cassandra_spec.report.documents import block, fill
from cassandra_spec.report.tables import markdown_table

__all__ = ["RecordedTable"]

_NAME = re.compile(r"^\| `([^`]+)` \|")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordedTable:
    """A table with a row for each of some names."""

    mark: str
    columns: tuple[str, ...]
    absent: str  # a sentence about names without a row, whose number and names it has in braces

    def text(self, rows: Mapping[str, Sequence[str]]) -> str:
        """The table alone: cells by name."""
        lines = [(f"`{name}`", *cells) for name, cells in rows.items()]
        return markdown_table(self.columns, lines, left=len(self.columns))

    def recorded(
        self, document: str, rows: Mapping[str, Sequence[str]], names: Sequence[str]
    ) -> str:
        """The document with these rows, and with those that it had of other names.

        Rows come in the order of ``names``; one of another name is dropped. Raises DocumentError
        if the document has no markers.
        """
        lines = _named(block(document, self.mark)) | _named(self.text(rows))
        table = [self.text({}), *(lines[name] for name in names if name in lines)]
        missing = [name for name in names if name not in lines]
        if missing:
            listed = ", ".join(f"`{name}`" for name in missing)
            table += ["", self.absent.format(number=len(missing), names=listed)]
        return fill(document, {self.mark: "\n".join(table)})

    def record(self, path: Path, rows: Mapping[str, Sequence[str]], names: Sequence[str]) -> None:
        """Write :meth:`recorded` to the file of the document."""
        text = self.recorded(path.read_text(encoding="utf-8"), rows, names)
        path.write_text(text, encoding="utf-8")


def _named(table: str) -> dict[str, str]:
    """The lines of a table by the name in their first cell."""
    found = ((_NAME.match(line), line) for line in table.splitlines())
    return {match[1]: line for match, line in found if match}
