"""Measure how well tables of n-grams predict a model's replies, without passes."""

from __future__ import annotations

import dataclasses
import itertools
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cassandra_spec.drafting import NgramTable
from cassandra_spec.drafting.table import CONTINUATIONS, ENTRY_BYTES
from cassandra_spec.golden.errors import FileError
from cassandra_spec.golden.file import PackedFile
from cassandra_spec.golden.format import is_integer
from cassandra_spec.lab.compare.known_replies import KnownReply
from cassandra_spec.model.baking import open_table
from cassandra_spec.toolkit.tables import markdown_table

CHAIN = 3
"""Longest chain of first candidates that a verification checks."""

_MAX_TOKENS = 1 << 53  # tokens that a file may name


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableFigures:
    """Figures of one table, up to one order, over the replies."""

    file: str
    own_tokens: int
    text_tokens: int
    order: int
    entries: int
    bytes: int
    places: int  # tokens of the replies
    found: int  # places with a candidate
    first: int  # places whose next token is the first candidate
    among: int  # places whose next token is one of the first CONTINUATIONS candidates
    tokens_per_verification: float  # chains of at most CHAIN first candidates


def measure_tables(
    source: Path, tables: Sequence[Path], known: Sequence[KnownReply]
) -> Iterator[TableFigures]:
    """Yield the figures of each table, with its orders up to 1, 2 and so on."""
    for path in tables:
        whole, about = open_table(path, source), PackedFile(path).about
        for order in range(1, len(whole.orders) + 1):
            table = NgramTable(whole.orders[-order:])
            yield figures(table, known, path.name, about)


def figures(
    table: NgramTable, known: Sequence[KnownReply], name: str, about: Mapping[str, Any]
) -> TableFigures:
    """Compute the figures of one table; ``about`` is the metadata of its file."""
    return TableFigures(
        file=name,
        own_tokens=_tokens(about, "own_tokens", name),
        text_tokens=_tokens(about, "text_tokens", name),
        order=len(table.orders),
        entries=len(table),
        bytes=len(table) * ENTRY_BYTES,
        **_places(table, known),
        tokens_per_verification=_chains(table, known),
    )


def _tokens(about: Mapping[str, Any], field: str, name: str) -> int:
    found = about.get(field, 0)
    if not is_integer(found, 0, _MAX_TOKENS):
        raise FileError(
            f"{name}: {field} must be a whole number from 0 on, not {reprlib.repr(found)}"
        )
    return found


def _places(table: NgramTable, known: Sequence[KnownReply]) -> dict[str, int]:
    counts = {"places": 0, "found": 0, "first": 0, "among": 0}
    for each in known:
        tokens = each.tokens
        for place in range(len(each.prompt), len(tokens)):
            named = _named(table, tokens, place)
            counts["places"] += 1
            counts["found"] += bool(named)
            counts["first"] += tokens[place] in named[:1]
            counts["among"] += tokens[place] in named[:CONTINUATIONS]
    return counts


def _named(table: NgramTable, tokens: Sequence[int], place: int) -> list[int]:
    tail = tokens[max(place - len(table.orders), 0) : place]
    return [token for token, _ in table.candidates(tail)]


def _chains(table: NgramTable, known: Sequence[KnownReply]) -> float:
    """Return tokens per verification; the prompt's pass gives the first token of a reply."""
    emitted = rounds = 0
    for each in known:
        tokens, place = each.tokens, len(each.prompt) + 1
        while place < len(tokens):
            drafted = range(place, min(place + CHAIN, len(tokens) - 1))
            right = (tokens[at] in _named(table, tokens, at)[:1] for at in drafted)
            step = 1 + sum(itertools.takewhile(bool, right))
            emitted, rounds, place = emitted + step, rounds + 1, place + step
    return emitted / max(rounds, 1)


_COLUMNS = (
    *("own tokens", "order", "entries", "MB", "found", "first", "first three"),
    "tokens per verification",
)


def lines(found: Sequence[TableFigures]) -> str:
    """Format one Markdown table; in brackets, shares of all positions."""
    return markdown_table(_COLUMNS, [_cells(each) for each in found])


def _cells(one: TableFigures) -> list[str]:
    def share(count: int) -> str:
        return f"{count / max(one.found, 1):.3f} ({count / max(one.places, 1):.3f})"

    text = f" + {one.text_tokens:,}" if one.text_tokens else ""
    return [
        f"{one.own_tokens:,}{text}",
        str(one.order),
        f"{one.entries:,}",
        f"{one.bytes / 1e6:.2f}",
        f"{one.found / max(one.places, 1):.3f}",
        share(one.first),
        share(one.among),
        f"{one.tokens_per_verification:.3f}",
    ]
