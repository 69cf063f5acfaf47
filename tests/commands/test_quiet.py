"""Progress bars: on a terminal alone."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cassandra_spec.commands.__main__ import main


@pytest.mark.parametrize("terminal", [False, True])
def test_bars_are_for_terminals(
    llama: Path,
    tmp_path: Path,
    terminal: bool,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    flags = ["--scheme", "exact", "--group", "16", "--jobs", "1"]
    assert main(["pack", str(llama), str(tmp_path / "p"), *flags]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert any("packing" in line for line in lines) == terminal
    assert lines[-1].startswith(f"{tmp_path / 'p'}: ")  # what was done is always said
