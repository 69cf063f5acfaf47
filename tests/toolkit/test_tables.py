from __future__ import annotations

from cassandra_spec.toolkit.tables import Table, difference, markdown_table, text_table

HEADER = ("name", "x")
ROWS = (("a", "1.5"), ("bb", "10"))


def test_a_table_as_text_and_as_markdown() -> None:
    table = Table(title="T", header=HEADER, rows=ROWS, notes=("n",))
    assert table.text() == "T\nname    x\n----  ---\na     1.5\nbb     10\nn"
    assert table.markdown() == "### T\n\n| name | x |\n| :-- | --: |\n| a | 1.5 |\n| bb | 10 |\n\nn"
    assert table.markdown(heading=False).startswith("| name")


def test_columns_are_aligned_as_asked_for() -> None:
    words = [("a", "b"), ("cc", "dd")]
    assert text_table(HEADER, words) == "name   x\n----  --\na      b\ncc    dd"
    assert text_table(HEADER, words, left=2) == "name  x\n----  --\na     b\ncc    dd"
    assert text_table(HEADER, words, left=None) == text_table(HEADER, words, left=2)
    assert markdown_table(HEADER, ROWS, left=2).splitlines()[1] == "| :-- | :-- |"
    assert markdown_table(HEADER, [("a", 1)]).splitlines()[1:] == ["| :-- | --: |", "| a | 1 |"]


def test_a_table_without_rows_is_its_header() -> None:
    assert text_table(HEADER, []) == "name  x\n----  -"
    assert markdown_table(HEADER, [], left=2) == "| name | x |\n| :-- | :-- |"


def test_a_difference_has_its_sign() -> None:
    assert (difference(1.1, 1.0), difference(0.9, 1.0)) == ("+10.0%", "-10.0%")
