"""Tables, as text for terminals and as Markdown."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

__all__ = ["Table", "difference"]

Row = tuple[str, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
    """A table with a title and notes.

    Attributes:
        title: one line.
        header: names of the columns.
        rows: as many cells each as the header has.
        notes: lines below.
    """

    title: str
    header: Row
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()

    def text(self) -> str:
        """Columns as wide as they need; the first left-aligned, numbers right-aligned."""
        lines = [self.header, *self.rows]
        widths = [max(len(line[place]) for line in lines) for place in range(len(self.header))]
        body = [_aligned(line, widths, self._left()) for line in lines]
        rule = "  ".join("-" * width for width in widths)
        return "\n".join([self.title, body[0], rule, *body[1:], *self.notes])

    def markdown(self, *, heading: bool = True) -> str:
        """A GitHub table, below a heading of the third level unless that is left out."""
        marks = [":--" if left else "--:" for left in self._left()]
        lines = [self.header, marks, *self.rows]
        body = ["| " + " | ".join(line) + " |" for line in lines]
        notes = [f"\n{note}" for note in self.notes]
        above = [f"### {self.title}\n"] if heading else []
        return "\n".join([*above, *body, *notes])

    def _left(self) -> list[bool]:
        return [
            not all(_number(cell) for cell in column) for column in zip(*self.rows, strict=True)
        ]


def _number(cell: str) -> bool:
    return cell.strip("0123456789.,+-%()") == ""


def _aligned(line: Sequence[str], widths: Sequence[int], left: Sequence[bool]) -> str:
    cells = zip(line, widths, left, strict=True)
    text = [cell.ljust(width) if flag else cell.rjust(width) for cell, width, flag in cells]
    return "  ".join(text).rstrip()


def difference(ours: float, paper: float) -> str:
    """``+1.2%``: ours against the paper's."""
    return f"{ours / paper - 1:+.1%}"
