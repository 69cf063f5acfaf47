"""The rate of arrays: what the command makes of what was measured."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from cassandra_spec.lab.gateware import array_rate
from cassandra_spec.verif.dma.rate import Rate


def rate(values: int, target: bool) -> Rate:
    """Return two decoders of 16 lanes at half rate that give ``values`` in a cycle of a draft."""
    steady = values // 2 if target else values
    return Rate(values=90, cycles=10, steady_values=steady, steady_cycles=1, words=1)


@pytest.mark.parametrize(("values", "status"), [(32, 0), (31, 1)])
def test_the_table_goes_into_the_document_and_a_slow_draft_is_an_error(
    values: int, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(array_rate, "measure", lambda *_, target, **__: rate(values, target))
    monkeypatch.setattr(array_rate, "open_source", lambda _: None)
    monkeypatch.setattr(array_rate, "weights_of", lambda *_: SimpleNamespace(name="tensor"))
    document = tmp_path / "page.md"
    document.write_text("<!-- array-half -->\n\n<!-- /array-half -->\n")
    flags = ["--decoders", "2", "--segments", "2", "--document", str(document)]
    assert array_rate.main(flags) == status
    rows = document.read_text().splitlines()[4:10]
    assert (
        rows[0]
        == f"| 2 | unary | draft | {values}.00 | {2 * values}.0 | {values / 32:.1%} | 9.00 |"
    )
    assert [row.split(" | ")[1:3] for row in rows[1:3]] == [["unary", "target"], ["mx", "draft"]]
