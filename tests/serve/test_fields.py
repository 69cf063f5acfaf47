"""Fields of requests beyond a plain reply, by both backends, alone and beside others."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import pytest

from cassandra_spec.drafting import (
    Bias,
    Counters,
    Penalties,
    ReplyText,
    Sampling,
    Score,
    encode_prompt,
)
from cassandra_spec.model.backends import BACKENDS, CheckedBackend, Opening
from cassandra_spec.serve.processors import NoEnd, RecentPenalty
from cassandra_spec.serve.requests import ChatRequest, CompletionRequest, read_request
from cassandra_spec.serve.server import running
from tests.serve.conftest import SLOTS, SPECULATION, STOPS, opened

PROMPT = [7, 9, 13, 2, 40, 41]
Naive = tuple[str, list[Score]]


@pytest.fixture(scope="module", params=["native", "torch"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def client(packed: Path, kind: str) -> Iterator[openai.OpenAI]:
    with (
        opened(packed, slots=SLOTS, waiting=40, backend=kind) as server,
        running(server) as address,
        openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0) as made,
    ):
        yield made


@pytest.fixture(scope="module")
def backend(packed: Path, kind: str) -> Iterator[CheckedBackend]:
    """Yield a backend of its own."""
    with BACKENDS[kind](packed, Opening(threads=1), SPECULATION) as made:
        yield made


def plainly(backend: CheckedBackend, prompt: list[int], **fields: Any) -> Naive:
    """Return the text of a reply that is decoded plainly, and its log-probabilities."""
    settings = dataclasses.replace(SPECULATION, gamma=0, logprobs=3, stop_tokens=STOPS, **fields)
    text, scores = ReplyText(backend.tokenizer, settings.stop_strings), list[Score]()
    rounds = backend.rounds(prompt, settings, Counters(), ends=text.add, scores=scores)
    assert list(itertools.chain(*rounds)) == text.tokens == [each.token for each in scores]
    return text.text, scores


def words(backend: CheckedBackend, scores: list[Score]) -> list[tuple[str, float | None]]:
    return [(backend.tokenizer.decode([each.token]), each.logprob) for each in scores]


ASKED: tuple[tuple[dict[str, Any], dict[str, Any]], ...] = (
    ({}, {}),
    ({"frequency_penalty": 1.5}, {"processors": (Penalties(frequency=1.5),)}),
    (
        {"presence_penalty": -1.5, "repetition_penalty": 1.3},
        {"processors": (Penalties(presence=-1.5, repetition=1.3),)},
    ),
    ({"logit_bias": {"50": 100, "9": -3.5}}, {"processors": (Bias(((9, -3.5), (50, 100.0))),)}),
    (
        {"temperature": 1.1, "min_p": 0.1, "seed": 4, "presence_penalty": 1},
        {
            "sampling": Sampling(temperature=1.1, min_p=0.1),
            "seed": 4,
            "processors": (Penalties(presence=1),),
        },
    ),
    (
        {"temperature": 1.3, "top_k": 3, "seed": 4},
        {"sampling": Sampling(temperature=1.3, top_k=3), "seed": 4},
    ),
    (
        {"repeat_penalty": 1.4, "repeat_last_n": 9},
        {"processors": (RecentPenalty(penalty=1.4, last=9),)},
    ),
    ({"repeat_penalty": 1.4}, {"processors": (RecentPenalty(penalty=1.4, last=64),)}),
    ({"ignore_eos": True}, {"processors": (NoEnd(tokens=STOPS),)}),
)
_OTHERS = ("min_p", "repetition_penalty", "top_k", "repeat_penalty", "repeat_last_n", "ignore_eos")


@pytest.mark.parametrize(("fields", "settings"), ASKED)
def test_processed_replies_and_their_scores(
    client: openai.OpenAI, backend: CheckedBackend, fields: Any, settings: Any
) -> None:
    extra = {name: fields[name] for name in _OTHERS if name in fields}
    known = {name: value for name, value in fields.items() if name not in extra}
    ask: Any = {"model": "tiny", "prompt": PROMPT, "max_tokens": 40, "logprobs": 3, **known}
    text, scores = plainly(backend, PROMPT, max_tokens=40, **settings)
    reply = client.completions.create(**ask, extra_body=extra).choices[0]
    assert reply.text == text
    said = reply.logprobs
    assert said is not None
    found = list(zip(said.tokens or [], said.token_logprobs or [], strict=True))
    assert found == words(backend, scores)
    for top, score in zip(said.top_logprobs or [], scores, strict=True):
        values = [logprob for _, logprob in score.top]
        assert sorted(top.values(), reverse=True)[:3] == values
        assert set(top.values()) == {*values, score.logprob}
    pieces: list[Any] = [
        each.choices[0] for each in client.completions.create(**ask, stream=True, extra_body=extra)
    ]
    assert "".join(each.text for each in pieces) == text
    assert [one for each in pieces for one in each.logprobs.token_logprobs or []] == [
        each.logprob for each in scores
    ]
    offsets = [one for each in pieces for one in each.logprobs.text_offset or []]
    assert offsets == (said.text_offset or [])
    assert client.completions.create(**ask, extra_body={**extra, "plain": True}).choices[0] == reply


def test_scores_of_a_chat(client: Any, backend: CheckedBackend) -> None:
    messages: Any = [{"role": "user", "content": "word5 word9"}]
    ask: Any = {"model": "tiny", "messages": messages, "max_tokens": 30, "logprobs": True}
    prompt, create = encode_prompt(backend.tokenizer, messages), client.chat.completions.create
    _, scores = plainly(backend, prompt, max_tokens=30)
    for more in ({}, {"stream": True}):
        for count in (0, 2):
            found: Any = create(**ask, **more, top_logprobs=count)
            choices = [each.choices[0] for each in found] if more else [found.choices[0]]
            content = [
                one for each in choices for one in ((each.logprobs and each.logprobs.content) or [])
            ]
            assert [(each.token, each.logprob) for each in content] == words(backend, scores)
            for each, score in zip(content, scores, strict=True):
                assert bytes(each.bytes or []).decode() == each.token
                best = [one.logprob for one in each.top_logprobs]
                assert best == [logprob for _, logprob in score.top[:count]]


def test_prompts_are_echoed_and_scored(client: openai.OpenAI, backend: CheckedBackend) -> None:
    whole, scores = plainly(backend, PROMPT, max_tokens=20)
    said = backend.tokenizer.decode(PROMPT)
    ask: Any = {"model": "tiny", "prompt": PROMPT, "echo": True}
    first: Any = None
    for most, more in itertools.product((0, 1, 20), ({}, {"stream": True})):
        body = {**ask, "max_tokens": most, "logprobs": 1, **more}
        found: Any = client.completions.create(**body)
        choices = [each.choices[0] for each in found] if more else [found.choices[0]]
        text = "".join(each.text for each in choices)
        assert text.startswith(said)
        assert text == said + (whole if most == 20 else text.removeprefix(said))
        assert most or text == said
        logprobs = [one for each in choices for one in each.logprobs.token_logprobs]
        assert len(logprobs) == len(PROMPT) + most
        assert logprobs[len(PROMPT) :] == [each.logprob for each in scores[:most]]
        first = first or logprobs[: len(PROMPT)]
        assert logprobs[: len(PROMPT)] == first
        assert choices[-1].finish_reason == "length"
    assert first[0] is None
    _, again = plainly(backend, PROMPT[:4], max_tokens=1)
    assert dict(again[0].top).get(PROMPT[4], first[4]) == first[4]
    usage = client.completions.create(**ask, max_tokens=0).usage
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens) == (len(PROMPT), 0)


def test_several_replies_to_several_prompts(client: openai.OpenAI, backend: CheckedBackend) -> None:
    tokens = [PROMPT, PROMPT[:2], [5]]
    sampling = Sampling(temperature=1.0)
    made = [
        plainly(backend, prompt, max_tokens=12, sampling=sampling, seed=7 + number)
        for prompt in tokens
        for number in range(2)
    ]
    expected = [text for text, _ in made]
    ask: Any = {"model": "tiny", "max_tokens": 12, "temperature": 1, "seed": 7, "n": 2}
    texts = [backend.tokenizer.decode(prompt) for prompt in tokens]
    for prompts in (tokens, texts):
        reply = client.completions.create(prompt=prompts, **ask)
        assert [each.index for each in reply.choices] == list(range(6))
        assert [each.text for each in reply.choices] == expected
        assert reply.usage is not None
        assert reply.usage.prompt_tokens == sum(map(len, tokens))
        assert reply.usage.completion_tokens == sum(len(scores) for _, scores in made)
        found = [""] * 6
        for chunk in client.completions.create(prompt=prompts, stream=True, **ask):
            found[chunk.choices[0].index] += chunk.choices[0].text
        assert found == expected
    messages: Any = [{"role": "user", "content": "word5"}]
    chat = client.chat.completions.create(model="tiny", messages=messages, n=3, max_tokens=9)
    assert len({each.message.content for each in chat.choices}) == 1


def test_a_last_message_of_the_assistant_is_gone_on_with(
    client: openai.OpenAI, backend: CheckedBackend
) -> None:
    messages: Any = [
        {"role": "user", "content": "word5"},
        {"role": "assistant", "content": "word8 word1"},
    ]
    prompts = {
        turn: encode_prompt(backend.tokenizer, messages, turn=turn)
        for turn in ("reply", "continue", "none")
    }
    assert prompts["continue"] != prompts["reply"]
    for fields, turn in (
        ({}, "continue"),
        ({"continue_final_message": True}, "continue"),
        ({"continue_final_message": True, "add_generation_prompt": False}, "continue"),
        ({"add_generation_prompt": True}, "reply"),
        ({"continue_final_message": False}, "reply"),
        ({"continue_final_message": False, "add_generation_prompt": False}, "none"),
    ):
        ask: Any = {"model": "tiny", "messages": messages, "max_tokens": 9, "extra_body": fields}
        reply = client.chat.completions.create(**ask)
        expected, _ = plainly(backend, prompts[turn], max_tokens=9)
        assert reply.choices[0].message.content == expected
        assert reply.usage is not None
        assert reply.usage.prompt_tokens == len(prompts[turn])


def test_stop_strings_cut_everything_at_the_same_place(
    client: openai.OpenAI, backend: CheckedBackend
) -> None:
    whole, scores = plainly(backend, PROMPT, max_tokens=40)
    parts = whole.split()
    for stop in (parts[3], f"{parts[9][2:]} {parts[10][:4]}", parts[17]):
        text, cut = plainly(backend, PROMPT, max_tokens=40, stop_strings=(stop,))
        assert cut == scores[: len(cut)]
        ask: Any = {"model": "tiny", "prompt": PROMPT, "max_tokens": 40, "stop": stop}
        reply = client.completions.create(**ask, logprobs=0)
        assert reply.choices[0].text == text
        assert reply.choices[0].logprobs is not None
        logprobs = reply.choices[0].logprobs.token_logprobs
        assert logprobs == [each.logprob for each in cut]
        assert reply.usage is not None
        assert reply.usage.completion_tokens == len(cut)


def test_mixed_requests_at_once_get_what_each_gets_alone(client: openai.OpenAI) -> None:
    asked: list[dict[str, Any]] = []
    for number in range(16):
        fields, _ = ASKED[number % len(ASKED)]
        prompt: Any = [(number * 7 + at) % 90 + 2 for at in range(1 + number)]
        body = {"model": "tiny", "prompt": prompt, "max_tokens": 10 + number, "logprobs": 2}
        body |= {"echo": number % 3 == 0, "n": 1 + number % 2}
        if not fields.keys() & {"ignore_eos", "min_tokens"}:
            body["stop"] = ["word77"]
        asked.append(body | fields)

    def ask(body: dict[str, Any]) -> Any:
        return client.post("/completions", body=body, cast_to=object)

    def replies(answers: list[Any]) -> list[Any]:
        return [each["choices"] for each in answers]

    alone = replies([ask(body) for body in asked])
    with ThreadPoolExecutor(16) as pool:
        assert replies(list(pool.map(ask, asked))) == alone


def test_requests_without_new_fields_need_no_logits() -> None:
    chat = b'{"model": "m", "messages": [{"role": "user", "content": "x"}], "top_p": 1}'
    text = b'{"model": "m", "prompt": "x", "logit_bias": {}, "presence_penalty": 0}'
    for asked in (read_request(ChatRequest, chat), read_request(CompletionRequest, text)):
        assert (asked.processors, asked.scored, asked.n) == ((), None, 1)
