"""Rounds whose target is read from the file: projections by hand, and a small model measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from cassandra_spec.commands.__main__ import main
from cassandra_spec.lab.decode import shapes
from cassandra_spec.lab.decode.streaming import RoundCosts
from cassandra_spec.native.models import streaming
from tests.lab.decode.test_shapes import TINY


def test_long_drafts_pay_where_verifications_are_slow() -> None:
    quick = RoundCosts(where="memory", held=1, read=0, rate=None, draft=1.0, verify=(3.0,) * 16)
    slow = RoundCosts(where="file", held=1, read=1, rate=1.0, draft=1.0, verify=(90.0,) * 16)
    # At a rate of three quarters: 1.75 tokens in 1 + 3, 2.3125 in 2 + 3, 2.734375 in 3 + 3.
    assert quick.tokens_per_second(2, 0.75) == pytest.approx(2.3125 / 5)
    assert quick.best(0.75) == 2
    assert slow.best(0.75) > 8
    assert slow.best(0.0) == 0


def test_a_shape_is_packed_once_and_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(shapes.SHAPES, "1b", TINY)
    monkeypatch.setattr(streaming.Needs, "whole", property(lambda self: 1 << 60))
    document = tmp_path / "found.md"
    document.write_text("<!-- streaming -->\n<!-- /streaming -->\n")
    command = ["bench", "streaming", "--shape", "1b", "--out", str(tmp_path), "--rounds", "1"]
    command += ["--memory-limit", "50", "--threads", "1", "--document", str(document)]
    for _ in range(2):
        assert main(command) == 0
        table = capsys.readouterr().out
        assert "\nmemory " in table
        assert "\n15 " in table
    assert "target in" in document.read_text()


def test_one_model_must_be_given(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "streaming"]) == 2
    assert "either a packed model or --shape must be given" in capsys.readouterr().err
