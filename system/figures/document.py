"""Tables of the reproduction inside a document, between markers that name them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from cassandra_spec.system.errors import unknown
from cassandra_spec.system.tables import Table

__all__ = ["fill"]

_BLOCK = re.compile(r"(<!-- table: (.+?) -->\n).*?(<!-- end of table -->)", re.S)


def fill(text: str, tables: Iterable[Table]) -> str:
    """A document with every table between its markers as it is now.

    A block begins with ``<!-- table: TITLE -->`` and ends with ``<!-- end of table -->``.

    Raises:
        SystemModelError: no table has the title of a block.
    """
    known = {table.title: table for table in tables}

    def block(match: re.Match[str]) -> str:
        begin, title, end = match.groups()
        if title not in known:
            unknown("table", title, known)
        return f"{begin}\n{known[title].markdown(heading=False)}\n\n{end}"

    return _BLOCK.sub(block, text)
