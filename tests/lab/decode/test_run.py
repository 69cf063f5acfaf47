"""The whole benchmark on a small model, with contenders that need nothing else."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from cassandra_spec.commands.__main__ import main
from tests.commands.status import status_of
from tests.model.tiny import write_model


@pytest.mark.slow
def test_contenders_take_turns_and_a_run_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = write_model(tmp_path / "m", max_position_embeddings=1024)
    (tmp_path / "text.txt").write_text("word5 word6 word7 word8 " * 400)
    document = tmp_path / "d.md"
    document.write_text("<!-- decode -->\n<!-- /decode -->\n")
    out = tmp_path / "out"
    flags = [
        *("bench", "decode", str(model), "--out", str(out), "--weights", "dithered"),
        *("--contenders", "transformers*", "torch*", "native mx", "native hybrid, 12-bit target"),
        *("--beside", str(Path(__file__).parents[3]), "--prompts", "3", "--rounds", "2"),
        *("--max-tokens", "12", "--slow-tokens", "6", "--threads", "1", "--jobs", "1"),
        *("--calibration", str(tmp_path / "text.txt"), "--json", str(tmp_path / "r.json")),
        *("--figure", str(tmp_path / "f.svg"), "--document", str(document)),
    ]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert main(flags) == 0
    printed = capsys.readouterr()
    assert "PASS: 0 of 14 replies differ" in printed.out  # torch 2, native four times 3
    assert "of itself on the other checkout" in printed.out
    assert "dithered: round 2: torch backend, plain" in printed.err
    body = json.loads((tmp_path / "r.json").read_text())
    assert {each["contender"] for each in body["summaries"]} == {
        "transformers BF16",
        "torch backend, plain",
        "torch backend, exact, 4 bits",
        "native plain, 12-bit",
        "native plain, mx",
        "native mx",
        "native hybrid, 12-bit target",
        "native plain, 12-bit, beside",
        "native plain, mx, beside",
        "native mx, beside",
        "native hybrid, 12-bit target, beside",
    }
    assert len(body["turns"]) == 22
    assert "torch backend, plain" in document.read_text()
    assert (tmp_path / "f.svg").stat().st_size > 1000
    assert main([*flags, "--quiet"]) == 0  # nothing is left to do
    assert re.findall("ready", capsys.readouterr().err) == []
    (tmp_path / "other/cassandra_spec/native").mkdir(parents=True)
    for changed in (["--threads", "2"], ["--beside", str(tmp_path / "other")]):
        assert main([*flags, *changed]) == 2
        assert "must be of the same model, prompts and settings" in capsys.readouterr().err


@pytest.mark.slow
def test_a_contender_drafts_with_a_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = write_model(tmp_path / "m", max_position_embeddings=1024)
    packed, table = tmp_path / "p", tmp_path / "t.safetensors"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert main(["pack", str(model), str(packed), "--jobs", "1"]) == 0
    assert main(["bake-table", str(packed), str(table), "--tokens", "64", "--max-tokens", "8"]) == 0
    flags = [
        *("bench", "decode", str(model), "--out", str(tmp_path / "out"), "--table", str(table)),
        *("--contenders", "native hybrid, table*", "--prompts", "1", "--rounds", "1"),
        *("--max-tokens", "8", "--threads", "1", "--jobs", "1"),
    ]
    assert main(flags) == 0
    printed = capsys.readouterr().out
    assert "native hybrid, table, 12-bit target" in printed
    assert "PASS: 0 of 2 replies differ" in printed


def test_what_is_asked_for_is_checked_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "decode", "smollm2", "--contenders", "vllm"]) == 2
    assert "contenders must be among" in capsys.readouterr().err
    assert main(["bench", "decode", "smollm2", "--beside", "/"]) == 2
    assert "beside must be a checkout of this project, not /" in capsys.readouterr().err
    assert main(["bench", "decode", "smollm2", "--table", "nowhere"]) == 2
    assert "table must be a file of `casspec bake-table`, not nowhere" in capsys.readouterr().err
    assert status_of("bench", "decode", "smollm2", "--threads", "0") == 2
    assert "--threads: must be an integer from 1 to" in capsys.readouterr().err
