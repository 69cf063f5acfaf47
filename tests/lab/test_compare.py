"""Draft methods compared: figures that agree with the loop's, tables, one page."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from cassandra_spec.bench.answers import Answers
from cassandra_spec.bench.questions import Question
from cassandra_spec.commands.__main__ import main
from cassandra_spec.drafting import Counters
from cassandra_spec.golden import CassandraError
from cassandra_spec.lab.baselines.methods.skip import Skip
from cassandra_spec.lab.compare import report as compare_report
from cassandra_spec.lab.compare.contenders import (
    Contender,
    Ready,
    default_contenders,
    prepare,
)
from cassandra_spec.lab.compare.forced import forced_turns
from cassandra_spec.lab.compare.known_replies import NativeReplies
from cassandra_spec.lab.compare.run import Figures, Run
from cassandra_spec.lab.compare.turn import PromptSession, Turn
from cassandra_spec.lab.questions import ALL, read_questions
from cassandra_spec.model.packing.packer import open_packed, pack_model
from cassandra_spec.model.speculative import CassandraForCausalLM
from cassandra_spec.model.weights.sources import open_source
from tests.model.speculative.conftest import RECIPE
from tests.model.tiny import write_model

QUESTIONS = [
    Question(category="one", turns=("word5 word7 word5 word7", "word9")),
    Question(category="two", turns=("word3 word4",)),
]
METHODS = ("cassandra@3", "cassandra:own=yes@3", "int4@2+low", "lookup", "fractal:n=2:w=2")
CONTENDERS = [Contender.read(text, gamma=4, max_tokens=12) for text in METHODS]


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compare")
    source = write_model(folder / "plain", max_position_embeddings=256)
    pack_model(open_source(source), folder / "packed", RECIPE, jobs=1)
    return folder / "packed"


@pytest.fixture(scope="module")
def found(packed: Path) -> list[Figures]:
    run = Run(prepare([packed], CONTENDERS))
    lines: list[str] = []
    assert run.run(QUESTIONS, lines.append) == 2
    assert lines[-1].startswith("2 of 2 questions, two (")
    return run.figures()


def test_every_reply_is_that_of_plain_decoding(found: list[Figures]) -> None:
    whole = [each for each in found if each.category == ALL]
    assert [each.label for each in whole] == list(METHODS)
    assert all(each.identical == each.looped == each.turns == 3 for each in whole)
    assert {each.category for each in found} == {ALL, "one", "two"}


def test_a_prompt_is_computed_once_for_all(
    packed: Path, found: list[Figures], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fresh(turn: Turn) -> PromptSession:
        return PromptSession(turn._lm, turn._prompt, turn._most)

    monkeypatch.setattr(Turn, "_session", property(fresh))
    run = Run(prepare([packed], CONTENDERS))
    run.run(QUESTIONS, lambda line: None)
    assert run.figures() == found


def test_answers_are_taken_from_a_journal(
    packed: Path, found: list[Figures], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready, path = prepare([packed], CONTENDERS), tmp_path / "answers"
    Run(ready[:2], answers=Answers(path)).run(QUESTIONS[:1], lambda line: None)
    lines = path.read_bytes().count(b"\n")
    assert lines == 2 * (1 + 2)  # turns; the plain reply and two others
    run = Run(ready, answers=Answers(path))
    run.run(QUESTIONS, lambda line: None)
    assert run.figures() == found
    assert path.read_bytes().count(b"\n") == 3 * (1 + len(METHODS))
    monkeypatch.setattr(Turn, "_reply", None)  # nothing is computed now
    again = Run(ready, answers=Answers(path))
    again.run(QUESTIONS, lambda line: None)
    assert again.figures() == found
    other = Run(ready, min_tokens=2, answers=Answers(path))
    with pytest.raises(TypeError):
        other.run(QUESTIONS, lambda line: None)


def test_the_first_tokens_can_be_kept_from_ending_a_reply(
    packed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready = prepare([packed], CONTENDERS)
    lm = ready[0].lm
    prompt = lm.encode_prompt(QUESTIONS[0].turns[0])
    first = Turn(lm, prompt, 12, min_tokens=0, answers=Answers()).plain[0]
    monkeypatch.setattr(lm, "_stops", frozenset(range(first, first + 40)))
    plain = [Turn(lm, prompt, 12, min_tokens=n, answers=Answers()).plain for n in (0, 4)]
    assert plain[0] == [first]
    assert len(plain[1]) > 4
    assert lm.stop_tokens().isdisjoint(plain[1][:4])
    run = Run(ready, min_tokens=4)
    run.run(QUESTIONS, lambda line: None)
    whole = [each for each in run.figures() if each.category == ALL]
    assert all(each.identical == each.turns == 3 for each in whole)
    assert all(each.forced == each.forced_equal for each in whole)


def test_readiness_names_what_fits_and_what_does_not(
    packed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = ("lookup@2", "int8:group=0", "exit:file=missing", "fractal:n=99", "nothing")
    command = ["compare", str(packed), "--readiness", "--max-tokens", "4", "--each", "1"]
    assert main([*command, "--quiet", "--methods", *texts]) == 1
    out = capsys.readouterr().out
    assert f"model digest {open_packed(packed).digest[:16]}" in out
    assert re.search(r"^lookup@2 +yes +0 +0 +1\.\d\d", out, re.MULTILINE)
    assert "no: group must be at least 1, not 0" in out
    assert out.count("no: ") == 4
    assert main([*command, "--quiet", "--methods", "lookup@2"]) == 0


def test_drafts_reply_without_a_verifier(packed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["compare", str(packed), "--no-verifier", "--max-tokens", "8", "--each", "1"]
    assert main([*command, "--quiet", "--methods", "cassandra", "fractal:n=1:bits=16"]) == 2
    message = capsys.readouterr().err.splitlines()[-1]
    assert message.endswith(
        "methods must be networks, a cascade or ott-od without a verifier, not fractal:n=1:bits=16"
    )
    assert main([*command, "--quiet", "--methods", "cassandra", "skip:layers=0"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    plain, *others = [row for row in rows if len(row) > 4 and "/" in row[-5]]
    replies = plain[-5].split("/")[1]
    assert plain[:2] == ["plain", "decoding"]
    assert plain[-5:-2] == [f"{replies}/{replies}", "1.00", "1.000"]
    assert [row[0] for row in others] == ["cassandra", "skip:layers=0"]
    assert all(row[-5] != plain[-5] for row in others)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--no-verifier --forced", "no-verifier must be with methods, questions, sizes and json"),
        ("--min-tokens 129", "min-tokens must be at most max-tokens (128), not 129"),
        ("--forced --min-tokens 1", "forced must be without min-tokens and readiness"),
        ("--torch", "torch must be with forced"),
        ("--journal JOURNAL", "must be a journal of casspec"),
        ("--journal nowhere/answers", "nowhere"),
        ("--methods lookup --max-tokens 256", "max-tokens must be less than the model's 256"),
        ("--methods lookup --max-tokens 255", "questions must have a prompt of at most 1 tokens"),
        ("--methods exit", "option file of exit must be given, and is not"),
        ("--methods ott-od:threshold=2", "threshold must be from 0 to 1, not 2.0"),
        ("--methods skip:search=99", "search must be from 0 to"),
        ("--page nowhere/page.html", "nowhere"),
        ("--document JOURNAL", "document must have the markers <!-- compare -->"),
    ],
)
def test_what_does_not_go_together_is_one_line(
    packed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: str, message: str
) -> None:
    (tmp_path / "notes").write_text("notes of mine")
    flags = flags.replace("JOURNAL", str(tmp_path / "notes"))
    assert main(["compare", str(packed), *flags.split()]) == 2
    assert message in capsys.readouterr().err.splitlines()[-1]
    assert (tmp_path / "notes").read_text() == "notes of mine"


def test_one_teacher_forced_pass_agrees_with_the_loop(found: list[Figures]) -> None:
    forced = {each.label: (each.forced, each.forced_equal) for each in found[: len(METHODS)]}
    assert forced["cassandra:own=yes@3"] == (3, 3)
    assert forced["cassandra@3"] == forced["lookup"] == (0, 0)


def test_traffic_is_that_of_the_models_own_report(packed: Path, found: list[Figures]) -> None:
    lm = CassandraForCausalLM.from_pretrained(packed)
    contender = Contender.read("cassandra@3", gamma=4, max_tokens=12)
    run = Run(prepare([packed], [contender]))
    run.run(QUESTIONS[1:], lambda text: None)
    one, counters = run.figures()[0], Counters()
    settings = contender.settings
    list(lm.rounds(lm.encode_prompt("word3 word4"), settings, counters))
    report = lm.make_report(counters, settings).traffic["all"]
    if counters.tokens == one.tokens:  # no stop token ended the reply
        assert one.speedup == pytest.approx(report.speedup)
        assert one.bytes_per_token == pytest.approx(report.speculative)


def test_rounds_at_the_end_of_a_reply_are_told_apart(found: list[Figures]) -> None:
    fractal = next(each for each in found if each.label.startswith("fractal"))
    assert fractal.tokens_per_whole_round is not None
    assert 2 <= fractal.tokens_per_whole_round <= 2 + 2 + 1 + 1


def test_low_drafters_read_nothing_as_drafts(found: list[Figures]) -> None:
    by_label = {each.label: each for each in found if each.category == ALL}
    assert by_label["lookup"].draft_bytes_per_token == 0
    assert by_label["lookup"].memory == 0 < by_label["int4@2+low"].memory
    assert by_label["fractal:n=2:w=2"].flops_of_plain > 1


def test_labels_name_files_without_their_folders() -> None:
    found = Contender.read("model:path=/some/where/small@3+low", gamma=4, max_tokens=12)
    assert found.label == "model:path=small@3+low"
    assert (found.settings.gamma, found.settings.draft) == (3, "hybrid")


def test_what_cannot_be_compared_is_one_line() -> None:
    for text, message in {
        "nothing@3": "method must be one of",
        "int8:group=0@3": "group must be at least 1, not 0",
        "int8@9999": "gamma must be from 0 to 4096",
    }.items():
        with pytest.raises(CassandraError, match=message):
            Contender.read(text, gamma=4, max_tokens=12)


def test_the_defaults_are_methods() -> None:
    texts = default_contenders()
    assert {"cassandra", "fractal", "int8@8"} <= set(texts)
    assert all(Contender.read(text, gamma=4, max_tokens=12) for text in texts)


def test_the_page_and_the_document_have_everything(found: list[Figures], tmp_path: Path) -> None:
    document = tmp_path / "doc.md"
    document.write_text("<!-- compare -->\n\n<!-- /compare -->\n")
    page, figure, file = (tmp_path / name for name in ("page.html", "bars.svg", "all.json"))
    compare_report.save(
        found,
        title="A < B",
        json_file=file,
        figure=figure,
        page_file=page,
        document=document,
    )
    text = page.read_text()
    assert "A &lt; B" in text
    assert "<svg" in text
    assert all(f'<th scope="row">{method}</th>' in text for method in METHODS)
    assert "| fractal:n=2:w=2 |" in document.read_text()
    assert json.loads(file.read_text())[0]["label"] == METHODS[0]
    assert "traffic speed-up" in figure.read_text()


def test_the_command_ends_with_what_all_have_answered(
    packed: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers, asked = Run._answers, list[Question]()

    def interrupted(run: Run, question: Question, say: object) -> object:
        asked.append(question)
        if len(asked) == 2:
            raise KeyboardInterrupt
        return answers(run, question, lambda text: None)

    monkeypatch.setattr(Run, "_answers", interrupted)
    arguments = ["compare", str(packed), "--methods", "lookup", "--max-tokens", "4", "--quiet"]
    assert main(arguments) == 130
    assert "1 replies" in capsys.readouterr().out


@pytest.fixture(scope="module")
def table(packed: Path) -> Path:
    """Return a table of a few conversations of the model."""
    file, texts = packed.with_name("table.safetensors"), packed.with_name("text.txt")
    texts.write_text(" ".join(f"word{n % 13}" for n in range(400)))
    command = ["bake-table", str(packed), str(file), "--tokens", "0", "--text", str(texts)]
    assert main([*command, "--quiet"]) == 0
    return file


def test_a_forced_pass_has_the_figures_of_the_loop(packed: Path, table: Path) -> None:
    texts = (
        "cassandra:own=yes@3",
        "cassandra:own=yes@8",
        "int4:own=yes@5",
        f"ott-od:table={table}",
    )
    contenders = [Contender.read(text, gamma=4, max_tokens=20) for text in texts]
    ready = prepare([packed], contenders)
    _hold_to_the_loop(ready, QUESTIONS)


@pytest.mark.slow
def test_a_forced_pass_has_the_figures_of_the_loop_on_smollm2(tmp_path: Path) -> None:
    pack_model(open_source("smollm2"), tmp_path / "packed", RECIPE)
    texts = ("cassandra:own=yes", "cassandra:own=yes@8", "int8:own=yes@8", "geodesic:own=yes")
    contenders = [Contender.read(text, gamma=4, max_tokens=40) for text in texts]
    _hold_to_the_loop(prepare([tmp_path / "packed"], contenders), read_questions(None)[:1])


def _hold_to_the_loop(ready: Sequence[Ready], questions: Sequence[Question]) -> None:
    """Require that all figures of one pass by torch are those of the loop."""
    looped = Run(ready)
    looped.run(questions, lambda text: None)
    with forced_turns(ready, Answers(), torch=True) as turns:
        forced = Run(ready, turns=turns)
        forced.run(questions, lambda text: None)
    for ours, theirs in zip(forced.figures(), looped.figures(), strict=True):
        assert theirs.forced == theirs.forced_equal == theirs.turns or not theirs.forced
        assert ours == dataclasses.replace(theirs, looped=0, identical=0, forced=0, forced_equal=0)


def test_a_forced_run_goes_on_from_its_journal(
    packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts, path = ("int4:own=yes@5", "int4:own=yes@2"), tmp_path / "answers"
    ready = prepare([packed], [Contender.read(text, gamma=4, max_tokens=12) for text in texts])
    assert ready[0].prepared is ready[1].prepared
    found = []
    for _ in range(2):
        with forced_turns(ready, Answers(path)) as turns:
            run = Run(ready, turns=turns)
            assert run.run(QUESTIONS, lambda text: None) == len(QUESTIONS)
        found.append(run.figures())
        assert path.read_bytes().count(b"\n") == 3 * 2  # turns; the plain reply and one draft
        monkeypatch.setattr(NativeReplies, "reply", None)  # nothing is computed now
    assert found[0] == found[1]


@pytest.mark.parametrize(
    "method", ["cassandra", "lookup", "cassandra:own=yes@3+low", "cassandra:own=yes@adaptive"]
)
def test_a_forced_pass_is_of_prefix_only_methods(packed: Path, method: str) -> None:
    ready = prepare([packed], [Contender.read(method, gamma=4, max_tokens=8)])
    with pytest.raises(CassandraError, match="methods must"), forced_turns(ready, Answers()):
        pass


def test_all_methods_are_checked_before_any_is_prepared(
    packed: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Skip, "prepare", None)  # a long search
    for method, message in {
        "fractal:n=99": "n must be at most the model's",
        "geodesic:rank=999": "rank must be from 1 to",
        "geodesic:rank=8:by=activations:text=missing.txt": "missing.txt",
        "exit:file=missing": "missing",
        "cascade:file=missing": "missing",
        "ott-od:table=missing": "missing",
        "ott-swarm": "table must be given",
        "model:path=missing": "missing",
        "sparse:window=9999": "sinks and window must fit",
        "lookahead:window=9999": "window and ngram must fit",
        "skip:layers=99": "layers must be from 0 to",
    }.items():
        assert main(["compare", str(packed), "--methods", "skip:search=4", method]) == 2
        assert message in capsys.readouterr().err.splitlines()[-1], method
