"""Pages: one file that stands alone, with everything as it was given."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from cassandra_spec.toolkit.page import Page
from cassandra_spec.toolkit.plots import Bar, Plot

VOID = {"meta"}


class Reader(HTMLParser):
    """Text by element, and whether every element is closed where it should be."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.found: list[tuple[str, str]] = []
        self.feed(page)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.found.append((self.open[-1], data))


def example() -> str:
    page = Page("Ends & means")
    page.heading("One <section>")
    page.paragraph("a & b")
    page.table("A table", ["name", "value"], [["x<y", 3], ["z", 4.5]])
    bars = (Bar(label="one", value=1.0),)
    page.plot("A plot", Plot(name="p", title="t < u", axis="seconds", bars=bars).svg())
    page.text("PASS\n<done>")
    page.beside({"left": "1 < 2", "right": "</pre><script>alert(1)</script>"})
    return page.html()


def test_everything_is_shown_as_it_was_given() -> None:
    found = Reader(example()).found
    for each in (
        ("h1", "Ends & means"),
        ("h2", "One <section>"),
        ("p", "a & b"),
        ("caption", "A table"),
        ("th", "x<y"),
        ("td", "4.5"),
        ("figcaption", "A plot"),
        ("pre", "PASS\n<done>"),
        ("h3", "left"),
        ("pre", "</pre><script>alert(1)</script>"),
    ):
        assert each in found


def test_a_page_needs_nothing_from_outside() -> None:
    page = example()
    assert "<script" not in page
    loaded = re.findall(r"(?:src|href|url)\s*[=(]\s*[\"']?([^#\"' )>]+)", page)
    assert loaded == []
    assert "DOCTYPE svg" not in page
