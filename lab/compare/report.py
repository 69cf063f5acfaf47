"""The comparison of draft methods as tables, plots, and one page of HTML."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

from cassandra_spec.lab.compare.run import Figures
from cassandra_spec.lab.questions import ALL
from cassandra_spec.model.output import write_file, write_json
from cassandra_spec.toolkit.documents import fill_file, provenance
from cassandra_spec.toolkit.page import Page
from cassandra_spec.toolkit.tables import Table

_HEADER = (
    *("method", "identical", "accepted / drafted", "conditional", "per verification", "uncut"),
    *("MB / token", "MFLOP / token", "of plain", "traffic, weights", "traffic, all"),
    *("extra MB", "training s", "one pass"),
)
CLAIMS = "Claims"
"""Title of the table of the papers' claims; documents have a fuller one."""

_BY_CATEGORY: dict[str, Callable[[Figures], str]] = {
    "traffic speed-up": lambda one: f"{one.speedup:.2f}",
    "tokens per verification": lambda one: f"{one.tokens_per_verification:.2f}",
}


def tables(found: Sequence[Figures]) -> list[Table]:
    """Format tables: all turns, two figures by category, the papers' claims."""
    whole = [each for each in found if each.category == ALL]
    categories = [c for c in dict.fromkeys(each.category for each in found) if c != ALL]
    made = [
        Table(
            title=f"Draft methods, {whole[0].turns} replies, {whole[0].tokens} tokens",
            header=_HEADER,
            rows=tuple(_cells(each) for each in whole),
            notes=(_NOTE,),
        )
    ]
    by_place = {(each.label, each.category): each for each in found}
    for title, cell in _BY_CATEGORY.items():
        rows = tuple(
            (each.label, *(cell(by_place[each.label, category]) for category in categories))
            for each in whole
        )
        made.append(Table(title=f"By category: {title}", header=("method", *categories), rows=rows))
    claims = [(e.label, e.claim, _measured(e), e.about) for e in whole if e.claim and e.looped]
    if claims:
        header = ("method", "the paper says", "here", "found while preparing")
        made.append(Table(title=CLAIMS, header=header, rows=tuple(claims)))
    return made


_NOTE = (
    "`uncut`: tokens per verification of the rounds that the end of the reply did not cut."
    " Traffic speed-ups are over plain decoding in BF16. `one pass`: replies whose rounds follow"
    " from one teacher-forced pass as the loop has them."
)


def _cells(one: Figures) -> tuple[str, ...]:
    return (
        one.label,
        f"{one.identical}/{one.looped}" if one.looped else "-",
        _rate(one.acceptance),
        _rate(one.conditional),
        f"{one.tokens_per_verification:.2f}",
        "-" if one.tokens_per_whole_round is None else f"{one.tokens_per_whole_round:.2f}",
        f"{one.bytes_per_token / 1e6:.1f}",
        f"{one.flops_per_token / 1e6:.0f}",
        f"{one.flops_of_plain:.2f}",
        f"{one.weights_speedup:.2f}",
        f"{one.speedup:.2f}",
        f"{one.memory / 1e6:.0f}",
        f"{one.training_seconds:.0f}",
        f"{one.forced_equal}/{one.forced}" if one.forced else "-",
    )


def _rate(rate: float | None) -> str:
    return "-" if rate is None else f"{rate:.3f}"


def _measured(one: Figures) -> str:
    return (
        f"{one.tokens_per_verification:.2f} tokens per verification, accepted / drafted"
        f" {_rate(one.acceptance)}, traffic {one.speedup:.2f}"
    )


def plots(found: Sequence[Figures], *, title: str) -> bytes:
    """Draw bars as an SVG: tokens per verification, and traffic with keys and values."""
    from cassandra_spec.toolkit.plots import draw_bars  # needs the extra `plots`

    whole = [each for each in found if each.category == ALL]
    columns = {
        "tokens per verification": [each.tokens_per_verification for each in whole],
        "traffic speed-up over BF16": [each.speedup for each in whole],
    }
    return draw_bars([each.label for each in whole], columns, title=title)


def page(found: Sequence[Figures], *, title: str) -> str:
    """Format all tables and plots as one self-contained HTML page."""
    out = Page(title)
    for table in tables(found):
        out.table(table.title, table.header, table.rows)
        for note in table.notes:
            out.paragraph(note)
    out.plot("tokens per verification, and traffic", plots(found, title=title).decode())
    return out.html()


def save(
    found: Sequence[Figures],
    *,
    title: str,
    json_file: Path | None = None,
    figure: Path | None = None,
    page_file: Path | None = None,
    document: Path | None = None,
    block: str = "compare",
) -> None:
    """Write figures as JSON, bars, one page, and the tables into a block of a document."""
    if json_file:
        write_json(json_file, [dataclasses.asdict(each) for each in found])
    if figure:
        write_file(figure, plots(found, title=title))
    if page_file:
        write_file(page_file, page(found, title=title).encode())
    if document:
        shown = [table for table in tables(found) if table.title != CLAIMS]
        text = "\n\n".join(table.markdown() for table in shown)
        fill_file(document, {block: f"{provenance()}\n\n{text}"})
