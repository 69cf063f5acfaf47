"""Format tables for terminals and as Markdown."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

Row = tuple[str, ...]


def text_table(
    header: Sequence[str], rows: Iterable[Sequence[str]], *, left: int | None = 1
) -> str:
    """Format a table for a terminal; each column is as wide as its widest cell.

    The first ``left`` columns are left-aligned and the others right-aligned; None right-aligns
    those whose cells are all numbers.
    """
    lines = [list(header), *map(list, rows)]
    sides = _sides(lines, left)
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    lines.insert(1, ["-" * width for width in widths])
    return "\n".join(
        "  ".join(
            cell.ljust(width) if side else cell.rjust(width)
            for cell, width, side in zip(line, widths, sides, strict=True)
        ).rstrip()
        for line in lines
    )


def markdown_table(
    header: Sequence[object], rows: Iterable[Sequence[object]], *, left: int | None = None
) -> str:
    """Format a GitHub table; ``left`` aligns its columns as in :func:`text_table`."""
    lines = [[str(cell) for cell in line] for line in (header, *rows)]
    lines.insert(1, [":--" if side else "--:" for side in _sides(lines, left)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _sides(lines: Sequence[Sequence[str]], left: int | None) -> list[bool]:
    """Return for each column whether it is left-aligned."""
    columns = list(zip(*lines, strict=True))
    if left is None:
        return [not all(map(_is_number, column[1:])) for column in columns]
    return [place < left for place in range(len(columns))]


def _is_number(cell: str) -> bool:
    return cell.strip("0123456789.,+-%()") == ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
    """A table with a title and notes."""

    title: str  # one line
    header: Row  # names of the columns
    rows: tuple[Row, ...]  # each with as many cells as the header
    notes: tuple[str, ...] = ()  # lines below

    def text(self) -> str:
        """Return the title, the table with right-aligned numbers, and the notes."""
        return "\n".join([self.title, text_table(self.header, self.rows, left=None), *self.notes])

    def markdown(self, *, heading: bool = True) -> str:
        """Return a GitHub table with notes, by default below a third-level heading."""
        notes = [f"\n{note}" for note in self.notes]
        above = [f"### {self.title}\n"] if heading else []
        return "\n".join([*above, markdown_table(self.header, self.rows), *notes])


def difference(ours: float, reference: float) -> str:
    """Format the difference of our figure from a reference, such as ``+1.2%``."""
    return f"{ours / reference - 1:+.1%}"
