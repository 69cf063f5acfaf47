"""Structured output of the server: formats of replies and calls of functions."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import pytest

from cassandra_spec.drafting import Counters, Settings, encode_prompt
from cassandra_spec.model.backends import BACKENDS, Opening
from cassandra_spec.serve.app import Served
from cassandra_spec.serve.server import open_server, running
from cassandra_spec.text.grammar import GrammarText
from tests.model.byte_model import COMPILER, pack_byte_model
from tests.text.byte_tokens import END

STOPS = frozenset({END})
SPECULATION = Settings(gamma=4, draft="hybrid", stop_tokens=STOPS)
MESSAGES: list[Any] = [{"role": "user", "content": "abc"}]
PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {"kind": {"enum": ["man", "dog"]}, "tall": {"type": "boolean"}},
    "required": ["kind", "tall"],
    "additionalProperties": False,
}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}}
REGEX = {"type": "grammar", "syntax": "regex", "definition": "(abc|nana){2,5}x"}
LARK = {"type": "grammar", "syntax": "lark", "definition": 'start: "a" start "b" | "c"'}
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": name, "description": "d", "parameters": PERSON}}
    for name in ("measure", "weigh")
]


PATHS = {"type": "array", "items": {"type": "string", "pattern": "(?=a)b"}}
UNFIT: Any = {
    "type": "function",
    "function": {
        "name": "look",
        "parameters": {"type": "object", "properties": {"path": PATHS, "deep": {"type": "null"}}},
    },
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pack_byte_model(tmp_path_factory.mktemp("bytes"))


@contextlib.contextmanager
def served(model: Path, backend: str) -> Iterator[openai.OpenAI]:
    opening = Opening(threads=1, sequences=4, context=1 << 12)
    with BACKENDS[backend](model, opening, SPECULATION) as opened:
        fields = Served(
            name="tiny",
            fingerprint="f",
            created=1,
            tokenizer=opened.tokenizer,
            vocabulary=272,
            context=1 << 12,
            settings=SPECULATION,
            temperature=0.0,
            max_tokens=1 << 10,
            max_body=1 << 18,
        )
        with (
            open_server(fields, opened, "127.0.0.1", 0, waiting=16) as server,
            running(server) as address,
            openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0) as client,
        ):
            yield client


@pytest.fixture(scope="module", params=["native", "torch"])
def client(model: Path, request: Any) -> Iterator[openai.OpenAI]:
    with served(model, request.param) as made:
        yield made


@pytest.fixture(scope="module")
def alone(model: Path) -> Iterator[Any]:
    """Yield the text of a reply under a grammar, decoded plainly by itself."""
    with BACKENDS["native"](model, Opening(threads=1), SPECULATION) as backend:

        def text(syntax: Any, definition: str) -> str:
            grammar = COMPILER.compile(GrammarText(syntax=syntax, text=definition))
            settings = Settings(gamma=0, max_tokens=200, stop_tokens=STOPS, processors=(grammar,))
            prompt = encode_prompt(backend.tokenizer, "abc")
            tokens = itertools.chain(*backend.rounds(prompt, settings, Counters()))
            return str(backend.tokenizer.decode(list(tokens), skip_special_tokens=True))

        yield text


def create(client: openai.OpenAI, **fields: Any) -> Any:
    known = {"model": "tiny", "messages": MESSAGES, "max_tokens": 200}
    return client.chat.completions.create(**{**known, **fields})


def streamed(client: openai.OpenAI, **fields: Any) -> tuple[str, list[Any], str]:
    """Content, calls and the end of a streamed reply."""
    content, calls, reason = "", list[Any](), ""
    for chunk in create(client, stream=True, **fields):
        [choice] = chunk.choices
        content += choice.delta.content or ""
        calls += choice.delta.tool_calls or []
        reason = choice.finish_reason or reason
    return content, calls, reason


def functions(calls: list[Any]) -> list[tuple[str, Any]]:
    return [(call.function.name, json.loads(call.function.arguments)) for call in calls]


def is_person(body: Any) -> bool:
    return list(body) == ["kind", "tall"] and body["kind"] in ("man", "dog")


def test_a_schema(client: openai.OpenAI, alone: Any) -> None:
    [choice] = create(client, response_format=SCHEMA).choices
    assert is_person(json.loads(choice.message.content))
    assert choice.finish_reason == "stop"
    assert choice.message.content == alone("json_schema", json.dumps(PERSON))
    assert streamed(client, response_format=SCHEMA) == (choice.message.content, [], "stop")
    plain = create(client, response_format=SCHEMA, extra_body={"plain": True})
    assert plain.choices[0].message.content == choice.message.content


def test_grammars_and_completions(client: openai.OpenAI, alone: Any) -> None:
    for form in (REGEX, LARK):
        [choice] = create(client, extra_body={"response_format": form}).choices
        assert choice.message.content == alone(form["syntax"], form["definition"])
    more = {"response_format": REGEX}
    reply = client.completions.create(model="tiny", prompt="x", max_tokens=99, extra_body=more)
    assert reply.choices[0].text.endswith("x")


def test_a_json_object(client: openai.OpenAI) -> None:
    form: Any = {"type": "json_object"}
    [choice] = create(client, response_format=form, max_tokens=20).choices
    assert choice.message.content.startswith("{")


@pytest.mark.parametrize("parallel", [True, False])
def test_calls_that_must_be(client: openai.OpenAI, parallel: bool) -> None:
    fields: Any = {
        "tools": TOOLS,
        "tool_choice": "required",
        "parallel_tool_calls": parallel,
        "max_tokens": 600,
    }
    [choice] = create(client, **fields).choices
    calls = functions(choice.message.tool_calls)
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content is None
    assert all(name in ("measure", "weigh") and is_person(body) for name, body in calls)
    assert parallel or len(calls) == 1
    content, found, reason = streamed(client, **fields)
    assert (content, functions(found), reason) == ("", calls, "tool_calls")
    assert [each.index for each in found] == list(range(len(calls)))
    assert len({each.id for each in found}) == len(calls)


def test_a_cut_reply_has_its_complete_calls(client: openai.OpenAI) -> None:
    fields: Any = {"tools": TOOLS, "tool_choice": "required"}
    [whole] = create(client, **fields, max_tokens=600).choices
    calls = functions(whole.message.tool_calls)
    for most in range(1, 100, 9):
        [choice] = create(client, **fields, max_tokens=most).choices
        found = functions(choice.message.tool_calls or [])
        assert found == calls[: len(found)]
        assert choice.message.content in (None, "")
        assert choice.finish_reason == "length" or found == calls
        content, pieces, reason = streamed(client, **fields, max_tokens=most)
        assert (content, functions(pieces), reason) == ("", found, choice.finish_reason)


def test_an_older_form_of_calls(client: openai.OpenAI) -> None:
    """The deprecated ``functions`` have a reply with a ``function_call``."""
    older: Any = {"functions": [each["function"] for each in TOOLS]}
    older["function_call"] = {"name": "weigh"}
    [choice] = create(client, **older).choices
    assert choice.finish_reason == "function_call"
    assert choice.message.tool_calls is None
    assert choice.message.function_call.name == "weigh"
    assert is_person(json.loads(choice.message.function_call.arguments))
    history = [*MESSAGES, choice.message.model_dump(), {"role": "function", "content": "80"}]
    assert create(client, messages=history, max_tokens=3).choices[0].finish_reason == "length"


UNIQUE = {"enum": [1, 2]}
UNIQUE_ITEMS = {"type": "array", "items": UNIQUE, "minItems": 3, "maxItems": 3, "uniqueItems": True}


def test_a_reply_that_a_grammar_cannot_enforce_is_checked(client: openai.OpenAI) -> None:
    form: Any = {"type": "json_schema", "json_schema": {"schema": UNIQUE_ITEMS}}
    with pytest.raises(openai.UnprocessableEntityError) as caught:
        create(client, response_format=form)
    assert (caught.value.param, caught.value.code) == ("response_format", "reply_mismatch")
    assert caught.value.message.endswith("must match its schema, and does not: uniqueItems")
    with pytest.raises(openai.APIError, match="does not: uniqueItems"):
        streamed(client, response_format=form)


def unique(unique_items: bool) -> list[Any]:
    """Return a tool that takes three ones and twos, which cannot differ."""
    items = {**UNIQUE_ITEMS, "uniqueItems": unique_items}
    fields = {"properties": {"a": items}, "required": ["a"], "additionalProperties": False}
    function = {"name": "f", "parameters": {"type": "object", **fields}}
    return [{"type": "function", "function": function}]


@pytest.mark.parametrize("most", [600, 60])
def test_a_call_that_a_grammar_cannot_enforce_is_checked(client: openai.OpenAI, most: int) -> None:
    """The complete calls of a reply that is cut are checked, too."""
    fields: Any = {"tool_choice": "required", "max_tokens": most}
    [choice] = create(client, tools=unique(False), **fields).choices
    assert choice.message.tool_calls
    assert choice.finish_reason == ("tool_calls" if most == 600 else "length")
    fields["tools"] = unique(True)
    with pytest.raises(openai.UnprocessableEntityError) as caught:
        create(client, **fields)
    assert (caught.value.param, caught.value.code) == ("tools", "reply_mismatch")
    reason = "the call of f must match its schema, and does not: uniqueItems of a"
    assert caught.value.message.endswith(reason)
    with pytest.raises(openai.APIError, match=reason):
        streamed(client, **fields)


def test_prompt_tokens_include_tools(client: openai.OpenAI) -> None:
    usage = create(client, tools=TOOLS, tool_choice="none", max_tokens=1).usage
    tools: Any = [{"type": "function", **each["function"]} for each in TOOLS]
    count = functools.partial(client.responses.input_tokens.count, model="tiny", input="abc")
    assert count().input_tokens == usage.prompt_tokens
    reply = create(client, tools=TOOLS, max_tokens=1)
    assert count(tools=tools).input_tokens == reply.usage.prompt_tokens > usage.prompt_tokens


def test_a_response_has_checked_calls(client: openai.OpenAI) -> None:
    tools: Any = [{"type": "function", **unique(True)[0]["function"]}]
    fields: Any = {"input": "abc", "tools": tools, "tool_choice": "required"}
    for most in (600, 60):
        with pytest.raises(openai.UnprocessableEntityError, match="uniqueItems of a"):
            client.responses.create(model="tiny", max_output_tokens=most, **fields)
    *_, last = client.responses.create(model="tiny", stream=True, **fields)
    assert last.type == "response.failed"
    assert "uniqueItems of a" in last.response.error.message


def test_descriptions_do_not_count_for_the_size_of_a_schema(client: openai.OpenAI) -> None:
    person = {**PERSON, "description": "d" * 70_000}
    form: Any = {"type": "json_schema", "json_schema": {"name": "a", "schema": person}}
    [choice] = create(client, response_format=form).choices
    assert is_person(json.loads(choice.message.content))


def test_a_named_function(client: openai.OpenAI) -> None:
    choice: Any = {"type": "function", "function": {"name": "weigh"}}
    reply = create(client, tools=TOOLS, tool_choice=choice, parallel_tool_calls=False)
    [(name, body)] = functions(reply.choices[0].message.tool_calls)
    assert name == "weigh"
    assert is_person(body)


def test_calls_that_may_be_and_their_results(client: openai.OpenAI) -> None:
    call = {"name": "weigh", "arguments": '{"kind": "man", "tall": true}'}
    messages = [
        *MESSAGES,
        {"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": call}]},
        {"role": "tool", "tool_call_id": "1", "content": "80"},
    ]
    without = create(client, max_tokens=10).usage.prompt_tokens
    for choice in ("auto", "none"):
        reply = create(client, messages=messages, tools=TOOLS, tool_choice=choice, max_tokens=10)
        assert reply.choices[0].finish_reason in ("length", "stop")
        assert reply.usage.prompt_tokens > without


@pytest.mark.parametrize(
    ("fields", "param", "why"),
    [
        (
            {"response_format": {**SCHEMA, "json_schema": {"name": "a", "schema": {"type": "x"}}}},
            "response_format",
            "Invalid type: x",
        ),
        ({"response_format": {**REGEX, "definition": "("}}, "response_format", "unclosed group"),
        ({"response_format": {"type": "xml"}}, "response_format", "response_format"),
        (
            {"response_format": {**REGEX, "definition": "a" * 70000}},
            "response_format",
            "at most 65536 bytes",
        ),
        ({"tools": TOOLS, "response_format": REGEX}, "response_format", "must not be a grammar"),
        ({"tools": [{"type": "function", "function": {"name": ""}}]}, "tools", "at least 1"),
        (
            {"tools": [{"type": "function", "function": {"name": "a", "parameters": {"not": {}}}}]},
            "tools",
            "a: parameters.not must leave some value",
        ),
        (
            {"tools": [*TOOLS, UNFIT]},
            "tools",
            "tools: look: parameters.properties.path.items: json_schema must be a grammar to comp",
        ),
        ({"tool_choice": "required"}, "tool_choice", "tool_choice must be given with tools"),
        (
            {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "x"}}},
            "tool_choice",
            "must name one of the tools, not 'x'",
        ),
    ],
)
def test_requests_that_are_refused(
    client: openai.OpenAI, fields: dict[str, Any], param: str, why: str
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        create(client, extra_body=fields)
    assert caught.value.param == param
    assert why in caught.value.message


def test_sixteen_clients_get_what_each_gets_alone(client: openai.OpenAI) -> None:
    kinds: list[dict[str, Any]] = [
        {"response_format": SCHEMA},
        {"extra_body": {"response_format": REGEX}},
        {"tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False},
        {"max_tokens": 30},
    ]
    asked = [
        {**kinds[at % 4], "messages": [{"role": "user", "content": "ab" * at}]}
        for at in range(1, 17)
    ]

    def reply(fields: dict[str, Any]) -> Any:
        message = create(client, **fields).choices[0].message
        return message.content, functions(message.tool_calls or [])

    one_by_one = [reply(fields) for fields in asked]
    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(reply, asked)) == one_by_one
