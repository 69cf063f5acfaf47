"""What clients may ask for: the bodies of requests, with their limits."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic_core import from_json

from cassandra_spec.serve.errors import ApiError

MOST_STOPS = 4
_LONGEST_STOP = 256  # characters
_MOST = 2**31 - 1

_NEUTRAL: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("n", "best_of"), (1,)),
    **dict.fromkeys(("logprobs", "echo", "store"), (False,)),
    **dict.fromkeys(("presence_penalty", "frequency_penalty", "top_logprobs"), (0,)),
    **dict.fromkeys(("tools", "functions"), ([],)),
    **dict.fromkeys(("tool_choice", "function_call"), ("none", "auto")),
    "parallel_tool_calls": (False, True),
    "logit_bias": ({},),
    "suffix": ("",),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "service_tier": ("auto", "default"),
    **dict.fromkeys(
        ("audio", "prediction", "reasoning_effort", "verbosity", "web_search_options"), ()
    ),
}
"""Parameters of the API that have no effect here, and their values that ask for none."""

_IGNORED = ("user", "metadata", "safety_identifier", "prompt_cache_key")
"""Parameters of the API that say nothing about the reply."""


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class StreamOptions(_Body):
    """What a stream has beside the text."""

    include_usage: bool = False
    include_obfuscation: bool = False  # accepted and not done
    include_trace: bool = False  # what made each token (docs/software/serving.md)


class Asked(_Body):
    """What both kinds of requests have."""

    kind: ClassVar[str]
    default_tokens: ClassVar[int] = _MOST  # of a reply, where the request does not say

    model: str
    max_tokens: Annotated[int | None, Field(ge=1, le=_MOST)] = None
    stop: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=_LONGEST_STOP)]],
        Field(max_length=MOST_STOPS),
    ] = []
    temperature: Annotated[float | None, Field(ge=0, le=2)] = None
    top_p: Annotated[float | None, Field(gt=0, le=1)] = None
    seed: Annotated[int | None, Field(ge=-(2**63), lt=2**63)] = None
    plain: bool = False  # nothing is drafted; no parameter of the API
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()

    @field_validator("stop", mode="before")
    @classmethod
    def _one_stop(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value

    @property
    def most_tokens(self) -> int | None:
        """Of the reply, if the request says so."""
        return self.max_tokens


class Message(_Body):
    """A message of a chat."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str
    name: str = ""  # accepted and not used: templates have no place for it

    @field_validator("content", mode="before")
    @classmethod
    def _joined(cls, value: Any) -> Any:
        """The texts of parts; other parts are refused."""
        if not isinstance(value, list):
            return value
        texts = []
        for part in value:
            text = part.get("text") if isinstance(part, dict) else None
            if not isinstance(text, str) or part.get("type") != "text":
                raise ValueError("must be a text, or parts of the type text")
            texts.append(text)
        return "".join(texts)


class ChatRequest(Asked):
    """The body of ``/v1/chat/completions``."""

    kind = "chat"

    messages: Annotated[list[Message], Field(min_length=1)]
    max_completion_tokens: Annotated[int | None, Field(ge=1, le=_MOST)] = None

    @field_validator("messages", mode="before")
    @classmethod
    def _without_nulls(cls, value: Any) -> Any:
        """Clients send their whole objects, with null for what is not there."""
        if not isinstance(value, list):
            return value
        return [_without_null(each) if isinstance(each, dict) else each for each in value]

    @property
    def most_tokens(self) -> int | None:
        """Of the reply, if the request says so."""
        return self.max_completion_tokens or self.max_tokens

    @property
    def messages_of_template(self) -> list[dict[str, str]]:
        """As chat templates take them."""
        roles = {"developer": "system"}
        return [
            {"role": roles.get(each.role, each.role), "content": each.content}
            for each in self.messages
        ]


class CompletionRequest(Asked):
    """The body of ``/v1/completions``: a text, or tokens."""

    kind = "text"
    default_tokens = 16  # as the API has it

    prompt: str | Annotated[list[Annotated[int, Field(ge=0, le=_MOST)]], Field(min_length=1)]

    @field_validator("prompt", mode="before")
    @classmethod
    def _only_one(cls, value: Any) -> Any:
        if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str | list):
            return value[0]
        return value


Kind = TypeVar("Kind", bound=Asked)


def read_request(kind: type[Kind], data: bytes) -> Kind:
    """A request from the body of one. Raises :class:`ApiError` with the parameter."""
    try:
        body = from_json(data, allow_inf_nan=False)
    except ValueError as error:
        raise ApiError(400, f"the body must be JSON: {error}", code="invalid_json") from error
    if not isinstance(body, dict):
        raise ApiError(400, f"the body must be a JSON object, not {type(body).__name__}")
    body = _without_null(body)
    for name, allowed in _NEUTRAL.items():
        if name in body and name not in kind.model_fields:
            _require_neutral(name, body.pop(name), allowed)
    for name in _IGNORED:
        body.pop(name, None)
    try:
        return kind.model_validate(body)
    except ValidationError as error:
        raise _refusal(error) from error


def _without_null(body: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if value is not None}


def _require_neutral(name: str, value: Any, allowed: tuple[Any, ...]) -> None:
    same = (one for one in allowed if isinstance(one, bool) == isinstance(value, bool))
    if value not in same:
        must = f"must be {' or '.join(map(repr, allowed))} here" if allowed else "must not be given"
        raise ApiError(
            400,
            f"{name} {must}: this server does not support it",
            param=name,
            code="unsupported_parameter",
        )


def _refusal(error: ValidationError) -> ApiError:
    """The first thing that is wrong."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    kinds = ("str", "list[constrained-int]")  # of a union: no part of the name
    where = ".".join(str(part) for part in first["loc"] if part not in kinds)
    message = first["msg"]
    param = str(first["loc"][0]) if first["loc"] else None
    if first["type"] == "extra_forbidden":
        return ApiError(
            400, f"{where} is not a parameter here", param=param, code="unknown_parameter"
        )
    if first["type"] == "missing":
        return ApiError(400, f"{where} must be given", param=param, code="missing_parameter")
    for begin, instead in (("Input should", f"{where} must"), ("Value error,", where)):
        message = message.replace(begin, instead)
    message = message if where in message else f"{where}: {message}"
    return ApiError(400, message, param=param, code="invalid_value")
