"""Answers of servers, whole and streamed, in one form."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from cassandra_spec.lab.serving.client import Choice, RequestError, assemble, parts
from cassandra_spec.lab.serving.servers import PORT, LocalServer

FAKE = Path(__file__).with_name("fake_server.py")
PATH = "/v1/chat/completions"
BODY: dict[str, Any] = {"messages": [], "max_tokens": 5, "temperature": 0}
USAGE = {"completion_tokens": 2, "prompt_tokens": 3}


def encoded(*bodies: dict[str, Any]) -> list[bytes]:
    return [json.dumps(each).encode() for each in bodies]


def choice(at: int, reason: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"index": at, "finish_reason": reason, **fields}


def test_a_stream_and_a_whole_answer_are_the_same() -> None:
    scores = [{"token": "a", "logprob": -0.5}, {"token": "b", "logprob": -1.5}]
    whole = assemble(
        encoded(
            {
                "choices": [
                    choice(0, "stop", message={"content": "ab"}, logprobs={"content": scores}),
                    choice(1, "length", message={"content": "c"}, logprobs=None),
                ],
                "usage": USAGE,
            }
        )
    )
    assert [each.text for each in whole.choices] == ["ab", "c"]
    assert [each.finish_reason for each in whole.choices] == ["stop", "length"]
    assert [len(each.logprobs) for each in whole.choices] == [2, 0]
    first: dict[str, Any] = {"delta": {"content": "a"}, "logprobs": {"content": scores[:1]}}
    second: dict[str, Any] = {"delta": {"content": "b"}, "logprobs": {"content": scores[1:]}}
    streamed = encoded(
        {"choices": [choice(0, delta={"role": "assistant", "content": ""})]},
        {"choices": [choice(1, delta={"content": "c"})]},
        {"choices": [choice(0, **first)], "usage": None},
        {"choices": [choice(1, "length", delta={})]},
        {"choices": [choice(0, **second)]},
        {"choices": [choice(0, "stop", delta={})]},
        {"choices": [], "usage": USAGE, "timings": {"draft_n": 7, "draft_n_accepted": 4}},
    )
    found = assemble(streamed)
    assert found.choices == whole.choices
    assert (found.tokens, found.prompt_tokens) == (whole.tokens, whole.prompt_tokens) == (2, 3)
    assert (found.drafted, found.accepted, whole.drafted) == (7, 4, 0)


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": "no"}},
        {"choices": [{"index": 0}]},  # no counts
        {"usage": USAGE},
        [],
    ],
)
def test_other_answers_are_refused(body: Any) -> None:
    with pytest.raises(RequestError):
        assemble(encoded(body))


def test_a_server_is_asked_both_ways() -> None:
    with LocalServer("fake", [sys.executable, str(FAKE), PORT]) as server:
        assert server.model == "fake"
        assert server.metrics()["num_requests_waiting"] == 0
        whole = assemble(parts(server.place, PATH, {**BODY, "stream": False}))
        streamed = list(parts(server.place, PATH, {**BODY, "stream": True}))
        assert len(streamed) == 5 + 2
        assert assemble(streamed) == whole
        assert [(len(each.text), each.finish_reason) for each in whole.choices] == [(25, "stop")]
        [one] = whole.choices
        assert isinstance(one, Choice)
        with pytest.raises(RequestError, match="must be answered with 200, not 404"):
            assemble(parts(server.place, "/elsewhere", {**BODY, "stream": False}))
    with pytest.raises(RequestError, match=r"^127\.0\.0\.1:[0-9]+ must be a server that answers"):
        assemble(parts(server.place, PATH, {**BODY, "stream": False}))


def test_a_stream_without_its_end_is_refused() -> None:
    with (
        LocalServer("fake", [sys.executable, str(FAKE), PORT, "broken"]) as server,
        pytest.raises(RequestError, match=r"must end with \[DONE\]"),
    ):
        list(parts(server.place, PATH, {**BODY, "stream": True}))
