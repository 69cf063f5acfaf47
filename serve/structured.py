"""Parse the formats of replies and the functions that a model may call."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from cassandra_spec.golden import CassandraError
from cassandra_spec.serve.errors import ApiError, invalid
from cassandra_spec.serve.messages import Replayed
from cassandra_spec.serve.tool_calls import Call, CallFormat, calls_grammar, schema_text
from cassandra_spec.text.grammar import (
    GrammarText,
    Prepared,
    Syntax,
    locate,
    mismatch,
    prepare,
)

MAX_TOOLS = 128
Choice = Literal["none", "auto", "required"]

Name = Annotated[str, Field(min_length=1, max_length=256)]


class _Body(Replayed):
    model_config = ConfigDict(extra="forbid", strict=True)


class SchemaFormat(_Body):
    """``json_schema`` of a response format; ``strict`` has no effect, replies always match."""

    name: str = ""
    description: str = ""
    schema_: Annotated[dict[str, Any], Field(alias="schema", default_factory=dict)]
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


class FunctionKind(Replayed):
    """An object whose type must be that of a function."""

    type: Literal["function"]


class Function(Replayed):
    """A function that a model may call."""

    name: Name
    description: str = ""
    parameters: dict[str, Any] = Field(default_factory=dict)
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


class ToolFields(BaseModel):
    """Fields of chats with tools."""

    tools: Annotated[list[Tool], Field(max_length=MAX_TOOLS)] = []
    tool_choice: Choice | NamedTool | None = None
    parallel_tool_calls: bool = True

    @field_validator("tool_choice", mode="before")
    @classmethod
    def _in_one_name(cls, value: Any) -> Any:
        """Read ``any``, the name that other APIs have for ``required``."""
        return "required" if value == "any" else value

    @property
    def callable(self) -> list[Tool]:
        """Tools that the reply may call. Raises :class:`ApiError` if ``tool_choice`` is unknown."""
        choice = self.tool_choice
        if isinstance(choice, NamedTool):
            name = choice.function.name
            named = [tool for tool in self.tools if tool.function.name == name]
            return named or _refuse_choice(f"must name one of the tools, not {name!r}")
        if choice == "required" and not self.tools:
            return _refuse_choice("must be given with tools, not 'required' without any")
        return [] if choice == "none" else self.tools

    @property
    def must_call(self) -> bool:
        """Return whether the reply must consist of calls."""
        return self.tool_choice not in (None, "none", "auto")


def _refuse_choice(must: str) -> Any:
    raise invalid("tool_choice", f"tool_choice {must}")


# --- grammars and checks of replies -------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Plan:
    """Constraints of a reply: a grammar (None: any text), and schemas to check the reply against.

    ``calls`` has schemas by name of the function; ``content`` is of a reply without calls.
    """

    grammar: GrammarText | None = None
    content: Any = None
    calls: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    must_call: bool = False  # the reply consists of calls, so it has no content

    @property
    def checks(self) -> bool:
        """Return whether a reply must be checked at its end."""
        return self.content is not None or bool(self.calls)

    def check(self, content: str, calls: Sequence[Call], finish_reason: str) -> None:
        """Raise :class:`ApiError` if a reply does not match what its grammar cannot enforce.

        A reply that was cut is checked for its complete calls alone.
        """
        for call in calls:
            if call.name in self.calls:
                reason = mismatch(self.calls[call.name], call.arguments)
                _require_match(reason, f"the call of {call.name}", "tools")
        if self.content is not None and not calls and finish_reason != "length":
            _require_match(mismatch(self.content, content), "the reply", "response_format")


NO_PLAN = Plan()


def _require_match(found: str, what: str, param: str) -> None:
    if found:
        message = f"{what} must match its schema, and does not: {found}"
        raise ApiError(422, message, param=param, code="reply_mismatch")


def plan_reply(form: Format, tools: ToolFields | None, calls: CallFormat, name: str) -> Plan:
    """Return what a reply must match; ``name`` is the request's field of the format.

    Raises :class:`ApiError` for a part of a schema that is not supported, and if a request has a
    grammar and tools.
    """
    schema = schema_of(form)
    content = None if schema is None else _prepared(schema, name, f"{name}.schema")
    checked = schema if content and content.checked else None
    if tools is None or not tools.callable:
        return Plan(_format_grammar(form, content), checked)
    if isinstance(form, GrammarFormat) and not tools.must_call:
        raise invalid(name, f"{name} must not be a grammar where tools may be called")
    functions = [(each.function.name, each.function.parameters) for each in tools.callable]
    prepared = [
        (function, _prepared(schema, "tools", f"tools: {function}: parameters"))
        for function, schema in functions
    ]
    text = calls_grammar(
        [(function, each.grammar) for function, each in prepared],
        calls,
        content=None if content is None else content.grammar,
        text=not tools.must_call,
        several=tools.parallel_tool_calls,
    )
    schemas = {each: schema for each, schema in functions if dict(prepared)[each].checked}
    grammar = _grammar("lark", text, "tools")
    return Plan(grammar, checked, schemas, must_call=tools.must_call)


def why_unfit(
    form: Format, tools: ToolFields | None, fails: Callable[[Any], str]
) -> tuple[str, str] | None:
    """Return the path of a part of a schema that does not compile, and the reason.

    ``fails`` compiles a schema, and returns the reason or an empty text. None: all compile.
    """
    schemas = (
        []
        if tools is None
        else [(f"{t.function.name}: parameters", t.function.parameters) for t in tools.callable]
    )
    if (schema := schema_of(form)) is not None:
        schemas.append(("schema", schema))
    for path, schema in schemas:
        prepared = prepare(schema).grammar
        if fails(prepared):
            return locate(prepared, fails, path)
    return None


def _prepared(schema: Any, param: str, path: str) -> Prepared:
    try:
        return prepare(schema, path)
    except (CassandraError, RecursionError) as error:
        raise invalid(param, str(error)) from error


def _grammar(syntax: Syntax, text: str, param: str) -> GrammarText:
    try:
        return GrammarText(syntax=syntax, text=text)
    except CassandraError as error:
        raise invalid(param, f"{param}: {error}") from error


def schema_of(form: Format) -> dict[str, Any] | None:
    """Return the JSON Schema of a format, if it is one."""
    if isinstance(form, JsonSchema):
        return form.json_schema.schema_
    return {"type": "object"} if isinstance(form, JsonObject) else None


def _format_grammar(form: Format, content: Prepared | None) -> GrammarText | None:
    if isinstance(form, GrammarFormat):
        return _grammar(form.syntax, form.definition, "response_format")
    if content is None:
        return None
    return _grammar("json_schema", schema_text(content.grammar), "response_format")
