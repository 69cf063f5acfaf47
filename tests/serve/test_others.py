"""Requests as clients of other servers send them: fields, messages, limits, lines in the log."""

from __future__ import annotations

import itertools
import json
import re
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cassandra_spec.drafting import Score
from cassandra_spec.model.pretrained import load_tokenizer
from cassandra_spec.serve.errors import ApiError
from cassandra_spec.serve.fields import IGNORED, NEUTRAL, SAMPLERS
from cassandra_spec.serve.log import QUIET_PATHS
from cassandra_spec.serve.logprobs import TokenTexts
from cassandra_spec.serve.processors import NoEnd, RecentPenalty
from cassandra_spec.serve.requests import ChatRequest, CompletionRequest, read_request
from cassandra_spec.serve.scheduler import Event
from cassandra_spec.serve.server import running
from tests.serve.conftest import opened
from tests.text.byte_tokens import byte_tokenizer

ROOM = 100  # positions of a sequence
CHAT = {"model": "m", "messages": [{"role": "user", "content": "x"}]}


def read(**fields: Any) -> ChatRequest:
    return read_request(ChatRequest, json.dumps(CHAT | fields).encode())


def refused(**fields: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        read(**fields)
    return caught.value


# --- fields -------------------------------------------------------------------------------------


def test_fields_that_cannot_change_a_reply_are_ignored_and_named() -> None:
    assert read().ignored == []
    fields = {name: {"any": ["value"]} for name in sorted(IGNORED)}
    found = read(**fields)
    assert sorted(found.ignored) == sorted(IGNORED)
    assert found.model_dump() == read().model_dump()


def test_values_that_ask_for_nothing_are_taken_and_others_refused_by_name() -> None:
    known = ChatRequest.model_fields
    for name, values in NEUTRAL.items():
        for value in values if name not in known else ():
            assert read(**{name: value}) == read()
        if name not in known and name != "functions":
            error = refused(**{name: "something"})
            assert (error.status, error.param) == (400, name)
            assert name in error.message


def test_samplers_cannot_change_a_greedy_reply() -> None:
    for name, values in SAMPLERS.items():
        read(**{name: 0.25}).check_samplers(0.0)
        for value in values:
            read(**{name: value}).check_samplers(1.0)
        with pytest.raises(ApiError) as caught:
            read(**{name: 0.25}).check_samplers(1.0)
        assert caught.value.param == name


@pytest.mark.parametrize(
    ("fields", "same"),
    [
        (
            {"top_k": 40.0, "max_tokens": 1e2, "seed": 7.0},
            {"top_k": 40, "max_tokens": 100, "seed": 7},
        ),
        ({"stop": ""}, {}),
        ({"stop": ["", "a"]}, {"stop": ["a"]}),
        ({"logit_bias": [[5, -1], [7, False]]}, {"logit_bias": {"5": -1, "7": -100}}),
        ({"logit_bias": []}, {}),
        ({"speculative.n_max": 8, "speculative.p_min": 0.5}, {}),
        ({"penalize_nl": False, "tfs_z": 1.0, "typ_p": 1, "vllm_xargs": {}}, {}),
    ],
)
def test_other_forms_of_the_same_values(fields: Any, same: Any) -> None:
    assert read(**fields).model_dump() == read(**same).model_dump()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"top_k": 2.5}, "top_k must be a valid integer"),
        ({"logit_bias": [[5, -1], [7]]}, "logit_bias must be a valid dictionary"),
        ({"stop": ["a"] * 65}, "stop must have at most 64 items after validation, not 65"),
        ({"stop": ["a" * 300]}, "stop.0 must have at most 256 characters"),
        ({"response_format": {}}, "response_format.type must be given"),
        ({"messages": []}, "messages must have at least 1 item after validation, not 0"),
        ({"penalize_nl": True}, "penalize_nl must be False here: this server does not support it"),
    ],
)
def test_refusals_say_what_a_field_must_be(fields: Any, message: str) -> None:
    assert refused(**fields).message == message


def test_a_refusal_names_a_field_that_is_not_in_the_body() -> None:
    with pytest.raises(ApiError, match="echo must be true with max_tokens 0"):
        read_request(CompletionRequest, b'{"prompt": "x", "max_tokens": 0}')


def test_other_names_of_the_same_fields() -> None:
    assert read(n_predict=7).max_tokens == 7
    assert read(n_predict=7, max_tokens=5).max_tokens == 5
    assert read(max_tokens=-1) == read(max_tokens=2**31 - 1)
    assert read(seed=-1).seed is None
    assert read(reasoning_effort="low", chat_template_kwargs={"a": 1}).variables == {
        "reasoning_effort": "low",
        "a": 1,
    }
    old = read(functions=[{"name": "f", "parameters": {}}], function_call={"name": "f"})
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    named = {"type": "function", "function": {"name": "f"}}
    assert old.tools == read(tools=[tool]).tools
    assert (old.tool_choice, old.parallel_tool_calls) == (
        read(tools=[tool], tool_choice=named).tool_choice,
        False,
    )


