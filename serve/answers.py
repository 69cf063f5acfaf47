"""Bodies of replies, whole and in pieces, as the API gives them."""

from __future__ import annotations

import json
import time
import uuid
from typing import Any

from cassandra_spec.serve.scheduler import Event

DONE = b"data: [DONE]\n\n"


class Answer:
    """The reply to one request, in the bodies of its kind: ``chat`` or ``text``."""

    def __init__(self, kind: str, model: str, fingerprint: str, prompt_tokens: int) -> None:
        self._chat = kind == "chat"
        self._head = {
            "id": f"{'chatcmpl' if self._chat else 'cmpl'}-{uuid.uuid4().hex}",
            "created": int(time.time()),
            "model": model,
            "system_fingerprint": fingerprint,
        }
        self._prompt_tokens = prompt_tokens

    def whole(self, text: str, last: Event) -> dict[str, Any]:
        """The body of a reply that was not streamed."""
        message = {"role": "assistant", "content": text, "refusal": None}
        content = {"message": message} if self._chat else {"text": text}
        kind = "chat.completion" if self._chat else "text_completion"
        return self._body(kind, [_choice(content, last.finish_reason)], usage=self._usage(last))

    def first(self, *, usage: bool) -> bytes:
        """What a stream begins with; ``usage`` says that it will have that."""
        return self._piece({"role": "assistant", "content": ""}, usage) if self._chat else b""

    def piece(self, event: Event, *, usage: bool) -> bytes:
        """What an event adds to a stream."""
        reason = event.finish_reason
        data = self._trace(event, usage)
        if not self._chat:
            return data + self._piece(event.text, usage, reason)
        data += self._piece({"content": event.text}, usage) if event.text else b""
        return data + self._piece({}, usage, reason) if reason else data

    def _trace(self, event: Event, usage: bool) -> bytes:
        """The round of an event, if it is traced: a body without choices, as that of the usage."""
        if event.trace is None:
            return b""
        more = {"usage": None} if usage else {}
        return _event(self._body(self._chunk, [], trace=event.trace, **more))

    def end(self, last: Event, *, usage: bool) -> bytes:
        """What a stream ends with."""
        body = self._body(self._chunk, [], usage=self._usage(last))
        return (_event(body) if usage else b"") + DONE

    @property
    def _chunk(self) -> str:
        return "chat.completion.chunk" if self._chat else "text_completion"

    def _piece(self, content: Any, usage: bool, reason: str = "") -> bytes:
        choice = _choice({"delta" if self._chat else "text": content}, reason)
        return _event(self._body(self._chunk, [choice], **({"usage": None} if usage else {})))

    def _body(self, kind: str, choices: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        return {**self._head, "object": kind, "choices": choices, **more}

    def _usage(self, last: Event) -> dict[str, Any]:
        return {
            "prompt_tokens": self._prompt_tokens,
            "completion_tokens": last.tokens,
            "total_tokens": self._prompt_tokens + last.tokens,
            "prompt_tokens_details": {"cached_tokens": last.cached},
        }


def error_event(body: dict[str, Any]) -> bytes:
    """The end of a stream whose reply has failed."""
    return _event(body)


def _choice(content: dict[str, Any], reason: str) -> dict[str, Any]:
    return {"index": 0, **content, "logprobs": None, "finish_reason": reason or None}


def _event(body: dict[str, Any]) -> bytes:
    """A server-sent event."""
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
    return f"data: {text}\n\n".encode()
