"""Define the bodies of requests, with their limits."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic_core import from_json

from cassandra_spec.drafting import Bias, Penalties, Processor, Turn
from cassandra_spec.serve.errors import ApiError, invalid
from cassandra_spec.serve.fields import (
    NEUTRAL,
    SAMPLERS,
    rename,
    require_neutral,
    take_formats,
    take_functions,
    take_ignored,
    take_neutral,
    take_samplers,
    without_null,
)
from cassandra_spec.serve.messages import Message
from cassandra_spec.serve.processors import RecentPenalty
from cassandra_spec.serve.structured import Format, TextFormat, ToolFields

MAX_STOPS = 64
_LONGEST_STOP = 256  # characters
MAX_CHOICES = 128
MAX_BIASED = 1024  # tokens
MAX_LOGPROBS = 20
_MAX_INT = 2**31 - 1


class Body(BaseModel):
    """An object of a request; unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)

    neutral: ClassVar[dict[str, tuple[Any, ...]]] = {}
    """Fields that are not implemented, and the values that ask for nothing."""

    _ignored: list[str] = PrivateAttr(default_factory=list)
    _samplers: dict[str, Any] = PrivateAttr(default_factory=dict)

    _old_calls: bool = PrivateAttr(default=False)

    @property
    def old_calls(self) -> bool:
        """True if the request has the deprecated ``functions``, and expects a ``function_call``."""
        return self._old_calls

    @property
    def ignored(self) -> Sequence[str]:
        """Names of fields of the request that cannot change the reply."""
        return self._ignored


_Limit = Annotated[
    int, Field(ge=0, le=_MAX_INT), BeforeValidator(lambda value: _MAX_INT if value == -1 else value)
]
"""A limit of tokens; -1: as many as fit."""
_Token = Annotated[str, Field(pattern=r"^[0-9]{1,10}$")]
_Bias = Annotated[float, Field(ge=-100, le=100)]


class StreamOptions(Body):
    """Options of a stream."""

    include_usage: bool = False
    include_obfuscation: bool = False  # this and the next are accepted, without effect
    continuous_usage_stats: bool = False
    include_trace: bool = False  # add the source of each token (docs/software/serving.md)


class GenerationRequest(Body):
    """Fields that chat and text completion requests share."""

    neutral = NEUTRAL
    kind: ClassVar[str]
    default_tokens: ClassVar[int] = _MAX_INT  # length limit of a reply without one in the request

    model: str = ""  # any name: there is one model
    max_tokens: Annotated[_Limit | None, Field(ge=1)] = None
    min_tokens: Annotated[int, Field(ge=0, le=_MAX_INT, validate_default=True)] = 0
    ignore_eos: bool = False
    stop: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=_LONGEST_STOP)]],
        Field(max_length=MAX_STOPS),
    ] = []
    stop_token_ids: Annotated[list[Annotated[int, Field(ge=0)]], Field(max_length=MAX_STOPS)] = []
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] = 1
    temperature: Annotated[float | None, Field(ge=0, le=2)] = None
    top_k: Annotated[int, Field(ge=-1, le=_MAX_INT)] = 0  # 0 and -1: all tokens
    top_p: Annotated[float | None, Field(gt=0, le=1)] = None
    min_p: Annotated[float | None, Field(ge=0, le=1)] = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] = 0.0
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] = 0.0
    repetition_penalty: Annotated[float, Field(gt=0, le=2)] = 1.0
    repeat_penalty: Annotated[float, Field(gt=0, le=2)] = 1.0  # counts repeat_last_n tokens
    repeat_last_n: Annotated[int, Field(ge=-1, le=_MAX_INT)] = 64  # -1: all
    logit_bias: Annotated[dict[_Token, _Bias], Field(max_length=MAX_BIASED)] = {}
    seed: Annotated[int | None, Field(ge=-(2**63), lt=2**63)] = None
    response_format: Format = TextFormat(type="text")
    plain: bool = False  # decode without drafts; not in OpenAI's API
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()

    @field_validator("*", mode="before")
    @classmethod
    def _whole_number(cls, value: Any) -> Any:
        """Read 40.0, which some clients write for 40."""
        return int(value) if isinstance(value, float) and value.is_integer() else value

    @field_validator("stop", mode="before")
    @classmethod
    def _some_stops(cls, value: Any) -> Any:
        """Make a single stop string a list; leave out empty ones, which ask for nothing."""
        stops = [value] if isinstance(value, str) else value
        return [each for each in stops if each != ""] if isinstance(stops, list) else stops

    @field_validator("logit_bias", mode="before")
    @classmethod
    def _pairs(cls, value: Any) -> Any:
        """Read llama-server's pairs of a token and a bias; its false forbids the token."""
        if not isinstance(value, list) or not all(map(_is_pair, value)):
            return value
        return {str(token): -100.0 if bias is False else bias for token, bias in value}

    @field_validator("seed")
    @classmethod
    def _any_seed(cls, value: int | None) -> int | None:
        """Read -1 as llama-server and vLLM do: another seed each time."""
        return None if value == -1 else value

    @property
    def token_limit(self) -> int | None:
        """The requested limit of the reply, if any."""
        return self.max_tokens

    def check_samplers(self, temperature: float) -> None:
        """Raise :class:`ApiError` if a field of a sampler would change the reply."""
        for name, value in self._samplers.items() if temperature else ():
            require_neutral(name, value, SAMPLERS[name])

    def name_of(self, field: str) -> str:
        """Return the name that the client gave a field."""
        return field

    @property
    def echoed(self) -> bool:
        """Return whether the prompt comes before the reply."""
        return False

    @property
    def processors(self) -> tuple[Processor, ...]:
        """Return what changes the target's logits."""
        penalties = Penalties(
            repetition=self.repetition_penalty,
            frequency=self.frequency_penalty,
            presence=self.presence_penalty,
        )
        bias = Bias(tuple(sorted((int(token), value) for token, value in self.logit_bias.items())))
        last = None if self.repeat_last_n < 0 else self.repeat_last_n
        recent = RecentPenalty(penalty=self.repeat_penalty, last=last)
        used: list[Processor] = [penalties] if penalties != Penalties() else []
        used += [recent] if self.repeat_penalty != 1 and last != 0 else []
        return tuple([*used, bias] if bias.values else used)


