from __future__ import annotations

import re

import pytest

from cassandra_spec.toolkit.overview import RESULTS, SHOWN, plot, rates

PAGE = (RESULTS / "decoding.md").read_text(encoding="utf-8")


def test_the_picture_is_that_of_the_table() -> None:
    assert (RESULTS / "overview.svg").read_text(encoding="utf-8") == plot(PAGE).svg()


def test_a_contender_that_the_table_lacks_is_an_error() -> None:
    assert rates(PAGE)["llama.cpp BF16"] == 124
    with pytest.raises(KeyError, match=re.escape(next(iter(SHOWN)))):
        plot(PAGE.replace("llama.cpp BF16  ", "llama.cpp F16   "))
