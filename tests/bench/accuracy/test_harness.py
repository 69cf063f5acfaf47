"""The adapter of the lm-evaluation-harness, without the harness and with it."""

from __future__ import annotations

import importlib
import json
import logging
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from cassandra_spec.golden import CassandraError, Format
from cassandra_spec.model.packing.packer import Recipe, pack_model, unpack_model
from cassandra_spec.model.weights.sources import open_source
from tests.model.tiny import write_model

ROOT = Path(__file__).resolve().parents[3]
QUESTIONS = [
    {
        "question": f"word{7 * n % 94} word{n}",
        "a": f"word{n + 1}",
        "b": "word5 word6",
        "gold": n % 2,
    }
    for n in range(6)
]
CHOICE = """\
task: cassandra_choice
dataset_path: json
dataset_kwargs: {data_files: {test: FILE}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{question}}"
doc_to_choice: ["{{a}}", "{{b}}"]
doc_to_target: gold
metric_list: [{metric: acc}]
"""
REPLY = """\
task: cassandra_reply
dataset_path: json
dataset_kwargs: {data_files: {test: FILE}}
test_split: test
output_type: generate_until
doc_to_text: "{{question}}"
doc_to_target: "{{a}}"
generation_kwargs: {until: ["word9 "], max_gen_toks: 12, do_sample: false}
metric_list: [{metric: exact_match}]
"""
TEXT = """\
task: cassandra_text
dataset_path: json
dataset_kwargs: {data_files: {test: FILE}}
test_split: test
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{question}} {{b}}"
metric_list: [{metric: word_perplexity}]
"""


def test_without_the_harness_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    monkeypatch.setitem(sys.modules, "lm_eval.api.registry", None)
    monkeypatch.delitem(sys.modules, "cassandra_spec.bench.accuracy.harness", raising=False)
    with pytest.raises(CassandraError, match=r"lm-eval must be installed .*cassandra-spec\[eval\]"):
        importlib.import_module("cassandra_spec.bench.accuracy.harness")


def test_the_command_without_the_harness() -> None:
    hidden = "import sys; sys.modules['lm_eval'] = None"
    program = f"{hidden}; from cassandra_spec.bench.accuracy.__main__ import main"
    done = subprocess.run(
        [sys.executable, "-c", f"{program}; sys.exit(main())"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: lm-eval must be installed")
    assert done.stderr.count("\n") == 1


# --- with it ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def harness() -> Any:
    pytest.importorskip("lm_eval.models.huggingface", reason="the extra `eval` is not installed")
    return importlib.import_module("cassandra_spec.bench.accuracy.harness")


@pytest.fixture(scope="module", params=[False, True], ids=["own head", "tied"])
def packed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packed")
    source = open_source(write_model(folder / "m", tied=request.param))
    pack_model(source, folder / "p", Recipe(format=Format(scheme="exact", segment=256)), jobs=1)
    for draft in (False, True):
        unpack_model(folder / "p", folder / ("draft" if draft else "target"), draft=draft, jobs=1)
    return folder


def evaluate(model: Any, folder: Path) -> dict[str, Any]:
    """Return replies and likelihoods of every question."""
    import lm_eval
    from lm_eval.tasks import TaskManager

    file = folder / "questions.jsonl"
    file.write_text("".join(f"{json.dumps(question)}\n" for question in QUESTIONS))
    tasks = folder / "tasks"
    tasks.mkdir(exist_ok=True)
    for number, text in enumerate((CHOICE, REPLY, TEXT)):
        (tasks / f"{number}.yaml").write_text(text.replace("FILE", str(file)))
    found = lm_eval.simple_evaluate(
        model=model,
        tasks=["cassandra_choice", "cassandra_reply", "cassandra_text"],
        task_manager=TaskManager(include_path=str(tasks), include_defaults=False),
        bootstrap_iters=0,
    )
    return {
        task: [sample["resps"] for sample in sorted(samples, key=lambda one: one["doc_id"])]
        for task, samples in found["samples"].items()
    }


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("view", ["target", "draft"])
def test_a_packed_model_scores_as_what_it_unpacks_to(
    harness: Any, packed: Path, tmp_path: Path, view: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lm_eval.api.registry import get_model
    from lm_eval.models.huggingface import HFLM

    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path))
    ours = get_model("cassandra")
    assert ours is harness.CassandraLM
    model = ours.create_from_arg_string(f"pretrained={packed / 'p'},view={view},batch_size=2")
    plain = HFLM(pretrained=str(packed / view), dtype="bfloat16", device="cpu", batch_size=2)
    assert evaluate(model, tmp_path) == evaluate(plain, tmp_path)


@pytest.mark.filterwarnings("ignore")
def test_replies_by_speculation_are_those_of_plain_decoding(
    harness: Any, packed: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from cassandra_spec.model.speculative import CassandraForCausalLM

    caplog.set_level(logging.INFO, logger="lm_eval.cassandra")
    model = harness.CassandraLM(str(packed / "p"), gamma=2, batch_size=2)
    found = evaluate(model, tmp_path)
    (*_, last) = [text for text in caplog.messages if text.startswith("accepted / drafted so far")]
    accepted, drafted = map(int, re.findall(r"\d+", last))
    assert 0 < accepted <= drafted
    lm = CassandraForCausalLM.from_pretrained(packed / "p")
    for question, reply in zip(QUESTIONS, found["cassandra_reply"], strict=True):
        ids = torch.tensor([lm.tokenizer(question["question"]).input_ids])
        tokens = lm.generate(ids, max_new_tokens=12, do_sample=False, gamma=0)[0, ids.shape[1] :]
        text = lm.tokenizer.decode(tokens, skip_special_tokens=True).split("word9 ")[0]
        assert reply == [[text]]
    plain = evaluate(harness.CassandraLM(str(packed / "p"), batch_size=2), tmp_path)
    assert found["cassandra_choice"] == plain["cassandra_choice"]
    assert found["cassandra_text"] == plain["cassandra_text"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"view": "both"}, "view must be 'target' or 'draft', not 'both'"),
        ({"gamma": -1}, "gamma must be at least 0, not -1"),
        ({"gamma": 3, "view": "draft"}, "gamma must be 0 for a view other than the target, not 3"),
    ],
)
def test_options_that_contradict_each_other(
    harness: Any, packed: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(CassandraError, match=message):
        harness.CassandraLM(str(packed / "p"), **options)
