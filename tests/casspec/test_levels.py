"""Low drafters and levels by command: ``casspec bench levels``, and flags of ``generate``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cassandra_spec.casspec.__main__ import main
from tests.casspec.status import status_of

VARIANTS = ["draft view", "trees of 3", "low tree alone", "levels, adaptive"]


@pytest.fixture(scope="module")
def packed(llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("levels") / "packed"
    command = ["pack", str(llama), str(place), "--scheme", "exact", "--quiet", "--jobs", "1"]
    assert main(command) == 0
    return place


@pytest.fixture(scope="module")
def table(packed: Path) -> Path:
    place = packed.parent / "table.safetensors"
    sizes = ["--tokens", "200", "--turn-tokens", "8", "--max-tokens", "16", "--threads", "1"]
    assert main(["bake-table", str(packed), str(place), *sizes, "--quiet"]) == 0
    return place


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    turns = {"a": ["one two", "and then"], "b": ["three"], "c": ["four " * 200]}
    lines = [json.dumps({"category": name, "turns": texts}) for name, texts in turns.items()]
    (tmp_path / "questions.jsonl").write_text("\n".join(lines))
    return tmp_path / "questions.jsonl"


def test_all_variants_answer_all_turns_that_fit(
    packed: Path, table: Path, questions: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["bench", "levels", str(packed), "--questions", str(questions), "--table", str(table)]
    options = ["--max-tokens", "12", "--threads", "1", "--quiet", "--variants", *VARIANTS]
    files = ["--json", str(tmp_path / "j"), "--figure", str(tmp_path / "f.svg")]
    assert main([*command, *options, *files]) == 0
    shown = capsys.readouterr().out
    assert shown.endswith("PASS: 0 replies differ from the plain ones\n")
    found = json.loads((tmp_path / "j").read_text())["figures"]
    turns = {(each["variant"], each["category"]): each["turns"] for each in found}
    for name in ("plain", *VARIANTS):
        assert (turns[name, "a"], turns[name, "b"], turns[name, "all"]) == (2, 1, 3)
    rows = {each["variant"]: each for each in found if each["category"] == "all"}
    assert rows["plain"]["tokens_per_verification"] == 1
    assert rows["draft view"]["tokens_per_pass"] == 1
    assert rows["low tree alone"]["tokens_per_pass"] is None
    assert b"<svg" in (tmp_path / "f.svg").read_bytes()


def test_a_table_is_measured_along_known_replies(
    packed: Path, table: Path, questions: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Beside the loop: the low chain alone drafts what the table says first."""
    command = ["bench", "tables", str(packed), str(table), "--questions", str(questions)]
    options = ["--max-tokens", "12", "--threads", "1", "--quiet", "--json", str(tmp_path / "j")]
    assert main([*command, *options]) == 0
    assert capsys.readouterr().out.startswith("| own tokens | order |")
    found = json.loads((tmp_path / "j").read_text())["tables"]
    assert [each["order"] for each in found] == [1, 2, 3]
    for each in found:
        assert each["places"] <= 24  # two turns fit the model, the third does not
        assert each["places"] >= each["found"] >= each["among"] >= each["first"]
        assert 1 <= each["tokens_per_verification"] <= 4
    entries = [each["entries"] for each in found]
    assert entries == sorted(entries)
    assert [each["bytes"] for each in found] == [32 * each for each in entries]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("{", "questions.jsonl:1 must be a question of Spec-Bench"),
        ('{"category": "a"}', "questions.jsonl:1 must be a question of Spec-Bench: 'turns'"),
        ('{"category": "a", "turns": [3]}', "questions.jsonl:1: category and turns must be text"),
    ],
)
def test_wrong_questions_are_refused(
    packed: Path, tmp_path: Path, lines: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "questions.jsonl"
    path.write_text(lines)
    assert main(["bench", "levels", str(packed), "--questions", str(path)]) == 2
    assert message in capsys.readouterr().err


def test_an_unknown_variant_is_refused(packed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "levels", str(packed), "--variants", "trees of 9"]) == 2
    assert "variants must be among plain; draft view" in capsys.readouterr().err


@pytest.mark.parametrize("backend", ["torch", "native"])
def test_replies_with_a_table_are_the_plain_ones(
    packed: Path, table: Path, backend: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["generate", str(packed), "--prompt", "one two three", "--max-tokens", "24", "--json"]
    found = []
    for flags in (["--plain"], ["--draft", "hybrid", "--gamma", "4", "--table", str(table)]):
        assert main([*command, "--backend", backend, *flags]) == 0
        found.append(json.loads(capsys.readouterr().out))
    assert found[0]["tokens"] == found[1]["tokens"]
    assert set(found[1]["report"]["sources"]) > {"model"}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--table", "t"], "--table must not be given without --draft lookup or hybrid"),
        (["--draft", "lookup", "--low", "2"], "--low must not be given with --draft lookup"),
        (["--draft", "hybrid", "--branches", "0"], "--branches: must be an integer from 1"),
    ],
)
def test_flags_without_effect_are_refused(
    packed: Path, flags: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_of("generate", str(packed), "--prompt", "x", *flags) == 2
    assert message in capsys.readouterr().err


def test_a_table_is_for_every_packing_of_models_with_its_tokenizer(
    packed: Path, llama: Path, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    assert main(["pack", str(llama), str(other), "--scheme", "mx", "--quiet", "--jobs", "1"]) == 0
    command = ["generate", str(other), "--prompt", "x", "--draft", "hybrid", "--table", str(table)]
    assert main([*command, "--max-tokens", "2"]) == 0
    with (other / "tokenizer.json").open("a") as file:
        file.write(" ")
    assert main(command) == 2
    assert "tokenizer_digest must be the model's" in capsys.readouterr().err
