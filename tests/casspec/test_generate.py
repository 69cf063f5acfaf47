"""``casspec generate``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from casspec.__main__ import main

PROMPTS = ["--prompt", "word5 word9", "--prompt", "word7"]


@pytest.fixture(scope="module")
def packed(llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("generate") / "packed"
    flags = ["--scheme", "exact", "--fill", "midpoint", "--quiet", "--jobs", "1"]
    assert main(["pack", str(llama), str(place), *flags]) == 0
    return place


def run_json(
    packed: Path, capsys: pytest.CaptureFixture[str], *flags: str
) -> dict[str, dict[str, object]]:
    assert main(["generate", str(packed), *PROMPTS, "--max-tokens", "30", "--json", *flags]) == 0
    body: dict[str, dict[str, object]] = json.loads(capsys.readouterr().out)
    return body


def test_a_speculative_reply_is_the_plain_one(
    packed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = run_json(packed, capsys, "--plain")
    assert plain["report"]["drafted"] == 0
    for gamma in ("1", "4"):
        found = run_json(packed, capsys, "--gamma", gamma)
        assert (found["tokens"], found["texts"]) == (plain["tokens"], plain["texts"])
        assert found["report"]["drafted"] != 0


def test_a_seed_repeats_a_sample(packed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--temperature", "1", "--top-k", "20", "--top-p", "0.9", "--seed")
    first, again, other = (run_json(packed, capsys, *flags, seed) for seed in "112")
    assert first == again
    assert first["tokens"] != other["tokens"]


def test_replies_go_to_output_and_figures_beside_it(
    packed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = run_json(packed, capsys)["texts"]
    assert main(["generate", str(packed), *PROMPTS, "--max-tokens", "30"]) == 0
    printed = capsys.readouterr()
    assert printed.out == "\n\n".join(texts) + "\n"
    for figure in ("acceptance rate", "tokens per verification", "packed, plain", "speed-up"):
        assert figure in printed.err


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (["--gamma", "-1"], "gamma must be at least 0, or 'adaptive', not -1"),
        (["--max-tokens", "0"], "max_tokens must be at least 1, not 0"),
        (["--max-tokens", "900"], "prompt and reply must fit the model's 64 positions, not need"),
        (["--temperature", "nan"], "temperature must be a number from 0 on, not nan"),
    ],
)
def test_bad_input_is_one_line(
    packed: Path, capsys: pytest.CaptureFixture[str], flags: list[str], line: str
) -> None:
    assert main(["generate", str(packed), *PROMPTS, *flags]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"casspec: error: {line}")
    assert error.count("\n") == 1


def test_a_model_that_is_not_packed_is_refused(
    llama: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["generate", str(llama), *PROMPTS]) == 2
    assert "must be a packed model" in capsys.readouterr().err
