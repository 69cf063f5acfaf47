"""Requests with odd fields to a server of a small model."""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient

from cassandra_spec.drafting import Counters, Settings
from cassandra_spec.model.backends import BACKENDS, Opening
from cassandra_spec.serve.app import Served, make_app
from cassandra_spec.serve.metrics import Metrics
from cassandra_spec.serve.requests import read_request
from cassandra_spec.serve.responses import ResponsesRequest
from cassandra_spec.serve.scheduler import Scheduler
from tests.text.byte_tokens import END

WAITING, SLOTS, MOST = 6, 3, 24
REQUESTS = 6
"""Requests of a case."""

PERSON = {
    "type": "object",
    "properties": {"kind": {"enum": ["ab", "abc"]}, "tall": {"type": "boolean"}},
    "required": ["kind"],
}
FORMATS: tuple[Any, ...] = (
    {"type": "text"},
    {"type": "json_object"},
    {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}},
    {"type": "json_schema", "json_schema": {"name": "bad", "schema": {"type": "x", "not": {}}}},
    {"type": "grammar", "syntax": "regex", "definition": "(ab|na){2,9}c"},
    {"type": "grammar", "syntax": "lark", "definition": 'start: "a" start "b" | "c"'},
    {"type": "grammar", "syntax": "gbnf", "definition": 'root ::= "a" | "b" root'},
)
TOOLS: tuple[Any, ...] = (
    [],
    [{"type": "function", "function": {"name": "look"}}],
    [{"type": "function", "function": {"name": "find", "parameters": PERSON}}],
)
NAMED = {"type": "function", "function": {"name": "find"}}

COMMON: dict[str, tuple[Any, ...]] = {
    "model": ("tiny",),
    "max_tokens": (1, 7, MOST, None),
    "stop": ("word7", ["word1 word", "5"], []),
    "n": (1, 1, 2, 3),
    "temperature": (0, 0, 1, 2),
    "top_p": (0.5, 1),
    "min_p": (0, 0.1, 1),
    "frequency_penalty": (0, 1.5, -2),
    "presence_penalty": (0, 2, -0.5),
    "repetition_penalty": (1, 1.5, 0.1),
    "logit_bias": ({}, {"5": 100}, {"0": -100, "95": 3.5}),
    "seed": (0, -1, 2**62),
    "response_format": FORMATS,
    "stream": (False, True),
    "stream_options": ({}, {"include_usage": True}),
}
CHAT: dict[str, tuple[Any, ...]] = {
    "logprobs": (False, True),
    "top_logprobs": (0, 3),
    "continue_final_message": (False, True),
    "add_generation_prompt": (False, True),
    "tools": TOOLS,
    "tool_choice": ("none", "auto", "required", NAMED),
    "parallel_tool_calls": (False, True),
}
TEXT: dict[str, tuple[Any, ...]] = {
    "logprobs": (0, 1, 20),
    "echo": (False, True),
    "max_tokens": (0, 1, 9),
}
RESPONSE: dict[str, tuple[Any, ...]] = {
    "model": ("tiny",),
    "instructions": ("word6", ""),
    "max_output_tokens": (1, 7, MOST, None),
    "temperature": (0, 0, 1),
    "top_p": (0.5, 1),
    "text": (
        {},
        {"format": {"type": "json_object"}},
        {"format": {"type": "json_schema", "name": "person", "schema": PERSON}},
        {"format": {"type": "json_schema", "name": "bad", "schema": {"type": "x"}}},
    ),
    "tools": tuple([{"type": "function", **each["function"]} for each in tools] for tools in TOOLS),
    "tool_choice": ("none", "auto", "required", {"type": "function", "name": "find"}),
    "parallel_tool_calls": (False, True),
    "stream": (False, True),
}
FIELDS = {"chat/completions": COMMON | CHAT, "completions": COMMON | TEXT, "responses": RESPONSE}
CALL = {"type": "function_call", "call_id": "c", "name": "find", "arguments": "{}"}
ITEMS: tuple[Any, ...] = (
    {"role": "user", "content": "word8"},
    {"role": "assistant", "content": [{"type": "output_text", "text": "word8"}]},
    CALL,
    {"type": "function_call_output", "call_id": "c", "output": "word3"},
)
PROMPTS: tuple[Any, ...] = ("word5 word9", [7, 9, 13], ["word3", "word4"], [[5], [6, 7]], [95] * 40)


