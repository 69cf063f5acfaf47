"""Tables of the reproduction inside a document."""

from __future__ import annotations

from collections.abc import Iterable

from cassandra_spec.report.documents import block_names, fill
from cassandra_spec.report.tables import Table
from cassandra_spec.system.errors import unknown

__all__ = ["fill_tables"]

_PREFIX = "table: "


def fill_tables(document: str, tables: Iterable[Table]) -> str:
    """A document with the tables of its blocks ``table: TITLE`` as they are now.

    Raises:
        SystemModelError: no table has the title of a block.
    """
    known = {_PREFIX + table.title: table for table in tables}
    names = [name for name in block_names(document) if name.startswith(_PREFIX)]
    for name in names:
        if name not in known:
            titles = [title.removeprefix(_PREFIX) for title in known]
            unknown("table", name.removeprefix(_PREFIX), titles)
    return fill(document, {name: known[name].markdown(heading=False) for name in names})
