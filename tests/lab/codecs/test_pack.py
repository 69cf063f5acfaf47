"""``casspec bench pack``: a row for each thing that was measured, with both codecs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cassandra_spec.commands.__main__ import main
from cassandra_spec.golden import GoldenCodec, Packed
from cassandra_spec.lab.codecs import pack as pack_bench
from tests.commands.status import status_of


def test_every_scheme_is_packed_and_unpacked(
    llama: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "pack.json"
    words = ["--rounds", "2", "--jobs", "1", "--quiet", "--schemes", "unary", "exact"]
    assert main(["bench", "pack", str(llama), *words, "--json", str(file)]) == 0
    body = json.loads(file.read_text())
    whats = [f"{scheme}: {what}" for scheme in ("unary", "exact") for what in ("pack", "unpack")]
    assert sorted(body) == sorted(whats)
    assert all(len(body[what][codec]) == 2 for what in whats for codec in ("golden", "native"))
    out = capsys.readouterr().out
    assert all(what in out for what in whats)


def test_codecs_that_differ_are_not_compared(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrong(GoldenCodec):
        def decode_target(self, packed: Packed):  # type: ignore[no-untyped-def]
            return super().decode_target(packed) ^ 1

    monkeypatch.setattr(pack_bench, "GoldenCodec", Wrong)
    with pytest.raises(AssertionError, match="same files"):
        pack_bench.measure_packing(str(llama), ["exact"], rounds=1, jobs=1, progress=False)


def test_no_round_is_refused(llama: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of("bench", "pack", str(llama), "--rounds", "0") == 2
    assert "--rounds: must be an integer from 1 to 2147483647, not 0" in capsys.readouterr().err
