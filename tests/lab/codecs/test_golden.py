"""`make bench` runs and prints its tables."""

from __future__ import annotations

import re

import pytest

from cassandra_spec.lab.codecs.golden import NAMES, main, take_rows
from cassandra_spec.lab.rounds import measure, ratio, spread


@pytest.mark.slow
def test_it_prints_a_line_for_every_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--values", "40000", "--repeat", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"3\d,\d{3} weights of smollm2, 2 rounds, one thread", lines[0])
    starts = [*NAMES, "zstd -3", "unary, draft", "exact, target"]
    for start in starts:
        assert any(line.startswith(f"{start} ") for line in lines), start


def test_the_weights_are_rows_of_real_ones() -> None:
    rows = take_rows("smollm2", 10_000)
    assert 10_000 - rows.shape[1] < rows.size <= 10_000
    assert rows.ndim == 2
    assert len(set(rows.reshape(-1).tolist())) > 100


def test_a_missing_model_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--source", "no/such/model"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_every_task_runs_once_in_each_round() -> None:
    done: list[str] = []
    tasks = {"a": lambda: done.append("a"), "b": lambda: done.append("b")}
    seconds = measure(tasks, 3)
    assert done == ["a", "b"] * 3
    assert [len(times) for times in seconds.values()] == [3, 3]
    assert len(measure(tasks, 1, warm_up=True)["a"]) == 1
    assert done == ["a", "b"] * 5


def test_figures_are_medians() -> None:
    assert spread(10, [1, 5, 2]) == "5 (2-10)"
    assert ratio([1, 2, 4], [4, 4, 4]) == "2.00"
