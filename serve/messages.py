"""Define the messages of a chat, with the fields that clients send back from earlier replies."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, field_validator, model_validator

from cassandra_spec.serve.fields import without_null

_TEMPLATE_ROLES = {"developer": "system", "function": "tool"}
_TEXT_PARTS = {
    **dict.fromkeys(("text", "input_text", "output_text"), "text"),
    "refusal": "refusal",
}
"""Types of content parts, and their field with the text."""


class Replayed(BaseModel):
    """An object that may come from an earlier reply: unknown fields and nulls are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, value: Any) -> Any:
        """Drop nulls, which clients send for absent fields."""
        return without_null(value) if isinstance(value, dict) else value


class CalledFunction(Replayed):
    """The name and the arguments of a call; arguments are taken as they were written."""

    name: str
    arguments: str = "{}"

    @field_validator("arguments", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        """Write an object as JSON; no arguments are an empty object."""
        if isinstance(value, dict):
            return json.dumps(value, ensure_ascii=False)
        return "{}" if isinstance(value, str) and not value.strip() else value


class MessageCall(Replayed):
    """A call in an earlier message of the assistant."""

    id: str = ""
    type: Literal["function"] = "function"
    function: CalledFunction


class Message(Replayed):
    """A message of a chat."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    tool_calls: list[MessageCall] = []  # calls of the assistant
    content: str = ""
    reasoning_content: str = ""  # for templates that show it

    @model_validator(mode="before")
    @classmethod
    def _in_new_names(cls, value: Any) -> Any:
        """Read older and other names of fields: one ``function_call``, ``reasoning``, a refusal."""
        if not isinstance(value, dict):
            return value
        message = without_null(value)
        call = message.pop("function_call", None)
        if isinstance(call, dict) and not message.get("tool_calls"):
            message["tool_calls"] = [{"function": call}]
        if isinstance(message.get("reasoning"), str):
            message.setdefault("reasoning_content", message["reasoning"])
        if message.get("role") == "assistant":
            message.setdefault("content", message.get("refusal", ""))
        return message

    @model_validator(mode="after")
    def _has_content(self) -> Self:
        """Require content, except of the assistant and of results."""
        if "content" not in self.model_fields_set and self.role not in ("tool", "function"):
            raise ValueError("content must be given")
        if self.tool_calls and self.role != "assistant":
            raise ValueError(f"tool_calls must be the assistant's, not of the role {self.role}")
        return self

    @property
    def continuable(self) -> bool:
        """Return whether a reply can continue the message."""
        text = bool(self.content.strip()) and not self.tool_calls
        return self.role == "assistant" and text

    @field_validator("content", mode="before")
    @classmethod
    def _joined(cls, value: Any) -> Any:
        """Join the texts of parts; refuse other parts."""
        return joined(value, _TEXT_PARTS) if isinstance(value, list) else value

    @property
    def of_template(self) -> dict[str, Any]:
        """Return the message as chat templates have it; calls have ``name`` and ``arguments``."""
        fields = {"role": _TEMPLATE_ROLES.get(self.role, self.role), "content": self.content}
        if self.reasoning_content:
            fields["reasoning_content"] = self.reasoning_content
        calls = [call.function.model_dump() for call in self.tool_calls]
        return {**fields, **({"tool_calls": calls} if calls else {})}


def joined(parts: Sequence[Any], fields: dict[str, str]) -> str:
    """Join the texts of parts of a content. ``fields`` are the types, and their field with text.

    A part may be a text itself. Raises ``ValueError`` if a part has another type.
    """
    texts = []
    for part in parts:
        field = fields.get(str(part.get("type"))) if isinstance(part, dict) else None
        text = part.get(field) if field else part
        if not isinstance(text, str):
            raise ValueError(f"must be a text, or parts of the type {' or '.join(fields)}")
        texts.append(text)
    return "".join(texts)
