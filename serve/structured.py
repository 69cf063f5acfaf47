"""Structured output in requests: formats of replies, and functions that a model may call."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from cassandra_spec.drafting.grammar import GrammarText
from cassandra_spec.golden import CassandraError
from cassandra_spec.serve.errors import ApiError
from cassandra_spec.serve.tool_calls import CallFormat, calls_grammar, schema_text

MOST_TOOLS = 128

Name = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    @field_validator("*", mode="before")
    @classmethod
    def _null_is_absent(cls, value: Any, info: Any) -> Any:
        field = cls.model_fields[info.field_name]
        return field.default if value is None and not field.is_required() else value


class SchemaFormat(_Body):
    """``json_schema`` of a response format; ``strict`` changes nothing: it always is."""

    name: Name
    description: str = ""
    schema_: Annotated[dict[str, Any], Field(alias="schema")] = {}
    strict: bool = False


class TextFormat(_Body):
    """No format."""

    type: Literal["text"]


class JsonObject(_Body):
    """Any JSON object."""

    type: Literal["json_object"]


class JsonSchema(_Body):
    """JSON that a schema describes."""

    type: Literal["json_schema"]
    json_schema: SchemaFormat


class GrammarFormat(_Body):
    """Text that a grammar describes; no format of the API."""

    type: Literal["grammar"]
    syntax: Literal["regex", "lark", "gbnf"]
    definition: str


Format = Annotated[
    TextFormat | JsonObject | JsonSchema | GrammarFormat, Field(discriminator="type")
]


class Function(_Body):
    """A function that a model may call."""

    name: Name
    description: str = ""
    parameters: dict[str, Any] = {}
    strict: bool = False


class Tool(_Body):
    """A tool; only functions are known."""

    type: Literal["function"]
    function: Function


class FunctionName(_Body):
    """The name of a function."""

    name: Name


class NamedTool(_Body):
    """The function that is to be called."""

    type: Literal["function"]
    function: FunctionName


class ToolFields(BaseModel):
    """What chats have for tools."""

    tools: Annotated[list[Tool], Field(max_length=MOST_TOOLS)] = []
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    parallel_tool_calls: bool = True

    @property
    def callable(self) -> list[Tool]:
        """Tools that the reply may call. Raises :class:`ApiError` if the choice is none of them."""
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
        """Whether the reply consists of calls."""
        return self.tool_choice not in (None, "none", "auto")


def _refuse_choice(must: str) -> Any:
    raise ApiError(400, f"tool_choice {must}", param="tool_choice", code="invalid_value")


def grammar_text(
    form: TextFormat | JsonObject | JsonSchema | GrammarFormat, tools: ToolFields, calls: CallFormat
) -> GrammarText | None:
    """Return the grammar that a reply must match; None: any text.

    Raises :class:`ApiError` if it is too long, or both tools and a grammar are asked for.
    """
    try:
        if not tools.callable:
            return _format_grammar(form)
        content = schema_of(form)
        if isinstance(form, GrammarFormat) and not tools.must_call:
            raise CassandraError("response_format must not be a grammar where tools may be called")
        functions = [(tool.function.name, tool.function.parameters) for tool in tools.callable]
        text = calls_grammar(
            functions,
            calls,
            content=content,
            text=not tools.must_call,
            several=tools.parallel_tool_calls,
        )
        return GrammarText(syntax="lark", text=text)
    except CassandraError as error:
        raise ApiError(400, str(error), param="response_format", code="invalid_value") from error


def schema_of(form: TextFormat | JsonObject | JsonSchema | GrammarFormat) -> dict[str, Any] | None:
    """Return the JSON Schema of a format, if it is one."""
    if isinstance(form, JsonSchema):
        return form.json_schema.schema_
    return {"type": "object"} if isinstance(form, JsonObject) else None


def _format_grammar(
    form: TextFormat | JsonObject | JsonSchema | GrammarFormat,
) -> GrammarText | None:
    if isinstance(form, GrammarFormat):
        return GrammarText(syntax=form.syntax, text=form.definition)
    schema = schema_of(form)
    return None if schema is None else GrammarText(syntax="json_schema", text=schema_text(schema))