SCHEMA = {"type": "object", "properties": {}}
BY_SCHEMA = {"type": "json_schema", "json_schema": {"schema": SCHEMA}}


@pytest.mark.parametrize(
    ("fields", "form"),
    [
        ({"json_schema": SCHEMA}, BY_SCHEMA),
        ({"guided_json": SCHEMA}, BY_SCHEMA),
        ({"guided_json": json.dumps(SCHEMA)}, BY_SCHEMA),
        ({"structured_outputs": {"json": SCHEMA}}, BY_SCHEMA),
        ({"response_format": {"type": "json_object", "schema": SCHEMA}}, BY_SCHEMA),
        ({"response_format": {"type": "text"}, "json_schema": SCHEMA}, BY_SCHEMA),
        ({"guided_regex": "a+"}, {"type": "grammar", "syntax": "regex", "definition": "a+"}),
        (
            {"grammar": 'root ::= "a"'},
            {"type": "grammar", "syntax": "gbnf", "definition": 'root ::= "a"'},
        ),
        (
            {"guided_grammar": 'start: "a"'},
            {"type": "grammar", "syntax": "lark", "definition": 'start: "a"'},
        ),
        (
            {"guided_choice": ["yes", 'a "b" é']},
            {"type": "grammar", "syntax": "lark", "definition": 'start: "yes" | "a \\"b\\" é"'},
        ),
    ],
)
def test_formats_of_other_servers(fields: Any, form: Any) -> None:
    assert read(**fields).response_format == read(response_format=form).response_format


# --- messages -----------------------------------------------------------------------------------

CALL = {"name": "f", "arguments": '{"x": 1e5}'}


@pytest.mark.parametrize(
    ("message", "same"),
    [
        (
            {
                "role": "assistant",
                "content": "a",
                "refusal": None,
                "annotations": [],
                "audio": None,
                "parsed": {"x": 1},
                "id": "msg_1",
                "provider_specific_fields": {},
            },
            {"role": "assistant", "content": "a"},
        ),
        (
            {
                "role": "assistant",
                "tool_calls": [
                    {
                        "id": "1",
                        "index": 0,
                        "type": "function",
                        "function": {**CALL, "parsed_arguments": {"x": 100000.0}},
                    }
                ],
            },
            {"role": "assistant", "content": "", "tool_calls": [CALL]},
        ),
        (
            {"role": "assistant", "function_call": CALL},
            {"role": "assistant", "content": "", "tool_calls": [CALL]},
        ),
        (
            {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": ""}}]},
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"name": "f", "arguments": "{}"}],
            },
        ),
        (
            {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {}}}]},
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"name": "f", "arguments": "{}"}],
            },
        ),
        ({"role": "assistant", "content": None}, {"role": "assistant", "content": ""}),
        (
            {"role": "assistant", "content": None, "refusal": "no"},
            {"role": "assistant", "content": "no"},
        ),
        (
            {"role": "assistant", "content": "a", "reasoning_content": "b"},
            {"role": "assistant", "content": "a", "reasoning_content": "b"},
        ),
        ({"role": "tool", "content": "3"}, {"role": "tool", "content": "3"}),
        ({"role": "tool", "tool_call_id": "1"}, {"role": "tool", "content": ""}),
        (
            {"role": "function", "name": "f", "content": "3"},
            {"role": "tool", "content": "3"},
        ),
        (
            {
                "role": "system",
                "content": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}],
            },
            {"role": "system", "content": "a"},
        ),
        (
            {"role": "user", "content": ["a", {"type": "input_text", "text": "b"}]},
            {"role": "user", "content": "ab"},
        ),
    ],
)
def test_messages_that_clients_send_back(message: Any, same: Any) -> None:
    assert read(messages=[CHAT["messages"][0], message]).messages_of_template[1] == same


# --- processors ---------------------------------------------------------------------------------


@given(
    st.lists(st.integers(0, 5), max_size=12),
    st.lists(st.integers(0, 5), max_size=12),
    st.sampled_from([1, 3, 64, None]),
)
def test_a_penalty_of_the_last_tokens(prompt: list[int], reply: list[int], last: Any) -> None:
    state = RecentPenalty(penalty=1.5, last=last).begin(prompt)
    for token in reply:
        state.advance(token)
    logits = np.array([-2, -1, 0, 1, 2, 3], np.float32)
    found = logits.copy()
    state.apply(found)
    tokens = [*prompt, *reply]
    seen = tokens if last is None else tokens[len(tokens) - min(last, len(tokens)) :]
    for token, value in enumerate(logits):
        expected = value if token not in seen else value / 1.5 if value > 0 else value * 1.5
        assert found[token] == np.float32(expected)


