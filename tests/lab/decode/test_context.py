"""Speed by context and along a reply: figures of turns that are known, and a small run."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from cassandra_spec.bench.decode.contenders import PLAIN
from cassandra_spec.bench.decode.results import LLAMA, Turn, summaries
from cassandra_spec.commands.__main__ import main
from cassandra_spec.golden import CassandraError
from cassandra_spec.lab.decode.context import (
    WINDOW,
    AtContext,
    _to_best_llama,
    _windows,
    check_contexts,
    context_lines,
    context_plot,
    reply_lines,
    reply_plot,
    window_rates,
)
from cassandra_spec.lab.decode.rivals import CONTENDERS, FLASH
from tests.bench.decode.test_results import FAST, SOME, some_turns, turn
from tests.model.tiny import write_model


def steady(contender: str, number: int, rates: list[float]) -> Turn:
    """Return a turn whose one reply has these tokens per second, window by window."""
    times, now = list[float](), 0.0
    for rate in rates:
        times += [now + (place + 1) / rate for place in range(WINDOW)]
        now = times[-1]
    reply = tuple(range(1 + len(times)))
    found = turn(contender, number, 1.0)
    return dataclasses.replace(found, replies=(reply,), times=(tuple(times),), seconds=now)


def test_windows_of_a_reply_are_timed_on_their_own() -> None:
    turns = [
        steady(PLAIN, 0, [100.0, 50.0]),
        steady(FAST, 0, [200.0, 150.0]),
        steady(PLAIN, 1, [200.0, 100.0, 50.0]),
        steady(FAST, 1, [400.0, 300.0]),
    ]
    assert window_rates(turns[2]) == pytest.approx([200.0, 100.0, 50.0])
    found = _windows(turns, FAST)
    assert [(each.first, each.rate.median) for each in found] == [
        (0, pytest.approx(300.0)),
        (WINDOW, pytest.approx(225.0)),
    ]
    assert all(each.to_plain is not None for each in found)
    ratios = [each.to_plain.median for each in found if each.to_plain]
    assert ratios == pytest.approx([2.0, 3.0])
    text = reply_lines([*_windows(turns, PLAIN), *found])
    assert "256 to 511" in text
    assert "225 (3.00)" in text
    assert "<svg" in reply_plot(found, "title").svg()


def test_the_better_of_both_settings_of_llama_is_the_baseline() -> None:
    turns = [*some_turns(), turn(FLASH, 0, 150.0), turn(FLASH, 1, 100.0)]
    ratio = _to_best_llama(turns, FAST)
    assert ratio is not None
    assert (ratio.low, ratio.median) == pytest.approx((2.5, 3.0))  # 2, 3 and 3
    assert _to_best_llama([turn(PLAIN, 0, 1.0)], PLAIN) is None
    flash = next(each for each in CONTENDERS if each.name == FLASH)
    found = [
        AtContext(
            context=context, summary=each, to_best_llama=_to_best_llama(turns, each.contender)
        )
        for context in (256, 8000)
        for each in summaries(turns, [*SOME, flash])
    ]
    assert {each.summary.contender for each in found} == {PLAIN, FAST, LLAMA, FLASH}
    lines = context_lines(found).splitlines()
    assert sum("8,000" in line for line in lines) == 4
    svg = context_plot(found, "By context").svg()
    assert "By context" in svg


@pytest.mark.parametrize("contexts", [[0, 5], [5, 5], [9, 5]])
def test_contexts_are_ascending(contexts: list[int]) -> None:
    with pytest.raises(CassandraError, match="contexts must be ascending, from 1 on"):
        check_contexts(contexts)


def test_contexts_and_a_reply_of_a_small_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = write_model(tmp_path / "m", max_position_embeddings=1024)
    (tmp_path / "text.txt").write_text("word5 word6 word7 word8 " * 400)
    (tmp_path / "figures").mkdir()
    flags = [
        *("bench", "context", str(model), "--out", str(tmp_path / "out"), "--contexts", "200"),
        *("--max-tokens", "8", "--rounds", "1", "--reply", "300", "--threads", "1", "--jobs", "1"),
        *("--calibration", str(tmp_path / "text.txt"), "--json", str(tmp_path / "r.json")),
        *("--figures", str(tmp_path / "figures")),
    ]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert main(flags) == 0
    assert "PASS: 0 of 4 replies differ" in capsys.readouterr().out
    body = json.loads((tmp_path / "r.json").read_text())
    assert {each["context"] for each in body["contexts"]} == {200}
    assert {each["first"] for each in body["windows"]} == {0}
    assert sorted(each.name for each in (tmp_path / "figures").iterdir()) == [
        "context.svg",
        "reply.svg",
    ]
