"""The product's ``casspec bench decode``, which the laboratory's replaces in a checkout."""

from __future__ import annotations

from pathlib import Path

import pytest

from cassandra_spec.bench.commands import decode
from cassandra_spec.toolkit.running import CommandParser
from tests.model.tiny import write_model


def test_the_product_measures_its_own_contenders(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = write_model(tmp_path / "m", max_position_embeddings=1024)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    parser = CommandParser(prog="casspec bench decode")
    decode.define(parser)
    flags = [
        *(str(model), "--out", str(tmp_path / "out"), "--contenders", "native exact, 4 bits"),
        *("--prompts", "2", "--rounds", "1", "--max-tokens", "8", "--threads", "1", "--jobs", "1"),
    ]
    args = parser.parse_args(flags)
    assert args.run(args) == 0
    printed = capsys.readouterr()
    assert "PASS: 0 of 2 replies differ" in printed.out
    assert "dequantised: round 1: native plain, BF16" in printed.err
    with pytest.raises(SystemExit):
        parser.parse_args([*flags, "--llama-python", "python"])
