"""Implement the Responses API on top of chats: its requests and its replies, whole and streamed."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator

from cassandra_spec.serve.requests import Body, ChatRequest, without_null
from cassandra_spec.serve.scheduler import Event
from cassandra_spec.serve.structured import (
    Format,
    JsonObject,
    JsonSchema,
    SchemaFormat,
    TextFormat,
)

_MAX_INT = 2**31 - 1
_TEXT_PARTS = ("input_text", "output_text", "text")
_Role = Literal["user", "assistant", "system", "developer"]


class _Item(Body):
    """An item of ``input``: a message of the client or of an earlier reply."""

    type: Literal["message"] = "message"
    role: _Role
    content: str
    id: str = ""  # of an earlier reply; accepted, without effect, like the next field
    status: Literal["in_progress", "completed", "incomplete"] = "completed"

    @field_validator("content", mode="before")
    @classmethod
    def _joined(cls, value: Any) -> Any:
        """Join the texts of parts; other parts are refused."""
        if not isinstance(value, list):
            return value
        if not all(map(_is_text, value)):
            raise ValueError(f"must be a text, or parts of the types {', '.join(_TEXT_PARTS)}")
        return "".join(part["text"] for part in value)


def _is_text(part: Any) -> bool:
    return (
        isinstance(part, dict)
        and part.get("type") in _TEXT_PARTS
        and isinstance(part.get("text"), str)
    )


class _StreamOptions(Body):
    include_obfuscation: bool = False  # accepted and not done


class _SchemaFormat(SchemaFormat):
    type: Literal["json_schema"]


class _Text(Body):
    """The format of the reply."""

    format: Annotated[TextFormat | JsonObject | _SchemaFormat, Field(discriminator="type")] = (
        TextFormat(type="text")
    )

    @property
    def of_chat(self) -> Format:
        """Return the format in the form of a chat."""
        found = self.format
        if not isinstance(found, _SchemaFormat):
            return found
        fields = found.model_dump(by_alias=True, exclude={"type"})
        return JsonSchema(type="json_schema", json_schema=SchemaFormat(**fields))


class ResponsesRequest(Body):
    """The body of ``/v1/responses``."""

    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        **dict.fromkeys(("background", "store"), (False,)),
        **dict.fromkeys(("tools", "include"), ([],)),
        "tool_choice": ("none", "auto"),
        "parallel_tool_calls": (False, True),
        "top_logprobs": (0,),
        "truncation": ("disabled",),
        "service_tier": ("auto", "default"),
        "reasoning": ({},),
        **dict.fromkeys(
            ("previous_response_id", "conversation", "prompt", "max_tool_calls", "moderation"), ()
        ),
    }

    model: str
    input: Annotated[list[_Item], Field(min_length=1)]
    instructions: str | None = None
    max_output_tokens: Annotated[int | None, Field(ge=1, le=_MAX_INT)] = None
    temperature: Annotated[float | None, Field(ge=0, le=2)] = None
    top_p: Annotated[float | None, Field(gt=0, le=1)] = None
    text: _Text = _Text()
    metadata: dict[str, str] = Field(default_factory=dict)
    stream: bool = False
    stream_options: _StreamOptions = _StreamOptions()

    @field_validator("input", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        """Make a text one message of the user; drop nulls from items."""
        items = [{"role": "user", "content": value}] if isinstance(value, str) else value
        if not isinstance(items, list):
            raise ValueError("must be a text or a list of messages")
        return [without_null(each) if isinstance(each, dict) else each for each in items]

    @property
    def chat(self) -> ChatRequest:
        """Return the equivalent chat."""
        turns = [{"role": item.role, "content": item.content} for item in self.input]
        system = [] if self.instructions is None else [self.instructions]
        return ChatRequest(
            model=self.model,
            messages=[*({"role": "system", "content": each} for each in system), *turns],  # type: ignore[list-item]
            max_completion_tokens=self.max_output_tokens,
            temperature=self.temperature,
            top_p=self.top_p,
            response_format=self.text.of_chat,
            add_generation_prompt=True,
            stream=self.stream,
        )


class ResponseAnswer:
    """The reply to one request, like :class:`cassandra_spec.serve.answers.Answer` for chats."""

    def __init__(self, asked: ResponsesRequest, prompt_tokens: int) -> None:
        self._asked, self._prompt_tokens = asked, prompt_tokens
        self._id, self._item = (f"{kind}_{uuid.uuid4().hex}" for kind in ("resp", "msg"))
        self._created, self._sequence = int(time.time()), 0
        self._text = ""  # text of the stream so far

    def whole(self, events: Sequence[Event]) -> dict[str, Any]:
        """Return the body of a reply that was not streamed."""
        [last] = events
        return self._body(self._status(last), [self._message(last.text, last)], last)

    def first(self, *, usage: bool) -> bytes:
        """Return the first events of a stream."""
        body = self._body("in_progress", [], None)
        return (
            self._event("response.created", response=body)
            + self._event("response.in_progress", response=body)
            + self._event(
                "response.output_item.added", output_index=0, item=self._message("", None)
            )
            + self._event("response.content_part.added", **self._place, part=_part(""))
        )

    def piece(self, index: int, event: Event, *, usage: bool) -> bytes:
        """Return the stream's events for an event of a reply."""
        if not event.text:
            return b""
        self._text += event.text
        kind = "response.output_text.delta"
        return self._event(kind, **self._place, delta=event.text, logprobs=[])

    def end(self, events: Sequence[Event], *, usage: bool) -> bytes:
        """Return the last events of a stream."""
        [last] = events
        item, status = self._message(self._text, last), self._status(last)
        part, place = _part(self._text), self._place
        return (
            self._event("response.output_text.done", **place, text=self._text, logprobs=[])
            + self._event("response.content_part.done", **place, part=part)
            + self._event("response.output_item.done", output_index=0, item=item)
            + self._event(f"response.{status}", response=self._body(status, [item], last))
        )

    def failed(self, body: dict[str, Any]) -> bytes:
        """Return the end of a stream whose reply failed."""
        error = {"code": "server_error", "message": body["error"]["message"]}
        response = {**self._body("failed", [], None), "error": error}
        return self._event("response.failed", response=response)

    @property
    def _place(self) -> dict[str, Any]:
        return {"item_id": self._item, "output_index": 0, "content_index": 0}

    def _event(self, kind: str, **fields: Any) -> bytes:
        """Return a server-sent event with its number."""
        body = {"type": kind, "sequence_number": self._sequence, **fields}
        self._sequence += 1
        text = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
        return f"event: {kind}\ndata: {text}\n\n".encode()

    def _status(self, last: Event) -> str:
        return "incomplete" if last.finish_reason == "length" else "completed"

    def _message(self, text: str, last: Event | None) -> dict[str, Any]:
        return {
            "id": self._item,
            "type": "message",
            "role": "assistant",
            "status": "in_progress" if last is None else self._status(last),
            "content": [] if last is None else [_part(text)],
        }

    def _body(self, status: str, output: list[dict[str, Any]], last: Event | None) -> Any:
        asked = self._asked
        return {
            "id": self._id,
            "object": "response",
            "created_at": self._created,
            "status": status,
            "error": None,
            "incomplete_details": (
                {"reason": "max_output_tokens"} if status == "incomplete" else None
            ),
            "instructions": asked.instructions,
            "max_output_tokens": asked.max_output_tokens,
            "metadata": asked.metadata,
            "model": asked.model,
            "output": output,
            "parallel_tool_calls": False,
            "previous_response_id": None,
            "store": False,
            "temperature": asked.temperature,
            "text": asked.text.model_dump(by_alias=True),
            "tool_choice": "auto",
            "tools": [],
            "top_p": asked.top_p,
            "truncation": "disabled",
            "usage": None if last is None else self._usage(last),
        }

    def _usage(self, last: Event) -> dict[str, Any]:
        return {
            "input_tokens": self._prompt_tokens,
            "input_tokens_details": {"cached_tokens": last.cached, "cache_write_tokens": 0},
            "output_tokens": last.tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": self._prompt_tokens + last.tokens,
        }


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
