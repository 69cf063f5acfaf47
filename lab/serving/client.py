"""Ask a server for a reply, whole or as a stream, and bring both into one form."""

from __future__ import annotations

import contextlib
import http.client
import json
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cassandra_spec.golden import CassandraError

SECONDS = 600.0
"""Time limit for each part of an answer."""
_DATA = b"data: "
_DONE = b"[DONE]"


class RequestError(CassandraError):
    """A server has not answered a request, or has answered it with an error."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One reply: its text, its end, and its log-probabilities as JSON."""

    text: str
    finish_reason: str
    logprobs: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The replies to a request, in order, and the server's counts."""

    choices: tuple[Choice, ...]
    tokens: int  # of all replies
    prompt_tokens: int
    drafted: int = 0  # where the server reports them with the reply, as llama-server does
    accepted: int = 0


def parts(
    place: str, path: str, body: Mapping[str, Any], seconds: float = SECONDS
) -> Generator[bytes, None, None]:
    """Send a request to ``HOST:PORT``; yield the JSON texts of the answer as they arrive.

    A whole answer is one part, a stream a part for each event. Closing the iterator closes the
    connection. Raises :class:`RequestError`; for a stream without its end, too.
    """
    connection = http.client.HTTPConnection(place, timeout=seconds)
    with contextlib.closing(connection):
        try:
            headers = {"Content-Type": "application/json"}
            connection.request("POST", path, json.dumps(body).encode(), headers)
            answer = connection.getresponse()
            if answer.status != http.client.OK:
                text = answer.read(1 << 16).decode(errors="replace")
                raise RequestError(f"{path} must be answered with 200, not {answer.status}: {text}")
            yield from _events(answer) if body.get("stream") else [answer.read()]
        except (OSError, http.client.HTTPException) as error:
            raise RequestError(f"{place} must be a server that answers: {error!r}") from error


def _events(answer: http.client.HTTPResponse) -> Iterator[bytes]:
    while line := answer.readline():
        if line.startswith(_DATA):
            data = line.removeprefix(_DATA).strip()
            if data == _DONE:
                return
            yield data
    raise RequestError("a stream must end with [DONE], and has ended before")


def assemble(found: Iterable[bytes]) -> Answer:
    """Build the answer from its parts. Raises :class:`RequestError` for other texts."""
    try:
        return _assemble([json.loads(each) for each in found])
    except RequestError:  # which is a ValueError, too
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RequestError(f"an answer must have OpenAI's form ({error!r})") from error


def _assemble(bodies: list[dict[str, Any]]) -> Answer:
    texts: dict[int, str] = {}
    reasons: dict[int, str] = {}
    scores: dict[int, list[Any]] = {}
    usage: dict[str, Any] = {}
    timings: dict[str, Any] = {}
    for body in bodies:
        if body.get("error"):
            raise RequestError(f"a reply must be made without an error: {body['error']}")
        usage, timings = body.get("usage") or usage, body.get("timings") or timings
        for choice in body["choices"]:
            at = int(choice.get("index", 0))
            texts[at] = texts.get(at, "") + content(choice)
            reasons[at] = choice.get("finish_reason") or reasons.get(at, "")
            scores.setdefault(at, []).extend((choice.get("logprobs") or {}).get("content") or ())
    choices = tuple(
        Choice(
            text=texts[at],
            finish_reason=reasons[at],
            logprobs=tuple(json.dumps(each, sort_keys=True) for each in scores[at]),
        )
        for at in sorted(texts)
    )
    return Answer(
        choices=choices,
        tokens=int(usage["completion_tokens"]),
        prompt_tokens=int(usage["prompt_tokens"]),
        drafted=int(timings.get("draft_n", 0)),
        accepted=int(timings.get("draft_n_accepted", 0)),
    )


def content(choice: Mapping[str, Any]) -> str:
    """Return the text of a choice: of a message, of a part of one, or of a completion."""
    message = choice.get("delta") or choice.get("message") or {}
    return str(message.get("content") or choice.get("text") or "")
