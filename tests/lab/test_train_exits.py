"""``casspec train-exits``."""

from __future__ import annotations

from pathlib import Path

import pytest

from cassandra_spec.commands.__main__ import main
from cassandra_spec.lab.exits.run import open_exits
from tests.commands.test_bake_table import packed

__all__ = ["packed"]  # a fixture

FLAGS = ["--tokens", "200", "--turn-tokens", "8", "--max-tokens", "16", "--backend", "torch"]


def test_exits_are_trained(
    packed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["train-exits", str(packed), str(tmp_path / "e"), *FLAGS, "--epochs", "1"]
    assert main([*command, "--layers", "1"]) == 0
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "layer 1: " in shown.err
    assert open_exits(tmp_path / "e", packed).layers == (1,)
    assert main(command) == 2
    line = "casspec: error: an exit must be behind layer 1 to 1, not 9\n"
    assert capsys.readouterr().err == line
