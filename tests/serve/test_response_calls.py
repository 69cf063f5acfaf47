"""Calls of functions in the Responses API, asked by the client of openai."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cassandra_spec.serve.responses import ResponseAnswer, ResponsesRequest
from cassandra_spec.serve.scheduler import Event
from cassandra_spec.serve.tool_calls import LISTED, CallFormat
from tests.serve.test_responses import events_of
from tests.serve.test_structured import MESSAGES, PERSON, TOOLS, client, create, functions, model
from tests.serve.test_tool_calls import BOTH, TIME, WEATHER, written

__all__ = ["client", "model"]

FORMAT: dict[str, Any] = {"type": "json_schema", "name": "person", "schema": PERSON}
FLAT: list[Any] = [{"type": "function", **tool["function"], "strict": False} for tool in TOOLS]


def respond(client: openai.OpenAI, **fields: Any) -> Any:
    known = {"model": "tiny", "input": "abc", "max_output_tokens": 600, "tools": FLAT}
    return client.responses.create(**{**known, **fields})


def items(response: Any) -> list[tuple[str, Any]]:
    """Return the items of a response, without what is new in each."""
    return [
        (item.name, json.loads(item.arguments))
        if item.type == "function_call"
        else ("", item.content[0].text)
        for item in response.output
    ]


def chat_items(message: Any) -> list[tuple[str, Any]]:
    """Return the items of a chat's message."""
    content = [("", message.content)] if message.content is not None else []
    return [*content, *functions(message.tool_calls or [])]


@pytest.mark.parametrize("parallel", [True, False])
def test_calls_are_those_of_the_chat(client: openai.OpenAI, parallel: bool) -> None:
    fields: Any = {"tool_choice": "required", "parallel_tool_calls": parallel}
    found = respond(client, **fields)
    chat = create(client, tools=TOOLS, max_tokens=600, **fields)
    assert items(found) == chat_items(chat.choices[0].message)
    assert all(item.type == "function_call" for item in found.output)
    assert len(found.output) == 1 or parallel
    assert (found.status, found.incomplete_details) == ("completed", None)
    assert (found.tool_choice, found.parallel_tool_calls) == ("required", parallel)
    assert [tool.name for tool in found.tools] == [tool["name"] for tool in FLAT]
    assert found.usage.input_tokens == chat.usage.prompt_tokens
    assert found.usage.output_tokens == chat.usage.completion_tokens
    assert len({item.call_id for item in found.output}) == len(found.output)


def test_a_stream_of_calls_has_the_events_of_the_api(client: openai.OpenAI) -> None:
    ask: dict[str, Any] = {"tool_choice": "required", "tools": FLAT, "max_output_tokens": 600}
    whole = respond(client, **ask)
    with client.responses.stream(model="tiny", input="abc", **ask) as stream:
        events: list[Any] = list(stream)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    place, kind = "response.output_item", "response.function_call_arguments"
    each = [f"{place}.added", f"{kind}.delta", f"{kind}.done", f"{place}.done"]
    assert [event.type for event in events] == [
        *("response.created", "response.in_progress"),
        *each * len(whole.output),
        "response.completed",
    ]
    assert items(events[-1].response) == items(whole)
    done = [event.item for event in events if event.type == f"{place}.done"]
    assert [item.call_id for item in done] == [item.call_id for item in events[-1].response.output]
    deltas = [event.delta for event in events if event.type == f"{kind}.delta"]
    assert deltas == [item.arguments for item in done]


def test_a_reply_without_calls_is_a_message(client: openai.OpenAI) -> None:
    chat = create(client, tools=TOOLS, max_tokens=20).choices[0].message
    found = respond(client, max_output_tokens=20)
    assert items(found) == chat_items(chat)
    assert [(item.type, item.status) for item in found.output] == [("message", "incomplete")]
    with client.responses.stream(
        model="tiny", input="abc", tools=FLAT, max_output_tokens=20
    ) as stream:
        last: Any = list(stream)[-1]
    assert items(last.response) == items(found)
    silent = respond(client, max_output_tokens=20, tool_choice="none")
    assert silent.usage.input_tokens < found.usage.input_tokens  # no tools are shown


def test_a_named_function_with_a_format(client: openai.OpenAI) -> None:
    choice = {"type": "function", "name": "weigh"}
    fields: Any = {"tool_choice": choice, "text": {"format": FORMAT}}
    found = respond(client, parallel_tool_calls=False, **fields)
    [(name, _)] = items(found)
    assert name == "weigh"
    assert found.tool_choice.name == "weigh"


def test_results_of_calls_come_in_the_input(client: openai.OpenAI) -> None:
    first = respond(client, tool_choice="required")
    calls = [item.to_dict() for item in first.output]
    results = [
        {"type": "function_call_output", "call_id": call["call_id"], "output": f"{at}0"}
        for at, call in enumerate(calls)
    ]
    asked = [{"role": "user", "content": "abc"}, *first.output, *results]
    found = respond(client, input=asked, max_output_tokens=20)
    said = [{"id": call["call_id"], "type": "function", "function": pick(call)} for call in calls]
    told = [
        {"role": "tool", "tool_call_id": each["call_id"], "content": each["output"]}
        for each in results
    ]
    messages = [*MESSAGES, {"role": "assistant", "tool_calls": said}, *told]
    chat = create(client, messages=messages, tools=TOOLS, max_tokens=20)
    assert items(found) == chat_items(chat.choices[0].message)
    assert found.usage.input_tokens == chat.usage.prompt_tokens > first.usage.input_tokens


