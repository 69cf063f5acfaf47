from __future__ import annotations

import re

import pytest

from cassandra_spec.toolkit.documents import block
from cassandra_spec.toolkit.overview import RESULTS, SHOWN, plot, rates

PAGE = (RESULTS / "decoding.md").read_text(encoding="utf-8")


def test_the_picture_is_that_of_the_table() -> None:
    assert (RESULTS / "overview.svg").read_text(encoding="utf-8") == plot(PAGE).svg()


def test_the_readme_speaks_of_the_contenders_of_the_picture() -> None:
    """The picture's text has its rates; the first row of figures is its last bar's contender."""
    readme = (RESULTS.parents[1] / "README.md").read_text(encoding="utf-8")
    told = re.findall(r"!\[(Tokens per second[^\]]*)\]", readme)
    assert [re.findall(r"\b\d+\b", text) for text in told] == [
        [f"{bar.value:.0f}" for bar in plot(PAGE).bars]
    ]
    ratios = readme.split("| tokens per second, hybrid draft (the last bar) |")[1].split("|")[0]
    table = block(PAGE, "decode zen5").splitlines()
    [row] = [line for line in table if line.strip().startswith(f"{[*SHOWN][-1]}  ")]
    numbers = re.findall(r"\d+\.\d+", ratios)
    assert numbers
    assert [number for number in numbers if number not in row] == []


def test_a_contender_that_the_table_lacks_is_an_error() -> None:
    assert rates(PAGE)["llama.cpp BF16"] == 124
    with pytest.raises(KeyError, match=re.escape(next(iter(SHOWN)))):
        plot(PAGE.replace("llama.cpp BF16  ", "llama.cpp F16   "))
