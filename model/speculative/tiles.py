"""Tiles: the fixed shape in which every position is computed."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

ROWS = 8
"""Rows of a tile by default."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tile:
    """The rows of one tile that a pass computes: ``first`` to ``stop`` of ``rows``."""

    start: int  # position of row 0, a multiple of rows
    rows: int
    first: int  # first row that is not padding
    stop: int  # row after the last that is not padding


def tiles(start: int, stop: int, rows: int) -> Iterator[Tile]:
    """Yield the tiles that cover the positions ``start`` to ``stop``."""
    for base in range(start - start % rows, stop, rows):
        yield Tile(start=base, rows=rows, first=max(start - base, 0), stop=min(stop - base, rows))
