"""Servers of OpenAI's interface: asked in JSON, and as ways to decode."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from cassandra_spec.bench.conform.replies import Reply
from cassandra_spec.golden import CassandraError

_SECONDS = 600.0
"""Time limit of one answer."""
_BYTES = 1 << 26
"""Size limit of one answer."""


class Server:
    """An address ``http://HOST:PORT/v1``, where /v1 can be left out; also https."""

    def __init__(self, address: str, *, key: str = "", seconds: float = _SECONDS) -> None:
        """Take the server's address. Raises :class:`CassandraError` if it is invalid."""
        self.address, self._seconds = address, seconds
        parts = urlsplit(address)
        kinds: Mapping[str, type[http.client.HTTPConnection]] = {
            "http": http.client.HTTPConnection,
            "https": http.client.HTTPSConnection,
        }
        if parts.scheme not in kinds or not parts.hostname:
            raise CassandraError(f"address must be http://HOST:PORT/v1, not {address!r}")
        self._connection, self._place = kinds[parts.scheme], parts.netloc
        self._path = parts.path.rstrip("/") or "/v1"
        self._headers = {"Content-Type": "application/json"}
        if key:
            self._headers["Authorization"] = f"Bearer {key}"

    def ask(self, path: str, body: Any = None) -> Any:
        """Return the JSON of an answer. Raises :class:`CassandraError` in one line."""
        status, found = self.try_to_ask(path, body)
        if status != http.client.OK:
            raise CassandraError(
                f"{self.address} must answer {path} with 200, not {status}: {found}"
            )
        return found

    def try_to_ask(self, path: str, body: Any = None) -> tuple[int, Any]:
        """Send a request like :meth:`ask`; return any status."""
        method, data = ("GET", None) if body is None else ("POST", json.dumps(body))
        try:
            connection = self._connection(self._place, timeout=self._seconds)
            with contextlib.closing(connection):
                connection.request(method, self._path + path, data, self._headers)
                answer = connection.getresponse()
                return answer.status, json.loads(answer.read(_BYTES))
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise CassandraError(
                f"{self.address} must be a server that answers: {error!r}"
            ) from error

    def model(self) -> str:
        """Return the first model of the server's list."""
        found = self.ask("/models")
        try:
            return str(found["data"][0]["id"])
        except (KeyError, IndexError, TypeError) as error:
            raise CassandraError(f"{self.address} must name its models, not {found}") from error


class Address:
    """A model of a server (:class:`~cassandra_spec.bench.conform.replies.Way`).

    Margins are of log-probabilities, where the server gives them.
    """

    def __init__(
        self, name: str, server: Server, model: str, *, max_tokens: int, raw: bool
    ) -> None:
        self.name, self._server, self._raw = name, server, raw
        self._request = {"model": model, "max_tokens": max_tokens, "temperature": 0}
        self._more: dict[str, Any] = (
            {"logprobs": 2} if raw else {"logprobs": True, "top_logprobs": 2}
        )

    @property
    def key(self) -> Sequence[object]:
        """The address and the request."""
        return [self._server.address, self._request, self._raw]

    def reply(self, prompt: str) -> Reply:
        """Request a reply; request it again without log-probabilities if they are refused."""
        asked = (
            {"prompt": prompt} if self._raw else {"messages": [{"role": "user", "content": prompt}]}
        )
        path, body = (
            "/completions" if self._raw else "/chat/completions",
            {**self._request, **asked},
        )
        status, answer = self._server.try_to_ask(path, {**body, **self._more})
        if self._more and status != http.client.OK:
            self._more = {}
            answer = self._server.ask(path, body)
        try:
            return _reply(answer["choices"][0])
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise CassandraError(
                f"{self._server.address} must answer {path} as OpenAI's interface does,"
                f" not {json.dumps(answer)[:100]} ({error!r})"
            ) from error

    def margin(self, prompt: str, reply: Reply, place: int) -> float | None:
        """Return the margin that the server reported."""
        return reply.margins[place] if place < len(reply.margins) else None

    def unequal_rows(self, prompt: str, reply: Reply) -> list[int] | None:
        """Return None: a server gives no logits."""
        return None


def _reply(choice: Any) -> Reply:
    """Parse a choice of either kind."""
    text = choice["message"]["content"] if "message" in choice else choice["text"]
    if not isinstance(text, str):
        raise TypeError(f"content is {text!r}")
    said = choice.get("logprobs") or {}
    if "message" in choice:
        found = said.get("content") or []
        pieces = [str(each["token"]) for each in found]
        best = [[one["logprob"] for one in each.get("top_logprobs") or []] for each in found]
    else:
        pieces = list(said.get("tokens") or [])
        best = [list((each or {}).values()) for each in said.get("top_logprobs") or []]
    if not "".join(pieces).startswith(text):
        return Reply(text=text)  # tokens that are not the pieces of the text: no place is known
    ends = tuple(itertools.accumulate(map(len, pieces)))
    return Reply(text=text, ends=ends, margins=tuple(map(_margin, best)))


def _margin(best: Sequence[float]) -> float | None:
    """Between the best two of some log-probabilities."""
    first, second, *_ = [*sorted(map(float, best), reverse=True), math.nan, math.nan]
    return first - second if math.isfinite(first - second) else None
