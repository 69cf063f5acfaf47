"""Acceptance by temperature and rule, on a tiny model."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from cassandra_spec.commands.__main__ import main
from cassandra_spec.lab.drafts.sampling import Accepted, lines
from tests.model.tiny import write_model


def test_rules_are_measured_on_the_same_questions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_model(tmp_path / "model")
    assert (
        main(["pack", str(tmp_path / "model"), str(tmp_path / "packed"), "--scheme", "exact"]) == 0
    )
    body = {"category": "a", "turns": ["word1 word2 word3"]}
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(body) + "\n" for _ in range(3)))
    asked = ["--questions", str(tmp_path / "q.jsonl"), "--each", "2", "--tokens", "12"]
    out = ["--temperatures", "0.5", "1.5", "--json", str(tmp_path / "out.json")]
    capsys.readouterr()
    assert main(["bench", "sampling", str(tmp_path / "packed"), *asked, *out]) == 0
    found = json.loads((tmp_path / "out.json").read_text())["accepted"]
    order = [(each["temperature"], each["rule"]) for each in found]
    assert order == [(t, rule) for t in (0.5, 1.5) for rule in ("noise", "rejection")]
    assert all(0 <= each["accepted"] <= each["tested"] > 0 for each in found)
    assert "accepted, by rejection" in capsys.readouterr().out


def test_a_rate_has_the_error_of_independent_tokens() -> None:
    one = Accepted(rule="noise", temperature=0.7, accepted=75, tested=100)
    assert one.error == pytest.approx(math.sqrt(0.75 * 0.25 / 100))
    none = Accepted(rule="rejection", temperature=0.7, accepted=0, tested=0)
    assert math.isnan(none.rate)
    assert "0.750 ± 0.043 (75 of 100)" in lines([one, none])
