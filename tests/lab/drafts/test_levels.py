"""Low drafters and levels by command: ``casspec bench levels``, ``spec-bench``, ``generate``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cassandra_spec.commands.__main__ import main
from cassandra_spec.lab.drafts import spec_bench
from tests.commands.status import status_of

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
    """Beside the loop, the low chain alone drafts the table's first candidates."""
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
        (
            ["--draft", "model", "--table", "t"],
            "--table must not be given without --draft lookup or hybrid",
        ),
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


@pytest.fixture
def protocol(packed: Path, table: Path, tmp_path: Path) -> list[str]:
    """Write questions of three categories, one too long, and return the command to run them."""
    turns = {"writing": ["one two", "and then"], "coding": ["three"], "rag": ["four " * 200, "x"]}
    lines = [json.dumps({"category": name, "turns": texts}) for name, texts in turns.items()]
    (tmp_path / "question.jsonl").write_text("\n".join(lines))
    command = ["bench", "spec-bench", str(packed), "--questions", str(tmp_path / "question.jsonl")]
    draft = ["--draft", "hybrid", "--gamma", "4", "--table", str(table)]
    return [*command, *draft, "--max-tokens", "12", "--json", str(tmp_path / "j")]


@pytest.mark.parametrize("backend", [["torch"], ["native", "--threads", "1"]])
def test_spec_bench_gives_the_columns_of_the_leaderboard(
    protocol: list[str], backend: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document, figure = tmp_path / "d.md", tmp_path / "f.svg"
    document.write_text("<!-- spec-bench -->\n\n<!-- /spec-bench -->\n")
    files = ["--document", str(document), "--figure", str(figure)]
    assert main([*protocol, "--backend", *backend, *files]) == 0
    out, err = capsys.readouterr()
    assert "multi-turn conversation  #mean accepted tokens  overall" in out
    assert "2 turns did not fit the model and are left out." in out
    assert out.endswith("PASS: 0 replies differ from the plain ones\n")
    assert "3 of 3 questions" in err
    assert "    By category\n" in document.read_text()
    assert b"<svg" in figure.read_bytes()
    body = json.loads((tmp_path / "j").read_text())
    chat, overall = body["figures"]
    assert (chat["category"], overall["category"]) == ("multi-turn conversation", "overall")
    assert (overall["questions"], overall["turns"], overall["identical"]) == (2, 3, 3)
    counted = [turn["counters"] for answer in body["answers"] for turn in answer["turns"]]
    tokens, rounds = (sum(each[name] for each in counted) for name in ("tokens", "rounds"))
    assert overall["accepted_tokens"]["value"] == pytest.approx(tokens / rounds)
    speeds = [
        [
            sum(len(turn[way]["tokens"]) for turn in answer["turns"])
            / sum(turn[way]["first"] + turn[way]["seconds"] for turn in answer["turns"])
            for answer in body["answers"]
        ]
        for way in ("drafted", "plain")
    ]
    assert overall["speedup"]["value"] == pytest.approx(sum(speeds[0]) / sum(speeds[1]))


def test_spec_bench_goes_on_from_its_journal(
    protocol: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    measure, asked = spec_bench.timed, list[object]()

    def interrupted(rounds: Any) -> Any:
        asked.append(rounds)
        if len(asked) == 3:
            raise KeyboardInterrupt
        return measure(rounds)

    protocol += ["--threads", "1", "--journal", str(tmp_path / "journal")]
    monkeypatch.setattr(spec_bench, "timed", interrupted)
    assert main(protocol) == 130  # no question is complete
    assert main(protocol) == 0
    assert len(asked) == 3 + 4  # the first turn is not asked again
    first = json.loads((tmp_path / "j").read_text())
    capsys.readouterr()
    assert main([*protocol, "--quiet"]) == 0
    assert len(asked) == 7
    assert json.loads((tmp_path / "j").read_text()) == first
    assert capsys.readouterr().err == ""


def test_spec_bench_fails_if_a_reply_differs(
    protocol: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    measure, wrong = spec_bench.timed, [0, 0, 0, 1, 0, 0]  # the fourth reply, by one token

    def lossy(rounds: Any) -> Any:
        found = measure(rounds)
        found["tokens"][-1] += wrong.pop(0)
        return found

    monkeypatch.setattr(spec_bench, "timed", lossy)
    assert main([*protocol, "--threads", "1"]) == 1
    assert capsys.readouterr().out.endswith("FAIL: 1 replies differ from the plain ones\n")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--document q", "document must have the markers <!-- spec-bench -->"),
        ("--json nowhere/j", "nowhere must be a directory to write j into"),
        ("--max-tokens 64", "max-tokens must be below the model's 64 positions, not 64"),
        ("--max-tokens 63", "questions must have a prompt of at most 1 tokens"),
        ("--gamma 0 --draft model", "--draft must not be given with --gamma 0"),
    ],
)
def test_spec_bench_refuses_before_anything_is_written(
    protocol: list[str],
    tmp_path: Path,
    flags: str,
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    flags = flags.replace("--document q", f"--document {protocol[4]}")
    journal = ["--journal", str(tmp_path / "journal")] if "--max-tokens 64" in flags else []
    assert main([*protocol, "--threads", "1", "--quiet", *journal, *flags.split()]) == 2
    assert message in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["question.jsonl"]
