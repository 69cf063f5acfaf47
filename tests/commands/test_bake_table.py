"""``casspec bake-table``."""

from __future__ import annotations

from pathlib import Path

import pytest

from cassandra_spec.commands.__main__ import main
from cassandra_spec.model.baking import open_table

FLAGS = ["--tokens", "100", "--turn-tokens", "8", "--max-tokens", "16", "--threads", "1"]


@pytest.fixture(scope="module")
def packed(llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("table") / "packed"
    assert (
        main(["pack", str(llama), str(place), "--scheme", "exact", "--quiet", "--jobs", "1"]) == 0
    )
    return place


@pytest.mark.parametrize("backend", ["native", "torch"])
def test_a_table_is_baked_with_either_backend(
    backend: str, packed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["bake-table", str(packed), str(tmp_path / "t"), *FLAGS, "--backend", backend]
    assert main(command) == 0
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(f"{tmp_path / 't'}: ")  # no progress: this is not a terminal
    assert shown.err.count("\n") == 1
    table = open_table(tmp_path / "t", packed)
    assert f"{len(table):,} runs of 1" in shown.err
    again = [*command[:2], str(tmp_path / "u"), *command[3:], "--quiet"]
    assert main(again) == 0
    assert capsys.readouterr().err == ""
    assert (tmp_path / "t").read_bytes() == (tmp_path / "u").read_bytes()


@pytest.mark.slow
def test_the_table_does_not_depend_on_the_batch(packed: Path, tmp_path: Path) -> None:
    flags = [*FLAGS, "--tokens", "1200", "--quiet"]
    for batch in ("1", "3", "16"):
        command = ["bake-table", str(packed), str(tmp_path / batch), *flags, "--batch", batch]
        assert main(command) == 0
    one, three, sixteen = ((tmp_path / batch).read_bytes() for batch in ("1", "3", "16"))
    assert one == three == sixteen


def test_bad_input_is_one_line(
    packed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bake-table", str(packed), str(tmp_path), *FLAGS]) == 2
    line = f"casspec: error: {tmp_path} must be a file to write, not a directory\n"
    assert capsys.readouterr().err == line