def pick(call: dict[str, Any]) -> dict[str, Any]:
    return {name: call[name] for name in ("name", "arguments")}


def called(at: int) -> dict[str, Any]:
    return {"type": "function_call", "call_id": f"c{at}", "name": "f", "arguments": "{}"}


def test_calls_belong_to_the_message_before_them() -> None:
    asked: Any = [
        {"role": "user", "content": "a"},
        called(1),
        {"type": "function_call_output", "call_id": "c1", "output": "b"},
        {"role": "assistant", "content": "c"},
        called(2),
        called(3),
        {"role": "assistant", "content": "d"},
    ]
    chat = ResponsesRequest.model_validate({"model": "tiny", "input": asked}).chat
    assert [
        (each.role, each.content, [call.id for call in each.tool_calls]) for each in chat.messages
    ] == [
        ("user", "a", []),
        ("assistant", "", ["c1"]),
        ("tool", "b", []),
        ("assistant", "c", ["c2", "c3"]),
        ("assistant", "d", []),
    ]


# --- the items of a text ------------------------------------------------------------------------


def answer(form: CallFormat) -> ResponseAnswer:
    return ResponseAnswer(
        ResponsesRequest.model_validate({"model": "tiny", "input": "a"}), 3, calls=form
    )


def bare(output: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return items without ids."""
    return [{name: item[name] for name in item if name not in ("id", "call_id")} for item in output]


@given(data=st.data())
@BOTH
def test_a_text_in_pieces_has_the_items_of_the_whole(form: CallFormat, data: Any) -> None:
    content = data.draw(st.sampled_from(["", "a", "I ask: <tool", "{}\n"]))
    calls = data.draw(st.lists(st.sampled_from([WEATHER, TIME]), max_size=3))
    text = content + (written(form, *calls) if calls else "")
    reason = data.draw(st.sampled_from(["stop", "length"]))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=4)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    whole = answer(form).whole([Event(text=text, tokens=9, finish_reason=reason)])
    assert [item["type"] for item in whole["output"]] == [
        *["message"] * (bool(content) or not calls),
        *["function_call"] * len(calls),
    ]
    assert whole["status"] == ("incomplete" if reason == "length" else "completed")

    made, sent = answer(form), [Event(text=piece, tokens=1) for piece in pieces[:-1]]
    last = Event(text=pieces[-1], tokens=9, finish_reason=reason)
    stream = made.first(usage=False)
    stream += b"".join(made.piece(0, event, usage=False) for event in [*sent, last])
    events = events_of(stream + made.end([last], usage=False))
    assert events[-1]["type"] == f"response.{whole['status']}"
    assert bare(events[-1]["response"]["output"]) == bare(whole["output"])
    assert replayed(events) == whole_items(events[-1]["response"]["output"])


def replayed(events: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return the id and the text of each item, put together from a stream by a client of it."""
    found: list[tuple[str, str]] = []
    for event in events:
        if event["type"] == "response.output_item.added":
            assert event["output_index"] == len(found)
            found.append((event["item"]["id"], ""))
        elif event["type"].endswith(".delta"):
            name, text = found[event["output_index"]]
            assert event["item_id"] == name
            found[event["output_index"]] = name, text + event["delta"]
    return found


def whole_items(output: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(item["id"], item.get("arguments") or item["content"][0]["text"]) for item in output]


def test_a_stream_that_fails_before_its_text_has_no_message() -> None:
    events = events_of(answer(LISTED).first(usage=False))
    assert [event["type"] for event in events] == ["response.created", "response.in_progress"]


# --- errors -------------------------------------------------------------------------------------

RESULT = {"type": "function_call_output", "call_id": "c9", "output": ""}


@pytest.mark.parametrize(
    ("fields", "param", "why"),
    [
        ({"tools": [{"type": "function"}]}, "tools", "tools.0.name must be given"),
        ({"tools": [], "tool_choice": "required"}, "tool_choice", "must be given with tools"),
        (
            {"tool_choice": {"type": "function", "name": "x"}},
            "tool_choice",
            "must name one of the tools, not 'x'",
        ),
        (
            {"tools": [{"type": "function", "name": "a", "parameters": {"not": {}}}]},
            "tools",
            "a: parameters.not must leave some value",
        ),
        ({"input": [RESULT]}, "input", "input must have the function_call 'c9' before its output"),
        ({"input": [{**called(1), "arguments": []}]}, "input", "input.0.arguments must be a valid"),
        (
            {"tools": [], "text": {"format": {**FORMAT, "schema": {"type": "x"}}}},
            "text",
            "text: schema: json_schema must be a grammar to compile: Invalid type: x",
        ),
    ],
)
def test_errors_name_the_fields_of_this_api(
    client: openai.OpenAI, fields: dict[str, Any], param: str, why: str
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        respond(client, **fields)
    assert caught.value.param == param
    assert why in caught.value.message
