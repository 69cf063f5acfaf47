"""Times of opening a small model in fresh processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from cassandra_spec.commands.__main__ import main
from cassandra_spec.lab.decode import shapes
from cassandra_spec.lab.decode.opening import Opening, lines
from tests.lab.decode.test_shapes import TINY


def test_figures_are_medians_and_ratios_of_rounds() -> None:
    first = Opening(way="encoded", seconds=(2.0, 4.0, 10.0), peak=3 * 10**6, held=10**6)
    last = Opening(way="read", seconds=(1.0, 1.0, 2.0), peak=2 * 10**6, held=10**6)
    head, _, *rows = lines([first, last]).splitlines()
    assert rows[0].split()[-5:] == ["4.0", "(2.0-10.0)", "1.00", "3", "1"]
    assert rows[1].split()[-5:] == ["1.0", "(1.0-2.0)", "0.25", "2", "1"]
    assert "of encoded" in head


def test_a_model_is_opened_in_all_ways(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(shapes.SHAPES, "1b", TINY)
    command = ["bench", "opening", "--shape", "1b", "--out", str(tmp_path), "--rounds", "1"]
    assert main([*command, "--threads", "1"]) == 0
    table = capsys.readouterr().out
    assert [line.split("  ")[0] for line in table.splitlines()[2:]] == [
        "encoded",
        "encoded, then kept",
        "read as kept",
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["1b"]


def test_what_is_no_packed_model_is_refused_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command refuses it, not the process that it starts."""
    assert main(["bench", "opening", str(tmp_path / "none")]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "none must be a file, and is missing" in line
    page = tmp_path / "page.md"
    page.write_text("no block")
    assert main(["bench", "opening", str(tmp_path), "--document", str(page)]) == 2
    assert "document must have the markers" in capsys.readouterr().err
