"""Build the response bodies of the API, whole and streamed."""

from __future__ import annotations

import dataclasses
import json
import time
import uuid
from collections.abc import Sequence
from typing import Any

from cassandra_spec.serve.logprobs import TokenTexts
from cassandra_spec.serve.scheduler import Event
from cassandra_spec.serve.structured import NO_PLAN, Plan
from cassandra_spec.serve.tool_calls import CallFormat, CallText

DONE = b"data: [DONE]\n\n"


class Answer:
    """Builds the response bodies of one request of a ``chat`` or ``text`` completion.

    ``prompts`` are the tokens of each prompt; each prompt has ``n`` replies. ``echoes`` are texts
    before the replies of each prompt; ``texts`` decodes scored tokens. ``calls`` is the form of
    function calls in replies, if any; ``plan`` is checked at the end of each reply. With
    ``old_calls`` a call is a ``function_call``.
    """

    def __init__(
        self,
        kind: str,
        model: str,
        fingerprint: str,
        prompts: Sequence[Sequence[int]],
        *,
        n: int = 1,
        echoes: Sequence[str] = (),
        texts: TokenTexts | None = None,
        calls: CallFormat | None = None,
        plan: Plan = NO_PLAN,
        old_calls: bool = False,
    ) -> None:
        self._chat = kind == "chat"
        self._head = {
            "id": f"{'chatcmpl' if self._chat else 'cmpl'}-{uuid.uuid4().hex}",
            "created": int(time.time()),
            "model": model,
            "system_fingerprint": fingerprint,
        }
        self._prompt_tokens, self._n = sum(map(len, prompts)), n
        self._echoes = {at: echoes[at // n] for at in range(n * len(echoes))}  # not sent yet
        self._replies = n * len(prompts)
        self._texts = texts
        self._calls = [
            CallText(form, must_call=plan.must_call)
            for form in filter(None, [calls] * self._replies)
        ]
        self._old_calls = old_calls
        self._plan, self._contents = plan, [""] * self._replies
        self._places = [
            texts.places(self._echoes.get(at, ""), len(prompts[at // n]) if echoes else 0)
            for at in range(self._replies)
            if texts and not self._chat
        ]

    def whole(self, events: Sequence[Event]) -> dict[str, Any]:
        """Return the response body of replies that were not streamed."""
        choices = []
        for index, event in enumerate(map(self._without_calls, range(len(events)), events)):
            text = self._echoes.get(index, "") + event.text
            message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
            if calls := self._bodies(index):
                message |= {**calls, "content": text or None}
            content = {"message": message} if self._chat else {"text": text}
            scores = self._scores(index, event)
            choices.append(_choice(index, content, event.finish_reason, scores))
        kind = "chat.completion" if self._chat else "text_completion"
        return self._body(kind, choices, usage=self._usage(events))

    def first(self, *, usage: bool) -> bytes:
        """Return the first event of a stream; ``usage``: the stream will end with token counts."""
        begin = {"role": "assistant", "content": ""}
        replies = range(self._replies * self._chat)
        return b"".join(self._piece(index, begin, usage) for index in replies)

    def piece(self, index: int, event: Event, *, usage: bool) -> bytes:
        """Return the stream's event for an event of a reply."""
        event = self._without_calls(index, event)
        reason, scores = event.finish_reason, self._scores(index, event)
        data = self._trace(event, usage)
        if not self._chat:
            text = self._echoes.pop(index, "") + event.text
            return data + self._piece(index, text, usage, reason, scores)
        if event.text or event.scores:
            data += self._piece(index, {"content": event.text}, usage, scores=scores)
        if calls := self._bodies(index, numbered=True):
            data += self._piece(index, calls, usage)
        return data + self._piece(index, {}, usage, reason) if reason else data

    def _without_calls(self, index: int, event: Event) -> Event:
        """Return an event without the text of calls. Raises :class:`ApiError` after a bad reply."""
        calls = self._calls[index] if self._calls else None
        event = without_calls(event, calls) if calls else event
        if self._old_calls and event.finish_reason == "tool_calls":
            event = dataclasses.replace(event, finish_reason="function_call")
        if self._plan.checks:
            self._contents[index] += event.text
            if event.finish_reason:
                written = calls.calls if calls else ()
                self._plan.check(self._contents[index], written, event.finish_reason)
        return event

    def _bodies(self, index: int, *, numbered: bool = False) -> dict[str, Any]:
        """Return the fields with the calls of a reply that has ended, if it has some."""
        bodies = [call.body for call in self._calls[index].calls] if self._calls else []
        if bodies and self._old_calls:
            return {"function_call": bodies[0]["function"]}
        calls = [{"index": at, **call} if numbered else call for at, call in enumerate(bodies)]
        return {"tool_calls": calls} if calls else {}

    def _scores(self, index: int, event: Event) -> dict[str, Any] | None:
        if self._texts is None:
            return None
        if self._chat:
            return self._texts.chat(event.scores)
        places = self._places[index].add(event)
        return {**self._texts.completion(event.scores), "text_offset": places}

    def _trace(self, event: Event, usage: bool) -> bytes:
        """Return the round of a traced event: a body without choices, like that of the usage."""
        if event.trace is None:
            return b""
        more = {"usage": None} if usage else {}
        return server_event(self._body(self._chunk, [], trace=event.trace, **more))

    def end(self, events: Sequence[Event], *, usage: bool) -> bytes:
        """Return the end of a stream, from the last event of each reply."""
        body = self._body(self._chunk, [], usage=self._usage(events))
        return (server_event(body) if usage else b"") + DONE

    def failed(self, body: dict[str, Any]) -> bytes:
        """Return the end of a stream whose reply failed."""
        return server_event(body)

    @property
    def _chunk(self) -> str:
        return "chat.completion.chunk" if self._chat else "text_completion"

    def _piece(
        self,
        index: int,
        content: Any,
        usage: bool,
        reason: str = "",
        scores: dict[str, Any] | None = None,
    ) -> bytes:
        choice = _choice(index, {"delta" if self._chat else "text": content}, reason, scores)
        return server_event(self._body(self._chunk, [choice], **({"usage": None} if usage else {})))

    def _body(self, kind: str, choices: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        return {**self._head, "object": kind, "choices": choices, **more}

    def _usage(self, events: Sequence[Event]) -> dict[str, Any]:
        tokens = sum(each.tokens for each in events)
        cached = sum(each.cached for each in events[:: self._n])  # prompts count once
        return {
            "prompt_tokens": self._prompt_tokens,
            "completion_tokens": tokens,
            "total_tokens": self._prompt_tokens + tokens,
            "prompt_tokens_details": {"cached_tokens": cached},
        }


def without_calls(event: Event, calls: CallText) -> Event:
    """Return the event of a reply without the text of its calls, which ``calls`` takes."""
    reason = event.finish_reason
    content = calls.add(event.text, last=bool(reason))
    reason = "tool_calls" if calls.calls and reason == "stop" else reason
    return dataclasses.replace(event, text=content, finish_reason=reason)


def _choice(
    index: int, content: dict[str, Any], reason: str, scores: dict[str, Any] | None
) -> dict[str, Any]:
    return {"index": index, **content, "logprobs": scores, "finish_reason": reason or None}


def server_event(body: dict[str, Any]) -> bytes:
    """Format a server-sent event."""
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
    return f"data: {text}\n\n".encode()
