"""Other programs: what they print, how they fail, and how long they run."""

from __future__ import annotations

import io
import re
import sys
import time
from pathlib import Path

import pytest

from cassandra_spec.toolkit import programs
from cassandra_spec.toolkit.programs import run_program


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def python(text: str) -> list[object]:
    return [sys.executable, "-c", text]


def test_both_outputs_come_back_and_into_the_log(tmp_path: Path) -> None:
    text = "import sys; print('one', flush=True); print('two', file=sys.stderr)"
    log = tmp_path / "log"
    assert run_program(python(text), tmp_path, error=ValueError, log=log) == "one\ntwo\n"
    assert log.read_text() == "one\ntwo\n"


def test_failures_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^nothing must be a program that runs: No such file"):
        run_program([tmp_path / "nothing"], tmp_path, error=ValueError)
    text, log = "print('first'); raise SystemExit('last')", tmp_path / "log"
    message = rf"must end without an error, not with 'last' \(all of it: {log}\)$"
    for title in (None, "step"):
        with pytest.raises(ValueError, match=message):
            run_program(python(text), tmp_path, error=ValueError, log=log, title=title)


def test_a_step_with_a_title_says_how_long_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = python("import time; time.sleep(0.5); print('done')")
    monkeypatch.setattr(programs, "TICK", 0.1)
    assert run_program(command, tmp_path, error=ValueError) == "done\n"
    assert capsys.readouterr().err == ""
    assert run_program(command, tmp_path, error=ValueError, title="step") == "done\n"
    assert re.fullmatch(r" +\d s  step\n", capsys.readouterr().err)
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    assert run_program(command, tmp_path, error=ValueError, title="step") == "done\n"
    assert re.fullmatch(r"(\r +\d s  step){2,}\n", terminal.getvalue())


def test_a_program_does_not_outlive_an_interrupt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(process: object, title: str) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(programs, "_watched", interrupt)
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run_program(
            python("import time; time.sleep(600)"), tmp_path, error=ValueError, title="step"
        )
    assert time.monotonic() - start < 300


def test_a_program_that_runs_too_long_is_ended(tmp_path: Path) -> None:
    text = "import time; print('begun', flush=True); time.sleep(600); print('done')"
    start = time.monotonic()
    assert run_program(python(text), tmp_path, error=ValueError, limit=5) == "begun\n"
    assert time.monotonic() - start < 300
