"""The Responses API: its requests as requests of a chat, and its replies, whole and in events.

A reply is a list of items: a message, and calls of functions, which follow it.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, field_validator

from cassandra_spec.serve.answers import server_event, without_calls
from cassandra_spec.serve.fields import without_null
from cassandra_spec.serve.messages import CalledFunction, Replayed, joined
from cassandra_spec.serve.requests import Body, ChatRequest
from cassandra_spec.serve.scheduler import Event
from cassandra_spec.serve.structured import (
    MAX_TOOLS,
    NO_PLAN,
    Choice,
    Format,
    Function,
    FunctionKind,
    FunctionName,
    JsonObject,
    JsonSchema,
    Plan,
    SchemaFormat,
    TextFormat,
)
from cassandra_spec.serve.tool_calls import Call, CallFormat, CallText

_MAX_INT = 2**31 - 1
_TEXT_PARTS = {
    **dict.fromkeys(("input_text", "output_text", "text"), "text"),
    "refusal": "refusal",
}
_Role = Literal["user", "assistant", "system", "developer"]


def _joined(value: Any) -> Any:
    """Join the texts of parts; other parts are refused."""
    return joined(value, _TEXT_PARTS) if isinstance(value, list) else value


_Parts = Annotated[str, BeforeValidator(_joined)]
_CallId = Annotated[str, Field(min_length=1)]


class _Item(Replayed):
    """An item of ``input``, which may come from an earlier reply."""


class _Message(_Item):
    type: Literal["message"]
    role: _Role
    content: _Parts


class _Call(_Item, CalledFunction):
    type: Literal["function_call"]
    call_id: _CallId


class _Result(_Item):
    type: Literal["function_call_output"]
    call_id: _CallId
    output: _Parts


class _StreamOptions(Body):
    include_obfuscation: bool = False  # accepted and not done


class _SchemaFormat(SchemaFormat):
    type: Literal["json_schema"]


class _Reasoning(Replayed):
    """Reasoning settings, which a chat template may read."""

    effort: str = ""


class _Text(Body):
    """The format of the reply."""

    verbosity: Literal["medium"] = "medium"

    format: Annotated[TextFormat | JsonObject | _SchemaFormat, Field(discriminator="type")] = (
        TextFormat(type="text")
    )

    @property
    def of_chat(self) -> Format:
        """Return the format in the form of a chat."""
        chosen = self.format
        if not isinstance(chosen, _SchemaFormat):
            return chosen
        fields = chosen.model_dump(by_alias=True, exclude={"type"})
        return JsonSchema(type="json_schema", json_schema=SchemaFormat(**fields))


class _Tool(Function, FunctionKind):
    """A function that the model may call."""

    @property
    def of_chat(self) -> dict[str, Any]:
        """Return the tool as a chat has it."""
        return {"type": self.type, "function": self.model_dump(exclude={"type"})}


class _NamedTool(FunctionName, FunctionKind):
    """The function that is to be called."""

    @property
    def of_chat(self) -> dict[str, Any]:
        """Return the choice as a chat has it."""
        return {"type": self.type, "function": {"name": self.name}}


class _Chat(ChatRequest):
    """The chat that asks for the same as a request of this API."""

    names: ClassVar[Mapping[str, str]] = {
        "messages": "input",
        "max_tokens": "max_output_tokens",
        "response_format": "text",
    }

    def name_of(self, field: str) -> str:
        """Return the name that this API has for a field."""
        return self.names.get(field, field)


def _messages(items: Sequence[_Message | _Call | _Result]) -> list[dict[str, Any]]:
    """Return the messages of a chat; calls belong to the message of the assistant before them."""
    messages = list[dict[str, Any]]()
    for item in items:
        if isinstance(item, _Message):
            messages.append({"role": item.role, "content": item.content})
        elif isinstance(item, _Result):
            result = {"tool_call_id": item.call_id, "content": item.output}
            messages.append({"role": "tool", **result})
        else:
            if not messages or messages[-1]["role"] != "assistant":
                messages.append({"role": "assistant", "content": ""})
            function = {"name": item.name, "arguments": item.arguments}
            messages[-1].setdefault("tool_calls", []).append(
                {"id": item.call_id, "function": function}
            )
    return messages


class ResponsesRequest(Body):
    """The body of ``/v1/responses``."""

    neutral: ClassVar[dict[str, tuple[Any, ...]]] = {
        "background": (False,),
        "include": ([], ["reasoning.encrypted_content"]),
        "top_logprobs": (0,),
        "truncation": ("disabled", "auto"),
        **dict.fromkeys(
            ("previous_response_id", "conversation", "prompt", "max_tool_calls", "moderation"), ()
        ),
    }

    model: str = ""
    input: Annotated[
        list[Annotated[_Message | _Call | _Result, Field(discriminator="type")]],
        Field(min_length=1),
    ]
    instructions: str | None = None
    max_output_tokens: Annotated[int | None, Field(ge=1, le=_MAX_INT)] = None
    temperature: Annotated[float | None, Field(ge=0, le=2)] = None
    top_p: Annotated[float | None, Field(gt=0, le=1)] = None
    text: _Text = _Text()
    reasoning: _Reasoning = _Reasoning()
    tools: Annotated[list[_Tool], Field(max_length=MAX_TOOLS)] = Field(default_factory=list)
    tool_choice: Choice | _NamedTool = "auto"
    parallel_tool_calls: bool = True
    metadata: dict[str, str] = Field(default_factory=dict)
    stream: bool = False
    stream_options: _StreamOptions = _StreamOptions()

    @field_validator("input", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        """Make a text one message of the user; drop earlier thoughts, which are not the model's."""
        items = [{"role": "user", "content": value}] if isinstance(value, str) else value
        if not isinstance(items, list):
            raise ValueError("must be a text or a list of items")
        return [
            {"type": "message", **without_null(each)} if isinstance(each, dict) else each
            for each in items
            if not (isinstance(each, dict) and each.get("type") == "reasoning")
        ]

    @field_validator("input")
    @classmethod
    def _answers_calls(cls, value: list[_Item]) -> list[_Item]:
        """Refuse results without a call before them: earlier responses are not stored."""
        calls = set[str]()
        for item in value:
            if isinstance(item, _Call):
                calls.add(item.call_id)
            elif isinstance(item, _Result) and item.call_id not in calls:
                raise ValueError(f"must have the function_call {item.call_id!r} before its output")
        return value

    @property
    def chat(self) -> ChatRequest:
        """Return the equivalent chat."""
        system = [] if self.instructions is None else [self.instructions]
        choice = self.tool_choice
        messages = [{"role": "system", "content": each} for each in system]
        return _Chat(
            model=self.model,
            messages=[*messages, *_messages(self.input)],  # type: ignore[list-item]
            max_completion_tokens=self.max_output_tokens,
            temperature=self.temperature,
            top_p=self.top_p,
            response_format=self.text.of_chat,
            tools=[tool.of_chat for tool in self.tools],  # type: ignore[misc]
            tool_choice=choice.of_chat if isinstance(choice, _NamedTool) else choice,  # type: ignore[arg-type]
            parallel_tool_calls=self.parallel_tool_calls,
            add_generation_prompt=True,
            reasoning_effort=self.reasoning.effort,
            stream=self.stream,
        )


