"""Clients of others in an environment of their own: langchain-openai, litellm and lm-eval.

docs/software/serving.md says how the environment is made. Without it these tests are skipped.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from cassandra_spec.drafting import Penalties, encode_prompt
from cassandra_spec.model.packing.packer import unpack_model
from cassandra_spec.model.pretrained import load_tokenizer
from cassandra_spec.serve.server import running
from tests.bench.accuracy.test_harness import CHOICE, QUESTIONS, REPLY, TEXT
from tests.model.byte_model import pack_byte_model
from tests.serve.conftest import Alone, opened
from tests.serve.test_api import WORDS, of
from tests.serve.test_structured import is_person, served

ROOT = Path(__file__).resolve().parents[2]
PYTHON = Path(os.environ.get("CASSPEC_CLIENTS", ROOT / "build/clients")) / "bin/python"
OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
}
SYSTEM = "word2 word4"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON.exists(), reason=f"{PYTHON} is not there: make clients"),
]


@pytest.fixture(scope="module")
def address(packed: Path) -> Iterator[str]:
    with opened(packed, slots=4, waiting=16) as server, running(server) as found:
        yield found


def run(name: str, cache: Path, *arguments: str) -> dict[str, Any]:
    """Return the output of a program in ``clients``."""
    done = subprocess.run(
        [PYTHON, ROOT / f"tests/serve/clients/{name}.py", *arguments],
        env=os.environ | OFFLINE | {"HF_HOME": str(cache), "OPENAI_API_KEY": "none"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def prompt(packed: Path) -> list[int]:
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": WORDS}]
    return encode_prompt(load_tokenizer(packed), messages)


@pytest.fixture(scope="module")
def raw(packed: Path) -> list[int]:
    return encode_prompt(load_tokenizer(packed), WORDS, raw=True)


def test_langchain_openai(
    address: str, alone: Alone, prompt: list[int], raw: list[int], tmp_path: Path
) -> None:
    found = run("langchain_client", tmp_path, address, WORDS)
    expected = alone(prompt, of(20))[0]
    for name in ("chat", "stream", "responses", "responses stream"):
        assert found[name] == expected, name
    assert found["text"] == alone(raw, of(20))[0]
    assert found["logprobs"] == 20
    assert (found["usage"]["input_tokens"], found["usage"]["output_tokens"]) == (len(prompt), 20)


def test_langchain_openai_with_a_tool_and_a_structured_reply(tmp_path: Path) -> None:
    with served(pack_byte_model(tmp_path / "bytes"), "native") as client:
        address = str(client.base_url).removesuffix("/v1/")
        found = run("langchain_structured", tmp_path, address, "abc")
    assert is_person(found["schema"])
    for name in ("calls", "streamed"):
        [[function, arguments]] = found[name]
        assert function == "Person"
        assert is_person(arguments)
    assert is_person(found["function"])


def test_litellm(
    address: str, alone: Alone, prompt: list[int], raw: list[int], tmp_path: Path
) -> None:
    found = run("litellm_client", tmp_path, address, WORDS)
    expected = alone(prompt, of(20))[0]
    assert found["chat"] == found["stream"] == expected
    assert found["text"] == alone(raw, of(20))[0]
    penalised = of(20, processors=(Penalties(presence=0.5),))
    assert found["several"] == [alone(prompt, penalised)[0]] * 2
    usage = found["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (len(prompt), 20)


# --- the evaluation harness ----------------------------------------------------------------------


class Oracle:
    """The unpacked model in transformers."""

    def __init__(self, packed: Path, folder: Path) -> None:
        unpack_model(packed, folder / "plain", jobs=1)
        self.tokenizer = load_tokenizer(packed)
        self._model: Any = AutoModelForCausalLM.from_pretrained(
            folder / "plain", dtype=torch.float32
        )

    @torch.no_grad()
    def _scores(self, before: list[int], tokens: list[int]) -> torch.Tensor:
        """Log-probabilities [tokens, vocabulary] where each token stands."""
        logits = self._model(torch.tensor([[*before, *tokens]])).logits[0]
        return logits[len(before) - 1 : -1].log_softmax(-1)

    def likelihood(self, before: str, after: str) -> float:
        """Log-likelihood of a text; one without a context follows the end token."""
        whole = self.tokenizer.encode(before + after)
        split = len(self.tokenizer.encode(before))
        tokens = whole[split:]
        scores = self._scores(whole[:split] or [self.tokenizer.eos_token_id], tokens)
        return float(scores[torch.arange(len(tokens)), tokens].sum())

    def check(self, replies: list[tuple[list[int], str]]) -> None:
        """Greedy replies of 12 tokens to prompts: each token is the best one there, or as good.

        Special tokens are not in a text, so a reply with one of them cannot be scored.
        """
        scored = 0
        for prompt, reply in replies:
            tokens = self.tokenizer.encode(reply)
            if len(tokens) == 12:
                scores = self._scores(prompt, tokens)
                assert (scores.max(-1).values - scores[torch.arange(12), tokens]).max() < 0.1
                scored += 1
        assert scored >= 3


@pytest.fixture(scope="module")
def oracle(packed: Path, tmp_path_factory: pytest.TempPathFactory) -> Oracle:
    return Oracle(packed, tmp_path_factory.mktemp("unpacked"))


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tasks")
    file = folder / "questions.jsonl"
    file.write_text("".join(f"{json.dumps(question)}\n" for question in QUESTIONS))
    for number, text in enumerate((CHOICE, REPLY, TEXT)):
        (folder / f"{number}.yaml").write_text(text.replace("FILE", str(file)))
    return folder


def test_the_harness_on_completions_scores_as_transformers(
    address: str, packed: Path, oracle: Oracle, tasks: Path, tmp_path: Path
) -> None:
    arguments = f"model=tiny,base_url={address}/v1/completions,tokenizer={packed},max_length=512"
    names = ("cassandra_choice", "cassandra_text", "cassandra_reply")
    found = run("harness_client", tmp_path, "local-completions", arguments, str(tasks), *names)
    for sample in found["cassandra_choice"]:
        for (before, after), [[score, _]] in zip(sample["arguments"], sample["resps"], strict=True):
            assert abs(score - oracle.likelihood(before, after)) < 0.05
    for sample in found["cassandra_text"]:
        [[text]], [[score]] = sample["arguments"], sample["resps"]
        assert abs(score - oracle.likelihood("", text)) < 0.1
    asked = [sample["arguments"][0][0] for sample in found["cassandra_reply"]]
    replies = [sample["resps"][0][0] for sample in found["cassandra_reply"]]
    oracle.check(list(zip(map(oracle.tokenizer.encode, asked), replies, strict=True)))
    assert {len(samples) for samples in found.values()} == {len(QUESTIONS)}


def test_the_harness_on_chats_replies_as_transformers(
    address: str, packed: Path, oracle: Oracle, tasks: Path, tmp_path: Path
) -> None:
    arguments = f"model=tiny,base_url={address}/v1/chat/completions,max_length=512"
    model = "local-chat-completions"
    found = run("harness_client", tmp_path, model, arguments, str(tasks), "cassandra_reply")
    samples = found["cassandra_reply"]
    prompts = [encode_prompt(oracle.tokenizer, str(each["question"])) for each in QUESTIONS]
    oracle.check(list(zip(prompts, [sample["resps"][0][0] for sample in samples], strict=True)))
