"""``casspec bench codec``: a table of every configuration, measured on a few weights."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from cassandra_spec.commands.__main__ import main
from cassandra_spec.lab.codecs.codec import dithered
from cassandra_spec.lab.codecs.tasks import CONFIGURATIONS, take_weights
from tests.commands.status import status_of


def test_every_configuration_has_a_row(
    llama: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "codec.json"
    words = ["--values", "20000", "--rounds", "2", "--isa", "portable", "--json", str(file)]
    assert main(["bench", "codec", str(llama), *words]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "20,000 weights" in lines[0]
    names = [line.split("  ")[0] for line in lines[4:]]
    assert names[0] == "memcpy"
    assert {f"{name} [portable]" for name in CONFIGURATIONS} <= set(names)
    body = json.loads(file.read_text())
    assert all(len(seconds) == 2 for seconds in body["seconds"].values())


def test_dithering_changes_little_and_nothing_when_it_is_off(llama: Path) -> None:
    plain = take_weights(str(llama), 5000)
    noisy = dithered(plain)
    numbers = [(v.astype(np.uint32) << 16).view(np.float32) for v in (plain, noisy)]
    np.testing.assert_allclose(numbers[1], numbers[0], rtol=1 / 40)
    assert (plain != noisy).mean() > 0.5


@pytest.mark.parametrize("flags", [["--isa", "sse9"], ["--rounds", "0"]])
def test_bad_flags_are_one_line(
    llama: Path, flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_of("bench", "codec", str(llama), *flags) == 2
    assert capsys.readouterr().err.count("\n") == 1