class ResponseAnswer:
    """The reply to one request, like :class:`cassandra_spec.serve.answers.Answer` for chats.

    It may have ``calls`` of functions, written in this form.
    """

    def __init__(
        self,
        asked: ResponsesRequest,
        prompt_tokens: int,
        *,
        model: str = "",
        plan: Plan = NO_PLAN,
        calls: CallFormat | None = None,
    ) -> None:
        self._asked, self._model, self._prompt_tokens = asked, model, prompt_tokens
        self._plan = plan
        self._id, self._item = _new_id("resp"), _new_id("msg")
        self._created, self._sequence = int(time.time()), 0
        self._calls = CallText(calls, must_call=plan.must_call) if calls else None
        self._text = ""  # the message so far
        self._opened = False  # True once the stream has its beginning

    def whole(self, events: Sequence[Event]) -> dict[str, Any]:
        """Return the body of a reply that was not streamed."""
        last = self._read(events[0])
        return self._body(self._status(last), self._output(last), last)

    def first(self, *, usage: bool) -> bytes:
        """Return the first events of a stream."""
        body = self._body("in_progress", [], None)
        created = self._event("response.created", response=body)
        return created + self._event("response.in_progress", response=body)

    def piece(self, index: int, event: Event, *, usage: bool) -> bytes:
        """Return the stream's events for an event of a reply."""
        text = self._read(event).text
        if not text:
            return b""
        kind = "response.output_text.delta"
        return self._open() + self._event(kind, **self._place, delta=text, logprobs=[])

    def end(self, events: Sequence[Event], *, usage: bool) -> bytes:
        """Return the last events of a stream."""
        [last] = events
        status, output = self._status(last), self._output(last)
        parts = [self._end_item(at, item) for at, item in enumerate(output)]
        body = self._body(status, output, last)
        return b"".join(parts) + self._event(f"response.{status}", response=body)

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
        return f"event: {kind}\n".encode() + server_event(body)

    def _read(self, event: Event) -> Event:
        """Take the next event of the reply, and return it without the text of calls."""
        event = without_calls(event, self._calls) if self._calls else event
        self._text += event.text
        if event.finish_reason:
            self._plan.check(self._text, self._called, event.finish_reason)
        return event

    def _status(self, last: Event) -> str:
        return "incomplete" if last.finish_reason == "length" else "completed"

    @property
    def _called(self) -> list[Call]:
        return self._calls.calls if self._calls else []

    def _output(self, last: Event) -> list[dict[str, Any]]:
        """Return the items of the whole reply; a reply without calls has a message."""
        message = self._message(self._status(last), [_part(self._text)])
        calls = [_call_item(call) for call in self._called]
        return [message, *calls] if self._text or not calls else calls

    def _message(self, status: str, content: list[dict[str, Any]]) -> dict[str, Any]:
        kind = {"id": self._item, "type": "message", "role": "assistant"}
        return {**kind, "status": status, "content": content}

    def _open(self) -> bytes:
        """Return the events that begin the message, if the stream has not had them."""
        if self._opened:
            return b""
        self._opened = True
        item = self._message("in_progress", [])
        added = self._event("response.output_item.added", output_index=0, item=item)
        return added + self._event("response.content_part.added", **self._place, part=_part(""))

    def _end_item(self, at: int, item: dict[str, Any]) -> bytes:
        """Return the events that end an item of the output; a call comes whole."""
        data = self._end_message() if item["type"] == "message" else self._whole_call(at, item)
        return data + self._event("response.output_item.done", output_index=at, item=item)

    def _end_message(self) -> bytes:
        data, place = self._open(), self._place
        data += self._event("response.output_text.done", **place, text=self._text, logprobs=[])
        return data + self._event("response.content_part.done", **place, part=_part(self._text))

    def _whole_call(self, at: int, item: dict[str, Any]) -> bytes:
        place, arguments = {"item_id": item["id"], "output_index": at}, item["arguments"]
        empty = {**item, "status": "in_progress", "arguments": ""}
        kind = "response.function_call_arguments"
        return (
            self._event("response.output_item.added", output_index=at, item=empty)
            + self._event(f"{kind}.delta", **place, delta=arguments)
            + self._event(f"{kind}.done", **place, name=item["name"], arguments=arguments)
        )

    def _body(self, status: str, output: list[dict[str, Any]], last: Event | None) -> Any:
        request = self._asked
        return {
            "id": self._id,
            "object": "response",
            "created_at": self._created,
            "status": status,
            "error": None,
            "incomplete_details": (
                {"reason": "max_output_tokens"} if status == "incomplete" else None
            ),
            "instructions": request.instructions,
            "max_output_tokens": request.max_output_tokens,
            "metadata": request.metadata,
            "model": self._model,
            "output": output,
            "parallel_tool_calls": request.parallel_tool_calls,
            "previous_response_id": None,
            "store": False,
            "temperature": request.temperature,
            "text": request.text.model_dump(by_alias=True),
            **request.model_dump(include={"tools", "tool_choice"}),
            "top_p": request.top_p,
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


def _call_item(call: Call) -> dict[str, Any]:
    fields = {"call_id": call.id, "name": call.name, "arguments": call.arguments}
    return {"id": _new_id("fc"), "type": "function_call", "status": "completed", **fields}


def _new_id(kind: str) -> str:
    return f"{kind}_{uuid.uuid4().hex}"
