"""Pages of docs: each has one kind, a size, and no measurements but those of docs/results."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from cassandra_spec.commands.arguments import build_parser

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
RESULTS = DOCS / "results"
PAGES = sorted(page for page in DOCS.glob("**/*.md") if page.name != "index.md")
KINDS = ("Tutorials", "How-to", "Reference", "Explanation", "Results")

WORDS = 3000
LARGER = {"format.md": 5500}
TOTAL = 44_000
NOT_CHECKED = {
    "format.md": "its decimals are the worked example's",
}
"""Pages that may have tables with decimals, each with its reason."""

_DECIMAL = re.compile(r"(?<![\w.,`-])[-+]?\d*\.\d+\b")
_BLOCK = re.compile(r"^<!-- (.+) -->$.*?^<!-- /\1 -->$", re.MULTILINE | re.DOTALL)
_ORIGIN = re.compile(r"casspec |make [a-z]|python -m ")
_DAY = re.compile(r"\b20\d\d-\d\d-\d\d\b")


def written(page: Path) -> int:
    """Count the words of a page that no command writes."""
    text = page.read_text(encoding="utf-8")
    if text.startswith("# Registers\n"):
        return 0  # generated whole
    return len(re.findall(r"\S*[^\W_]\S*", _BLOCK.sub("", text)))


def kinds() -> dict[str, list[Path]]:
    """Return the pages that the index lists under each kind."""
    parts = re.split(r"^## (.+)$", (DOCS / "index.md").read_text("utf-8"), flags=re.MULTILINE)[1:]
    links = (re.findall(r"\]\(([^)#]+)\)", text) for text in parts[1::2])
    return dict(zip(parts[::2], ([DOCS / link for link in found] for found in links), strict=True))


def tables(text: str) -> Iterator[str]:
    """Yield every Markdown table, and every code block with a line of dashes below a heading."""
    yield from re.findall(r"(?:^ *\|.*\n)+", text, re.MULTILINE)
    blocks: list[str] = re.findall(r"(?:^    .*\n)+", text, re.MULTILINE)
    yield from (each for each in blocks if re.search(r"^ +---+  +---", each, re.MULTILINE))


def measured(table: str) -> bool:
    """Return whether a table has more decimals than defaults and limits explain."""
    return len(_DECIMAL.findall(re.sub(r"`[^`]*`|\([^)]*\)", "", table))) > 2


def test_the_index_lists_every_page_once() -> None:
    listed = kinds()
    assert tuple(listed) == KINDS
    assert sorted(page for pages in listed.values() for page in pages) == PAGES
    assert all((page.parent == RESULTS) == (page in listed["Results"]) for page in PAGES)


def test_the_index_begins_with_three_paths_of_four_pages() -> None:
    intro = (DOCS / "index.md").read_text("utf-8").split("## ")[0]
    paths = re.findall(r"^\| you .*$", intro, re.MULTILINE)
    pages = [re.findall(r"\]\(([^)]+)\)", path) for path in paths]
    assert [len(set(path)) for path in pages] == [4, 4, 4]
    assert {DOCS / page for path in pages for page in path} <= set(PAGES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_a_page_is_short_and_has_no_measurements(page: Path) -> None:
    if page.parent == RESULTS:
        return
    text = page.read_text(encoding="utf-8")
    assert written(page) <= LARGER.get(page.name, WORDS)
    found = [table for table in tables(text) if measured(table)]
    assert found == [] or page.name in NOT_CHECKED


@pytest.mark.parametrize("page", sorted(RESULTS.glob("*.md")), ids=lambda page: page.name)
def test_a_page_of_results_names_commands_and_days(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert _ORIGIN.search(text)
    assert _DAY.search(text)


def commands(page: Path) -> Iterator[list[str]]:
    """Yield words of the ``casspec`` commands in a page's blocks of code, without remarks."""
    text = page.read_text(encoding="utf-8").replace("\\\n    ", "")
    for line in re.findall(r"^    (?:\S*/)?casspec (.+)$", text, re.MULTILINE):
        yield shlex.split(re.split(r"(?<=\S) {3,}(?=\S)", line)[0], comments=True)


def test_commands_of_tutorials_and_how_to_pages_are_complete() -> None:
    """Every argument is known and none is missing; the tutorial's also run (test_tutorials.py)."""
    found = [words for kind in KINDS[:2] for page in kinds()[kind] for words in commands(page)]
    assert len(found) > 20
    for words in found:
        assert callable(build_parser().parse_args(words).run)


def test_all_pages_together_are_short(capsys: pytest.CaptureFixture[str]) -> None:
    """Print the words by page and kind, too."""
    total = written(ROOT / "README.md")
    with capsys.disabled():
        for kind, pages in kinds().items():
            counts = {page: written(page) for page in pages}
            print(f"\n{kind}: {sum(counts.values()):,} words")
            for page, count in counts.items():
                print(f"  {count:6,}  {page.relative_to(DOCS)}")
            total += sum(counts.values()) if kind != "Results" else 0
        print(f"README and all but results: {total:,} words")
    assert total <= TOTAL


def test_a_table_of_measurements_is_found() -> None:
    specified = "| setting | default |\n|---|---|\n| margin | 1.5 |\n| `0.25` | `1.5`, `2.5` |\n"
    found = "| a | 1.23 | 2.34 |\n| b | 3.45 | .56 |\n"
    text = "    name  rate\n    ----  ----\n    a     1.23\n    b     4.56\n    c     7.89\n"
    assert [measured(each) for each in (specified, found)] == [False, True]
    assert [*map(measured, tables(text))] == [True]