class ChatRequest(ToolFields, GenerationRequest):
    """The body of ``/v1/chat/completions``."""

    kind = "chat"

    messages: Annotated[list[Message], Field(min_length=1)]
    max_completion_tokens: Annotated[_Limit | None, Field(ge=1)] = None
    chat_template_kwargs: dict[str, Any] = {}  # variables of the chat template
    reasoning_effort: str = ""  # another one
    logprobs: bool = False
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_LOGPROBS)] = 0
    continue_final_message: bool | None = None  # None: if it is the assistant's
    add_generation_prompt: bool | None = None

    @field_validator("top_logprobs")
    @classmethod
    def _only_with_logprobs(cls, value: int, info: ValidationInfo) -> int:
        if value and not info.data.get("logprobs"):
            raise ValueError("must be left out without logprobs")
        return value

    @field_validator("continue_final_message")
    @classmethod
    def _only_of_the_assistant(cls, value: bool | None, info: ValidationInfo) -> bool | None:
        messages = info.data.get("messages") or []
        if value and messages and not messages[-1].continuable:
            raise ValueError("must be false unless the last message is some text of the assistant")
        return value

    @field_validator("add_generation_prompt")
    @classmethod
    def _not_both(cls, value: bool | None, info: ValidationInfo) -> bool | None:
        if value and info.data.get("continue_final_message"):
            raise ValueError("must be false with continue_final_message")
        return value

    @property
    def turn(self) -> Turn:
        """Return how the prompt ends; the reply may continue the assistant's last message."""
        goes_on, opens = self.continue_final_message, self.add_generation_prompt
        if goes_on or (goes_on is None and not opens and self.messages[-1].continuable):
            return "continue"
        return "none" if opens is False else "reply"

    @property
    def scored(self) -> int | None:
        """Return the number of top tokens per token, if log-probabilities are requested."""
        return self.top_logprobs if self.logprobs else None

    @property
    def token_limit(self) -> int | None:
        """The requested limit of the reply, if any."""
        return self.max_completion_tokens or self.max_tokens

    def name_of(self, field: str) -> str:
        """Return the name that the client gave a field; a limit of tokens has two."""
        newer = field == "max_tokens" and self.max_completion_tokens
        return "max_completion_tokens" if newer else field

    @property
    def messages_of_template(self) -> list[dict[str, Any]]:
        """Return the messages in the form of chat templates."""
        return [each.of_template for each in self.messages]

    @property
    def variables(self) -> dict[str, Any]:
        """Return the variables of the chat template."""
        effort = {"reasoning_effort": self.reasoning_effort} if self.reasoning_effort else {}
        return {**effort, **self.chat_template_kwargs}


