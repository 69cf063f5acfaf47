"""``--context``: models whose rotary angles go by the positions that are asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cassandra_spec.commands.__main__ import main
from tests.commands.status import error_of
from tests.model.tiny import BY_LENGTH, write_model

PROMPT = ["--prompt", " ".join(f"word{number}" for number in range(2, 32))]
BACKENDS = ("torch", "native")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Packed models of up to 44 positions with the angles for short sequences."""
    return [str(_pack(tmp_path_factory.mktemp(kind), kind, entries)) for kind, entries in BY_LENGTH]


def _pack(place: Path, kind: str, entries: dict[str, Any]) -> Path:
    source = write_model(place / "plain", model_type=kind, eos_token_id=None, **entries)
    flags = ["--scheme", "exact", "--fill", "midpoint", "--quiet", "--jobs", "1"]
    assert main(["pack", str(source), str(place / "packed"), *flags]) == 0
    return place / "packed"


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("model", range(len(BY_LENGTH)))
def test_a_long_context_is_decoded_losslessly(
    folders: list[str], capsys: pytest.CaptureFixture[str], model: int, backend: str
) -> None:
    def tokens(count: int, *flags: str) -> list[int]:
        command = ["generate", folders[model], *PROMPT, "--json", "--backend", backend]
        assert main([*command, "--max-tokens", str(count), *flags]) == 0
        found: list[int] = json.loads(capsys.readouterr().out)["tokens"][0]
        return found

    long = tokens(55, "--context", "86", "--gamma", "3")
    assert len(long) == 55
    assert long == tokens(55, "--context", "86", "--plain")
    assert tokens(12, "--context", "86") == long[:12]  # however long the reply may get


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_needs_a_longer_context_says_so(
    folders: list[str], capsys: pytest.CaptureFixture[str], backend: str
) -> None:
    def error(command: str, *flags: str) -> str:
        return error_of(capsys, command, folders[0], *flags, "--backend", backend)

    line = "prompt and reply must fit the context of 44 positions, not need 86 (context can be set"
    assert error("generate", *PROMPT, "--max-tokens", "55").startswith(line)
    line = "context must be from 1 to the model's 128 positions, not 129"
    assert error("generate", *PROMPT, "--context", "129") == line
    assert error("serve", "--context", "129") == line
