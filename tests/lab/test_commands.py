"""Every benchmark, and the main job, refuse bad input in one line."""

from __future__ import annotations

import importlib

import pytest

from cassandra_spec.toolkit.running import LONGEST_LINE


@pytest.mark.parametrize(
    ("module", "flags"),
    [
        ("lab.gateware.array_rate", "--segments 1"),
        ("lab.gateware.decoder_rate", "--values 0"),
        ("lab.gateware.energy", "--segments 0"),
        ("lab.codecs.golden", "--values 1" + "0" * 40),
        ("lab.codecs.golden", "--source no/such/model"),
        ("lab.soak.__main__", "--max-tokens -1"),
        ("lab.soak.__main__", "--prompts 75"),
        ("verif.end_to_end.__main__", "--tokens 0"),
        ("verif.end_to_end.__main__", "--source no/such/model"),
        ("verif.end_to_end.__main__", "--work no/such/folder"),
    ],
)
def test_bad_input_is_one_line(module: str, flags: str, capsys: pytest.CaptureFixture[str]) -> None:
    main = importlib.import_module(f"cassandra_spec.{module}").main
    try:
        code = main(flags.split())
    except SystemExit as error:
        code = error.code
    error_line = capsys.readouterr().err
    assert code == 2
    assert error_line.startswith(f"cassandra_spec.{module.removesuffix('.__main__')}: error: ")
    assert error_line.count("\n") == 1
    assert len(error_line) <= LONGEST_LINE + 1