def test_a_reply_does_not_end_early() -> None:
    for count in (0, 2, None):
        state = NoEnd(tokens=frozenset({1, 3}), count=count).begin([])
        for length in range(4):
            logits = np.zeros(5, np.float32)
            state.apply(logits)
            held = count is None or length < count
            assert [np.isneginf(each) for each in logits] == [False, held, False, held, False]
            state.advance(0)


# --- log-probabilities --------------------------------------------------------------------------


def test_parts_of_characters_have_bytes_and_names() -> None:
    tokenizer = byte_tokenizer()
    texts = TokenTexts(tokenizer)
    for text in ('ab "na" \n', "\N{GRINNING FACE}é", "<end>"):
        tokens = tokenizer(text, add_special_tokens=False).input_ids
        assert b"".join(map(texts.octets, tokens)).decode() == text
    parts = tokenizer("\N{GRINNING FACE}", add_special_tokens=False).input_ids
    assert [texts.text(each) for each in parts] == [
        f"bytes:\\x{octet:02x}" for octet in "\N{GRINNING FACE}".encode()
    ]
    score = Score(parts[0], -1.0, tuple((each, -1.0) for each in parts[1:]))
    content = texts.chat([score])["content"][0]
    assert content["bytes"] == [0xF0]
    assert [each["bytes"] for each in content["top_logprobs"]] == [[0x9F], [0x98], [0x80]]
    [top] = texts.completion([score])["top_logprobs"]
    assert len(top) == 4


TEXTS = st.text("ab\N{GRINNING FACE}é ", max_size=9)


@given(TEXTS, TEXTS, st.data())
def test_places_of_tokens(echo: str, reply: str, data: st.DataObject) -> None:
    tokenizer = byte_tokenizer()
    prompt, tokens = (
        tokenizer(text, add_special_tokens=False).input_ids if text else []
        for text in (echo, reply)
    )
    places = TokenTexts(tokenizer).places(echo, len(prompt))
    stop = data.draw(st.integers(0, len(reply)))
    scores = tuple(Score(token, 0.0, ()) for token in [*prompt, *tokens])
    found = places.add(Event(text=reply[:stop], scores=scores, finish_reason="stop"))
    octets = [TokenTexts(tokenizer).octets(each.token) for each in scores]
    for at, place in enumerate(found):
        before = b"".join(octets[:at]).decode(errors="ignore")
        assert place == min(len(before), len(echo) + stop)


# --- a server -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def lines() -> list[str]:
    return []


@pytest.fixture(scope="module")
def address(packed: Path, lines: list[str]) -> Iterator[str]:
    with (
        opened(packed, slots=2, waiting=4, log=lines.append, context=ROOM) as server,
        running(server) as found,
    ):
        yield found


def ask(address: str, path: str, body: Any = None) -> tuple[int, Any]:
    connection = HTTPConnection(urlsplit(address).netloc, timeout=120)
    headers = {"Content-Type": "application/json"}
    connection.request("POST" if body else "GET", path, body and json.dumps(body), headers)
    reply = connection.getresponse()
    text = reply.read().decode()
    found = reply.status, json.loads(text) if text.startswith("{") else text
    connection.close()
    return found


def test_a_limit_beyond_the_room_generates_what_fits(address: str) -> None:
    for limit in (10**9, -1, None):
        body = {"prompt": [5] * (ROOM - 9), "max_tokens": limit}
        status, found = ask(address, "/v1/completions", body)
        [choice] = found["choices"]
        assert (status, choice["finish_reason"]) == (200, "length")
        assert found["usage"]["completion_tokens"] == 9


def test_tokens_that_end_a_reply(address: str) -> None:
    body = {"prompt": [7, 9, 13, 2], "max_tokens": 60, "logprobs": 0}
    tokenizer_words = ask(address, "/v1/completions", body)[1]["choices"][0]["logprobs"]["tokens"]
    _, found = ask(address, "/tokenize", {"content": " ".join(tokenizer_words)})
    tokens = found["tokens"]
    stop = tokens[10]
    first = tokens.index(stop)
    _, cut = ask(address, "/v1/completions", body | {"stop_token_ids": [stop]})
    assert cut["usage"]["completion_tokens"] == first + 1
    assert cut["choices"][0]["finish_reason"] == "stop"
    least = {"stop_token_ids": [stop], "min_tokens": first + 5}
    _, longer = ask(address, "/v1/completions", body | least)
    assert longer["usage"]["completion_tokens"] >= first + 5
    assert longer["choices"][0]["logprobs"]["tokens"][:first] == tokenizer_words[:first]


