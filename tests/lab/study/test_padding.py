"""The padding of sealed keys and values, and its table in the results."""

from __future__ import annotations

from pathlib import Path

import pytest

from cassandra_spec.lab.study import padding


@pytest.mark.parametrize(
    "truncated", [4, *(pytest.param(t, marks=pytest.mark.slow) for t in (0, 3, 6))]
)
@pytest.mark.parametrize("width", padding.WIDTHS)
def test_padding_is_below_three_percent_at_1024_tokens(width: int, truncated: int) -> None:
    for name, kv in padding.settings(truncated):
        for kind in ("keys", "values"):
            found = padding.measure(kv, width, kind)
            assert 0 <= found.overhead < 0.03, (name, kind)
            assert found.used * 8 > 2 * padding.TOKENS * width, "there is something to pad"


def test_the_table_of_padding(capsys: pytest.CaptureFixture[str]) -> None:
    assert padding.main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + 2 * 6
    document = Path(__file__).parents[3] / "docs/results/kv.md"
    assert set(lines) <= set(document.read_text().splitlines())