class CompletionRequest(GenerationRequest):
    """The body of ``/v1/completions``: texts, or lists of tokens."""

    kind = "text"
    default_tokens = 16  # OpenAI's default

    prompt: Annotated[list[str | list[int]], Field(min_length=1, max_length=MAX_CHOICES)]
    echo: Annotated[bool, Field(validate_default=True)] = False
    logprobs: Annotated[int | None, Field(ge=0, le=MAX_LOGPROBS)] = None
    max_tokens: Annotated[_Limit | None, Field(ge=0)] = None

    @field_validator("prompt", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        """Make a single prompt a list; refuse empty prompts and anything but texts or tokens."""
        tokens = isinstance(value, list) and not any(isinstance(each, str | list) for each in value)
        prompts = [value] if isinstance(value, str) or tokens else value
        if not (isinstance(prompts, list) and all(map(_is_prompt, prompts))):
            raise ValueError("must be texts, or lists of tokens, at least one token each")
        return prompts

    @field_validator("echo")
    @classmethod
    def _says_something(cls, value: bool, info: ValidationInfo) -> bool:
        if not value and info.data.get("max_tokens") == 0:
            raise ValueError("must be true with max_tokens 0")
        return value

    @property
    def scored(self) -> int | None:
        """Return the number of top tokens per token, if log-probabilities are requested."""
        return self.logprobs

    @property
    def echoed(self) -> bool:
        """Return whether the prompt comes before the reply."""
        return self.echo


def _is_pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and type(value[0]) is int


def _is_prompt(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and all(type(token) is int and 0 <= token <= _MAX_INT for token in value)
    return isinstance(value, str)


Kind = TypeVar("Kind", bound=Body)

_OF_PYDANTIC = re.compile(r"^(Input|String|List|Dictionary) should")


def read_request(kind: type[Kind], data: bytes) -> Kind:
    """Parse the body of a request. Raises :class:`ApiError` that names the parameter."""
    try:
        body = from_json(data, allow_inf_nan=False)
    except ValueError as error:
        raise ApiError(400, f"the body must be JSON: {error}", code="invalid_json") from error
    if not isinstance(body, dict):
        raise ApiError(400, f"the body must be a JSON object, not {type(body).__name__}")
    body, known = without_null(body), kind.model_fields
    rename(body, known)
    if issubclass(kind, GenerationRequest):
        take_formats(body)
    old_calls = "tools" in known and take_functions(body)
    samplers = take_samplers(body)
    ignored = take_ignored(body, known)
    take_neutral(body, known, kind.neutral)
    try:
        made = kind.model_validate(body)
    except ValidationError as error:
        raise _refusal(error, body) from error
    made._ignored, made._samplers, made._old_calls = ignored, samplers, old_calls
    return made


def _names(place: Sequence[int | str], body: Any) -> Iterator[str]:
    """Yield the fields and the indices on the way to a place of ``body``.

    ``place`` comes from pydantic, which puts the kind of an object before the names of its fields.
    """
    for part in place:
        keys = range(len(body)) if isinstance(body, list) else body
        if isinstance(body, dict | list) and part in keys:
            yield str(part)
            body = body[part]  # type: ignore[index]


def _refusal(error: ValidationError, body: Any) -> ApiError:
    """Describe the first error of a body."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    missing = first["type"] == "missing"
    names = _names(first["loc"], body)
    param = str(first["loc"][0]) if first["loc"] else None
    where = ".".join([*names, str(first["loc"][-1])] if missing else names) or str(param)
    message = first["msg"]
    if first["type"] == "extra_forbidden":
        message = f"{where} is not a parameter here"
        return ApiError(400, message, param=param, code="unknown_parameter")
    if missing:
        return ApiError(400, f"{where} must be given", param=param, code="missing_parameter")
    if first["type"] == "union_tag_not_found":
        message = f"{where}.type must be given"
    message = _OF_PYDANTIC.sub(f"{where} must", message).replace("Value error,", where)
    message = message if where in message else f"{where}: {message}"
    return invalid(param, message)