def test_tokenize_and_detokenize(address: str, packed: Path) -> None:
    tokenizer = load_tokenizer(packed)
    text = "word5 word9"
    _, found = ask(address, "/tokenize", {"content": text})
    assert found == {"tokens": tokenizer(text, add_special_tokens=False).input_ids}
    _, pieces = ask(address, "/tokenize", {"content": text, "with_pieces": True})
    assert [each["id"] for each in pieces["tokens"]] == found["tokens"]
    assert [each["piece"] for each in pieces["tokens"]] == ["word5", "word9"]
    assert ask(address, "/detokenize", found) == (200, {"content": text})
    for path, body, param in (
        ("/tokenize", {"content": 3}, "content"),
        ("/tokenize", {"content": "", "parse_special": False}, "parse_special"),
        ("/detokenize", {"tokens": [96]}, "tokens"),
    ):
        status, error = ask(address, path, body)
        assert (status, error["error"]["param"]) == (400, param)


def test_prompt_tokens_of_a_request(address: str) -> None:
    path = "/v1/chat/completions"
    _, reply = ask(address, path, {**CHAT, "max_tokens": 1})
    _, found = ask(address, f"{path}/input_tokens", CHAT)
    tokens = reply["usage"]["prompt_tokens"]
    assert found == {"object": "response.input_tokens", "input_tokens": tokens}
    assert ask(address, "/responses/input_tokens", {"input": "x"}) == (200, found)
    assert ask(address, "/responses/input_tokens", {"input": 3})[0] == 400


def test_names_without_v1_are_the_same(address: str) -> None:
    chat = {**CHAT, "max_tokens": 3}
    for path, body in (("chat/completions", chat), ("completions", {"prompt": "word1"})):
        first, second = (ask(address, f"{root}/{path}", body)[1] for root in ("", "/v1"))
        assert first["choices"] == second["choices"]
    assert ask(address, "/models") == ask(address, "/v1/models")


def wait_for(lines: list[str], count: int, begin: str) -> list[str]:
    """Return the last ``count`` lines, once the last begins so: it is written after its reply."""
    while len(lines) < count or not lines[-1].startswith(begin):
        time.sleep(0.01)
    return lines[-count:]


def test_each_request_has_a_line(address: str, lines: list[str]) -> None:
    ask(address, "/begin")
    wait_for(lines, 1, "GET /begin")
    lines.clear()
    body = {"prompt": "word1 word2 word1 word2", "max_tokens": 60, "cache_prompt": True}
    ask(address, "/v1/completions", body)
    ask(address, "/v1/completions", {"prompt": "word1 word2", "max_tokens": 9, "stream": True})
    ask(address, "/v1/completions", {"prompt": "x", "n": "three\n"})
    ask(address, "/nothing%0a")
    for path in QUIET_PATHS:
        assert ask(address, path)[0] == 200
    ask(address, "/v1/completions", {"prompt": [[5], []]})
    ask(address, "/v1/completions", {"prompt": "word7 word8 word9", "max_tokens": 3, "n": 2})
    ask(address, "/end")
    whole, stream, bad, missing, empty, two, _ = wait_for(lines, 7, "GET /end")
    prompt, cached = map(int, re.findall(r"prompt (\d+) tokens \((\d+) cached\)", two)[0])
    assert cached < prompt == 2 * 3
    number = r"\d+"
    assert re.fullmatch(
        rf"POST /v1/completions 200 in [\d.]+ s; prompt 4 tokens \({number} cached\); reply 60 "
        rf"tokens \([\d.]+ tokens/s\); drafted {number}, accepted {number}; length; "
        "without effect: cache_prompt",
        whole,
    )
    assert re.match(r"POST /v1/completions 200 in .*; prompt 2 tokens .*; reply 9 tokens", stream)
    assert bad.startswith("POST /v1/completions 400 in ")
    assert "n must be a valid integer" in bad
    assert missing.startswith("GET /nothing\\n 404 in ")
    assert empty.startswith("POST /v1/completions 400 in ")
    assert all(line.isprintable() and line.isascii() for line in lines)


def test_completions_and_chats_have_the_same_fields() -> None:
    shared = {"top_k": 3, "repeat_penalty": 1.1, "stop_token_ids": [3], "ignore_eos": True}
    text = read_request(CompletionRequest, json.dumps({"prompt": "x", **shared}).encode())
    for name, kind in itertools.product(shared, (read(**shared), text)):
        assert getattr(kind, name) == shared[name]