@contextlib.contextmanager
def opened(packed: Path) -> Iterator[TestClient]:
    """Yield a client of a server in this process; an exception in the server is raised here."""
    opening = Opening(threads=1, sequences=SLOTS, context=512)
    drafts = Settings(gamma=4, draft="hybrid", stop_tokens=frozenset({END}))
    with BACKENDS["native"](packed, opening, drafts) as backend:
        counters, tokenizer = Counters(), backend.tokenizer
        served = Served(
            name="tiny",
            fingerprint="f",
            created=1,
            tokenizer=tokenizer,
            vocabulary=272,
            context=backend.positions,
            settings=drafts,
            temperature=0.0,
            max_tokens=MOST,
            max_body=1 << 16,
        )
        sequences = backend.sequences(counters, keep=True)
        with Scheduler(sequences, tokenizer, waiting=WAITING) as scheduler:
            app = make_app(served, scheduler, Metrics(scheduler, counters))
            with TestClient(app, base_url="http://localhost") as client:
                yield client


def body_of(kind: str, rng: random.Random) -> dict[str, Any]:
    """Return a request with some fields that mostly go together."""
    known = FIELDS[kind]
    fields = rng.sample(sorted(known), rng.randrange(len(known)))
    body = {name: rng.choice(known[name]) for name in ["model", *fields]}
    if kind == "completions":
        return body | {"prompt": rng.choice(PROMPTS)}
    if kind == "responses":
        items = [rng.choice(ITEMS) for _ in range(rng.randint(0, 3))]
        return body | {"input": rng.choice(("word8", [ITEMS[0], CALL, *items]))}
    roles = [rng.choice(("user", "system", "assistant")) for _ in range(rng.randint(1, 3))]
    return body | {"messages": [{"role": role, "content": "word8"} for role in roles]}


def ask(client: TestClient, kind: str, body: Any) -> list[Any] | None:
    """Return the choices of an answer or of a whole stream; None if the request was refused."""
    answer = client.post(f"/v1/{kind}", content=json.dumps(body).encode(), headers=HEADERS)
    if answer.status_code in (400, 404, 413):
        error = answer.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}, error
        assert len(error["message"].splitlines()) == 1, error
        return None
    assert answer.status_code == 200, (body, answer.status_code, answer.text)
    whole = answer.headers["content-type"].startswith("application/json")
    lines = [line[6:] for line in answer.text.splitlines() if line.startswith("data: ")]
    if kind == "responses":
        return [choice_of(answer.json() if whole else json.loads(lines[-1])["response"])]
    if whole:
        return list(answer.json()["choices"])
    *events, last = lines
    assert last == "[DONE]", (body, answer.text[-300:])
    return [choice for event in events for choice in json.loads(event)["choices"]]


HEADERS = {"Content-Type": "application/json"}


def choice_of(response: dict[str, Any]) -> dict[str, Any]:
    """Return a response as the choice of a chat."""
    output, status = response["output"], response["status"]
    assert status in ("completed", "incomplete"), response
    texts = [item["content"][0]["text"] for item in output if item["type"] == "message"]
    calls = [{"function": item} for item in output if item["type"] == "function_call"]
    reason = "length" if status == "incomplete" else "tool_calls" if calls else "stop"
    message = {"content": "".join(texts), "tool_calls": calls}
    return {"index": 0, "message": message, "logprobs": None, "finish_reason": reason}


def ask_plainly(client: TestClient, kind: str, body: dict[str, Any]) -> list[Any] | None:
    """Return the choices of an answer without drafts; a response is asked for as a chat."""
    if kind == "responses":
        chat = read_request(ResponsesRequest, json.dumps(body).encode()).chat
        body = chat.model_dump(by_alias=True, exclude_unset=True)
        kind = "chat/completions"
    return ask(client, kind, {**body, "plain": True, "stream": False})


def whole(choices: list[Any]) -> dict[int, list[Any]]:
    """Text, log-probabilities, calls and the end of each reply, whatever pieces it came in."""
    found: dict[int, list[Any]] = {}
    for each in choices:
        reply = found.setdefault(each["index"], ["", [], [], ""])
        part = each.get("message") or each.get("delta") or {"content": each.get("text")}
        scores = each["logprobs"] or {}
        reply[0] += part.get("content") or ""
        reply[1] += scores.get("content") or scores.get("token_logprobs") or []
        calls = [call["function"] for call in part.get("tool_calls") or []]
        reply[2] += [(call["name"], call["arguments"]) for call in calls]
        reply[3] = each["finish_reason"] or reply[3]
    return found
