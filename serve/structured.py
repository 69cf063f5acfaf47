"""Parse the formats of replies and the functions that a model may call."""

from __future__ import annotations

import contextlib
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic_core import from_json

from cassandra_spec.drafting.grammar import GrammarText
from cassandra_spec.golden import CassandraError
from cassandra_spec.serve.errors import ApiError
from cassandra_spec.serve.tool_calls import CallFormat, calls_grammar, schema_text

MAX_TOOLS = 128
Choice = Literal["none", "auto", "required"]

Name = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, value: Any) -> Any:
        """Drop nulls, which clients send for absent fields."""
        if not isinstance(value, dict):
            return value
        return {name: each for name, each in value.items() if each is not None}


class SchemaFormat(_Body):
    """``json_schema`` of a response format; ``strict`` has no effect, replies always match."""

    name: Name
    description: str = ""
    schema_: Annotated[dict[str, Any], Field(alias="schema")] = {}
    strict: bool = False


class TextFormat(_Body):
    """A response format without restrictions."""

    type: Literal["text"]


class JsonObject(_Body):
    """Any JSON object."""

    type: Literal["json_object"]


class JsonSchema(_Body):
    """JSON that matches a schema."""

    type: Literal["json_schema"]
    json_schema: SchemaFormat


class GrammarFormat(_Body):
    """Text that matches a grammar; not in OpenAI's API."""

    type: Literal["grammar"]
    syntax: Literal["regex", "lark", "gbnf"]
    definition: str


Format = Annotated[
    TextFormat | JsonObject | JsonSchema | GrammarFormat, Field(discriminator="type")
]


class FunctionKind(_Body):
    """An object whose type must be that of a function."""

    type: Literal["function"]


class Function(_Body):
    """A function that a model may call."""

    name: Name
    description: str = ""
    parameters: dict[str, Any] = {}
    strict: bool = False


class Tool(FunctionKind):
    """A tool, which must be a function."""

    function: Function


class FunctionName(_Body):
    """The name of a function."""

    name: Name


class NamedTool(FunctionKind):
    """The function that the reply must call."""

    function: FunctionName


class CalledFunction(_Body):
    """The name and the arguments of a call."""

    name: str
    arguments: str

    @field_validator("arguments")
    @classmethod
    def _is_json(cls, value: str) -> str:
        with contextlib.suppress(ValueError):  # of broken JSON, and of JSON that is too deep
            if isinstance(from_json(value, allow_inf_nan=False), dict):
                return value
        raise ValueError("must be a JSON object")


class MessageCall(_Body):
    """A call in an earlier message of the assistant."""

    id: str = ""
    type: Literal["function"] = "function"
    function: CalledFunction

    @property
    def plain(self) -> dict[str, Any]:
        """The call with its arguments as an object."""
        return {"name": self.function.name, "arguments": from_json(self.function.arguments)}


class ToolFields(BaseModel):
    """Fields of chats with tools."""

    tools: Annotated[list[Tool], Field(max_length=MAX_TOOLS)] = []
    tool_choice: Choice | NamedTool | None = None
    parallel_tool_calls: bool = True

    @property
    def callable(self) -> list[Tool]:
        """Tools that the reply may call. Raises :class:`ApiError` if ``tool_choice`` is unknown."""
        choice = self.tool_choice
        if isinstance(choice, NamedTool):
            name = choice.function.name
            found = [tool for tool in self.tools if tool.function.name == name]
            return found or _refuse_choice(f"must name one of the tools, not {name!r}")
        if choice == "required" and not self.tools:
            return _refuse_choice("must be given with tools, not 'required' without any")
        return [] if choice == "none" else self.tools

    @property
    def must_call(self) -> bool:
        """Return whether the reply must consist of calls."""
        return self.tool_choice not in (None, "none", "auto")


def _refuse_choice(must: str) -> Any:
    raise ApiError(400, f"tool_choice {must}", param="tool_choice", code="invalid_value")


def grammar_text(form: Format, tools: ToolFields | None, calls: CallFormat) -> GrammarText | None:
    """Return the grammar that a reply must match; None: any text.

    Raises :class:`CassandraError` if it is too long, or if a request has a grammar and tools.
    """
    if tools is None or not tools.callable:
        return _format_grammar(form)
    if isinstance(form, GrammarFormat) and not tools.must_call:
        raise CassandraError("response_format must not be a grammar where tools may be called")
    functions = [(tool.function.name, tool.function.parameters) for tool in tools.callable]
    more = {"text": not tools.must_call, "several": tools.parallel_tool_calls}
    text = calls_grammar(functions, calls, content=schema_of(form), **more)
    return GrammarText(syntax="lark", text=text)


def schema_of(form: Format) -> dict[str, Any] | None:
    """Return the JSON Schema of a format, if it is one."""
    if isinstance(form, JsonSchema):
        return form.json_schema.schema_
    return {"type": "object"} if isinstance(form, JsonObject) else None


def _format_grammar(
    form: Format,
) -> GrammarText | None:
    if isinstance(form, GrammarFormat):
        return GrammarText(syntax=form.syntax, text=form.definition)
    schema = schema_of(form)
    return None if schema is None else GrammarText(syntax="json_schema", text=schema_text(schema))
