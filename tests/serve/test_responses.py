"""The Responses API, asked by the client of openai."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types.responses import Response

from cassandra_spec.drafting import encode_prompt
from cassandra_spec.model.pretrained import load_tokenizer
from cassandra_spec.serve.errors import ApiError
from cassandra_spec.serve.responses import ResponseAnswer, ResponsesRequest
from cassandra_spec.serve.scheduler import Event
from cassandra_spec.serve.server import running
from tests.model.byte_model import pack_byte_model
from tests.serve.conftest import Alone, opened
from tests.serve.test_api import WORDS, of
from tests.serve.test_structured import PERSON, SCHEMA, is_person, served

TURNS: list[Any] = [
    {"role": "developer", "content": "word1 word2"},
    {
        "role": "user",
        "content": [{"type": "input_text", "text": each} for each in ("word5 ", "word9")],
    },
]


@pytest.fixture(scope="module")
def address(packed: Path) -> Iterator[str]:
    with opened(packed, slots=2, waiting=4) as server, running(server) as found:
        yield found


@pytest.fixture
def client(address: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0) as made:
        yield made


def prompt_of(packed: Path, *turns: tuple[str, str]) -> list[int]:
    messages: Any = [{"role": role, "content": content} for role, content in turns]
    return encode_prompt(load_tokenizer(packed), messages)


def test_a_reply_is_that_of_the_chat(client: openai.OpenAI, packed: Path, alone: Alone) -> None:
    prompt = prompt_of(packed, ("system", "word2 word4"), ("user", WORDS))
    found = client.responses.create(
        model="tiny",
        input=WORDS,
        instructions="word2 word4",
        max_output_tokens=20,
        metadata={"a": "b"},
        temperature=0,
    )
    assert (found.output_text, 20) == alone(prompt, of(20))
    assert (found.status, found.incomplete_details.reason) == ("incomplete", "max_output_tokens")  # type: ignore[union-attr]
    assert (found.instructions, found.metadata) == ("word2 word4", {"a": "b"})
    assert (found.max_output_tokens, found.temperature, found.error) == (20, 0, None)
    usage = found.usage
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens) == (len(prompt), 20)
    assert usage.total_tokens == len(prompt) + 20
    again = client.responses.create(
        model="tiny", input=WORDS, instructions="word2 word4", max_output_tokens=20
    )
    assert again.usage is not None
    assert again.usage.input_tokens_details.cached_tokens > 0
    assert again.id != found.id


def test_earlier_turns_come_in_the_input(client: openai.OpenAI, packed: Path, alone: Alone) -> None:
    first = client.responses.create(model="tiny", input=TURNS, max_output_tokens=8)
    begin = (("system", "word1 word2"), ("user", "word5 word9"))
    assert first.output_text == alone(prompt_of(packed, *begin), of(8))[0]
    turns = [*TURNS, *(item.to_dict() for item in first.output)]
    last = {"role": "user", "content": "word7", "type": "message"}
    for asked in ([*turns, last], [*TURNS, *first.output, last]):
        found = client.responses.create(model="tiny", input=asked, max_output_tokens=8)
        prompt = prompt_of(packed, *begin, ("assistant", first.output_text), ("user", "word7"))
        assert found.output_text == alone(prompt, of(8))[0]
    ends = client.responses.create(model="tiny", input=turns, max_output_tokens=8)
    prompt = prompt_of(packed, *begin, ("assistant", first.output_text))
    assert ends.output_text == alone(prompt, of(8))[0]  # a new turn, not the last one's rest


def without_ids(response: Response) -> dict[str, Any]:
    body = response.to_dict()
    output: Any = body.pop("output")
    usage: Any = body["usage"]
    usage.pop("input_tokens_details")  # what is cached
    kept = {name: value for name, value in body.items() if name not in ("id", "created_at")}
    return kept | {"output": [{**item, "id": ""} for item in output]}


def test_a_stream_has_the_events_of_the_api(client: openai.OpenAI) -> None:
    ask: dict[str, Any] = {"model": "tiny", "input": WORDS, "max_output_tokens": 40}
    whole = client.responses.create(**ask)
    with client.responses.stream(**ask) as stream:
        events = list(stream)
    final: Any = events[-1].response  # type: ignore[union-attr]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type for event in events]
    deltas = kinds.count("response.output_text.delta")
    assert deltas > 5
    assert kinds == [
        *("response.created", "response.in_progress"),
        *("response.output_item.added", "response.content_part.added"),
        *["response.output_text.delta"] * deltas,
        *("response.output_text.done", "response.content_part.done"),
        *("response.output_item.done", "response.incomplete"),
    ]
    texts = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(texts) == whole.output_text == final.output_text
    assert without_ids(final) == without_ids(whole)
    assert events[0].response.status == "in_progress"  # type: ignore[union-attr]


def answer() -> ResponseAnswer:
    return ResponseAnswer(ResponsesRequest(model="tiny", input=WORDS), 3)  # type: ignore[arg-type]


def events_of(data: bytes) -> list[dict[str, Any]]:
    """Return bodies of server-sent events, each named by its type."""
    pairs = [each.split("\ndata: ") for each in data.decode().split("\n\n") if each]
    bodies = [json.loads(body) for _, body in pairs]
    assert [f"event: {body['type']}" for body in bodies] == [name for name, _ in pairs]
    return bodies


def test_a_reply_that_ends_by_itself_is_completed() -> None:
    last = Event(text="word1", tokens=2, finish_reason="stop")
    body = answer().whole([last])
    assert (body["status"], body["incomplete_details"]) == ("completed", None)
    assert body["output"][0]["status"] == "completed"
    made = answer()
    data = made.first(usage=False) + made.piece(0, last, usage=False)
    *_, end = events_of(data + made.end([last], usage=False))
    assert end["type"] == "response.completed"
    assert end["response"]["output"][0]["content"][0]["text"] == "word1"


def test_a_stream_whose_reply_fails_says_why() -> None:
    made = answer()
    made.first(usage=False)
    error = ApiError(500, "the reply must be made without an error")
    [event] = events_of(made.failed(error.body))
    assert (event["type"], event["response"]["status"]) == ("response.failed", "failed")
    assert event["response"]["error"]["message"] == "the reply must be made without an error"


def test_a_format_of_the_text_is_that_of_the_chat(tmp_path: Path) -> None:
    schema = {"type": "json_schema", "name": "person", "schema": PERSON, "strict": True}
    with served(pack_byte_model(tmp_path), "native") as client:
        form: Any = {"format": schema}
        found = client.responses.create(model="tiny", input="abc", text=form)
        chat = client.chat.completions.create(
            model="tiny", messages=[{"role": "user", "content": "abc"}], response_format=SCHEMA
        )  # type: ignore[call-overload]
        assert found.output_text == chat.choices[0].message.content
        assert is_person(json.loads(found.output_text))
        assert found.status == "completed"
        assert found.text.format.to_dict()["schema"] == PERSON  # type: ignore[union-attr]
        form = {"format": {"type": "json_object"}}
        cut = client.responses.create(model="tiny", input="abc", text=form, max_output_tokens=20)
        assert cut.output_text.startswith("{")


@pytest.mark.parametrize(
    ("fields", "message", "param"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id must not be given: this", None),
        ({"background": True}, "background must be False here", None),
        ({"tools": [{"type": "web_search"}]}, "tools.0.type must be 'function'", None),
        ({"reasoning": {"effort": 3}}, "reasoning.effort must be a valid string", None),
        ({"text": {"verbosity": "low"}}, "text.verbosity must be 'medium'", None),
        ({"text": {"format": {"type": "xml"}}}, "text.format: Input tag 'xml' found", None),
        ({"top_logprobs": 3}, "top_logprobs must be 0 here", None),
        ({"max_tokens": 3}, "max_tokens is not a parameter here", None),
        ({"max_output_tokens": 0}, "max_output_tokens must be greater than or equal to 1", None),
        ({"input": []}, "input must have at least 1 item", None),
        ({"input": 3}, "input must be a text or a list of items", None),
        ({"input": [{"type": "item_reference"}]}, "input.0: Input tag 'item_ref", "input"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
            "input.0.content must be a text, or parts of the type input_text or output_text or",
            "input",
        ),
        ({"input": [{"role": "tool", "content": ""}]}, "input.0.role must be 'user', ", "input"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(
    client: openai.OpenAI, fields: dict[str, Any], message: str, param: str | None
) -> None:
    with pytest.raises(openai.BadRequestError, match=message) as caught:
        client.responses.create(model="tiny", input=WORDS, extra_body=fields)
    assert caught.value.param == (param or next(iter(fields)))


def test_what_clients_send_back_is_taken(client: openai.OpenAI) -> None:
    """Any name of a model, thoughts of an earlier reply, and fields of its items."""
    more: Any = {"store": True, "include": ["reasoning.encrypted_content"], "truncation": "auto"}
    first = client.responses.create(model="gpt", input=WORDS, max_output_tokens=9, **more)
    assert first.model == "tiny"
    message = first.output[0].to_dict() | {"phase": "final_answer", "annotations": []}
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}
    history: Any = [{"role": "user", "content": WORDS}, thought, message]
    found = client.responses.create(model="gpt", input=history, max_output_tokens=9)
    plain: Any = [history[0], {"role": "assistant", "content": first.output_text}]
    again = client.responses.create(model="gpt", input=plain, max_output_tokens=9)
    assert found.output_text == again.output_text
    assert found.usage.input_tokens > first.usage.input_tokens  # type: ignore[union-attr]
