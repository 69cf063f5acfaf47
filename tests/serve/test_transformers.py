"""``transformers serve`` on a packed directory, asked by the client of openai."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
import torch
from transformers import GenerationConfig

from cassandra_spec.model.speculative import CassandraForCausalLM

ASK: dict[str, Any] = {
    "model": "packed",
    "messages": [{"role": "user", "content": "word5 word9 word11"}],
    "temperature": 0,
}


@pytest.fixture(scope="module")
def client(packed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[openai.OpenAI]:
    """Yield a client of `transformers serve` in a process that has nothing but the directory."""
    command = [str(Path(sys.executable).with_name("transformers")), "serve", "packed"]
    modules = {"HF_MODULES_CACHE": str(tmp_path_factory.mktemp("modules"))}
    with subprocess.Popen(
        [*command, "--trust-remote-code", "--port", "0"],
        cwd=packed.parent,
        env=os.environ | modules,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        found = (re.search(r"http://localhost:\d+", line) for line in process.stderr)
        address = next((each[0] for each in found if each), None)
        assert address is not None
        with openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0) as made:
            yield made
        process.send_signal(signal.SIGTERM)
        process.stderr.read()


@pytest.fixture(scope="module")
def words(packed: Path) -> list[str]:
    """Return the greedy reply."""
    lm = CassandraForCausalLM.from_pretrained(packed)
    prompt = torch.tensor([[5 + 2, 9 + 2, 11 + 2, 3 + 2]])  # the template adds word3
    reply = lm.generate(prompt, max_new_tokens=24, do_sample=False)[0, prompt.shape[1] :]
    return lm.tokenizer.decode(reply, skip_special_tokens=True).split()


def test_a_reply_is_that_of_our_own_loader(client: openai.OpenAI, words: list[str]) -> None:
    found = client.chat.completions.create(**ASK, max_tokens=24)
    assert (found.choices[0].message.content or "").split() == words
    assert found.choices[0].finish_reason == "length"
    assert found.usage is not None
    assert found.usage.completion_tokens == 24


def test_it_streams_and_stops(client: openai.OpenAI, words: list[str]) -> None:
    chunks = client.chat.completions.create(**ASK, max_tokens=24, stream=True, stop=[words[9]])
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text.split() == words[: words.index(words[9]) + 1]


def test_what_the_model_refuses_reaches_the_client(client: openai.OpenAI) -> None:
    body = {"generation_config": GenerationConfig(num_beams=4).to_json_string()}
    with pytest.raises(openai.APIError) as caught:
        list(client.chat.completions.create(**ASK, extra_body=body, stream=True))
    assert "num_beams must be" in str(caught.value.body)
