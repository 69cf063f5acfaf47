"""Figures of tables of n-grams, against what a hand counts."""

from __future__ import annotations

import pytest

from cassandra_spec.drafting import NgramTable
from cassandra_spec.golden.errors import FileError
from cassandra_spec.lab.compare.known_replies import KnownReply
from cassandra_spec.lab.drafts import tables


@pytest.mark.parametrize(
    ("reply", "found", "first", "per_verification"),
    [
        ((1, 2, 3, 4, 5, 6, 7, 8, 9), 9, 9, 4.0),  # 1 free, then 3 drafted and 1 more, twice
        ((1, 2, 3, 4, 5, 6, 7, 8), 8, 8, 3.5),  # the second verification has no room for 3 drafts
        ((2, 3, 9, 9, 9), 3, 1, 4 / 3),  # 9 is behind nothing; 2 is not what follows 0
        ((), 0, 0, 0.0),
    ],
)
def test_places_and_chains(
    reply: tuple[int, ...], found: int, first: int, per_verification: float
) -> None:
    table = NgramTable.count([list(range(10))], vocabulary=96)
    known = KnownReply(prompt=[0], reply=list(reply))
    each = tables.figures(table, [known], "file", {"own_tokens": 10})
    assert (each.order, each.own_tokens, each.bytes) == (3, 10, 32 * (9 + 8 + 7))
    assert (each.places, each.found, each.first) == (len(reply), found, first)
    assert each.among == first  # only one token follows each run
    assert each.tokens_per_verification == pytest.approx(per_verification)


@pytest.mark.parametrize("value", ["many", -1, 1.5, None])
def test_what_a_file_says_of_itself_is_checked(value: object) -> None:
    table = NgramTable.count([list(range(10))], vocabulary=96)
    with pytest.raises(
        FileError, match=r"^file: own_tokens must be a whole number from 0 on, not "
    ):
        tables.figures(table, [], "file", {"own_tokens": value})
