"""Schemas for grammars: what is removed, what is checked afterwards, what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cassandra_spec.golden import CassandraError
from cassandra_spec.text.grammar import (
    GrammarCompiler,
    GrammarText,
    locate,
    mismatch,
    prepare,
)
from tests.text.byte_tokens import END, byte_tokenizer, ids

TOKENIZER = byte_tokenizer()
COMPILER = GrammarCompiler(TOKENIZER, frozenset({END}))


def why_not(schema: Any) -> str:
    """Return why a grammar cannot be made of a schema, or an empty text."""
    try:
        COMPILER.compile(GrammarText(syntax="json_schema", text=json.dumps(schema)))
    except CassandraError as error:
        return str(error)
    return ""


def matches(schema: Any, value: Any) -> bool:
    """Return whether the grammar of a schema has a value."""
    text = GrammarText(syntax="json_schema", text=json.dumps(schema))
    state: Any = COMPILER.compile(text).begin([])
    for token in ids(TOKENIZER, json.dumps(value, sort_keys=True)):
        state = state and state.after(token)
    return bool(state and state.allowed()[END])


def test_notes_and_formats_without_a_definition_are_removed() -> None:
    schema = {
        "title": "t",
        "type": "object",
        "properties": {
            "title": {"type": "string", "format": "path", "description": "d"},
            "format": {"type": "string", "format": "date", "default": "x"},
        },
        "$defs": {"a": {"anyOf": [{"examples": [1], "type": "integer", "format": "int32"}]}},
        "items": [{"title": "t"}],
        "enum": [{"title": "kept"}],
    }
    prepared = prepare(schema)
    assert prepared.grammar == {
        "type": "object",
        "properties": {"title": {"type": "string"}, "format": {"type": "string", "format": "date"}},
        "$defs": {"a": {"anyOf": [{"type": "integer"}]}},
        "items": [{}],
        "enum": [{"title": "kept"}],
    }
    assert not prepared.checked
    for name in ("path", "binary", "password", "byte", "regex", "json-pointer", "int32"):
        assert not why_not(prepare({"type": "string", "format": name}).grammar)


OBJECT = {"type": "object", "properties": {"a": {}, "b": {}}}
ITEMS = {"type": "array", "items": {"type": "integer"}}
CHECKED: tuple[tuple[Any, list[Any], list[Any]], ...] = (
    ({**ITEMS, "uniqueItems": True}, [[], [1, 2]], [[1, 1], [1, 1.0], [2, 1, 2]]),
    ({"uniqueItems": True}, [[1, True], [0, False], ["1", 1], [{"a": 1}, {"a": 2}]], []),
    ({"uniqueItems": True}, [], [[{"a": 1, "b": [2]}, {"b": [2.0], "a": 1}]]),
    ({"not": {"const": 3}}, [4, "3"], [3, 3.0]),
    ({"not": {"type": ["string", "null"]}}, [1, []], ["", None]),
    ({**ITEMS, "contains": {"const": 3}}, [[3], [1, 3]], [[], [1]]),
    ({"contains": {"minimum": 3}, "minContains": 2, "maxContains": 3}, [[3, 4]], [[3], [3] * 4]),
    ({**OBJECT, "dependentRequired": {"a": ["b"]}}, [{}, {"b": 1}, {"a": 1, "b": 1}], [{"a": 1}]),
    ({**OBJECT, "dependencies": {"a": ["b"], "b": {"maxProperties": 1}}}, [{"b": 1}], [{"a": 1}]),
    ({"propertyNames": {"maxLength": 2}}, [{}, {"ab": 1}], [{"abc": 1}]),
    (
        {
            "if": {"properties": {"kind": {"const": "x"}}, "required": ["kind"]},
            "then": {"required": ["size"]},
            "else": {"not": {"required": ["size"]}},
        },
        [{"kind": "x", "size": 1}, {"kind": "y"}, {}],
        [{"kind": "x"}, {"kind": "y", "size": 1}, {"size": 1}],
    ),
    (
        {"oneOf": [{"type": "integer", "multipleOf": 2}, {"type": "integer", "multipleOf": 3}]},
        [2, 3, 4],
        [5, 6],
    ),
    (
        {
            "$defs": {
                "node": {"properties": {"next": {"$ref": "#/$defs/node"}}, "not": {"const": 0}}
            },
            "$ref": "#/$defs/node",
        },
        [{"next": {"next": 1}}],
        [{"next": {"next": 0}}],
    ),
)


@pytest.mark.parametrize(("schema", "good", "bad"), CHECKED)
def test_what_a_grammar_cannot_enforce_is_checked(
    schema: Any, good: list[Any], bad: list[Any]
) -> None:
    prepared = prepare(schema)
    assert prepared.checked
    assert not why_not(prepared.grammar)
    assert [value for value in good if mismatch(schema, json.dumps(value))] == []
    assert [value for value in bad if not mismatch(schema, json.dumps(value))] == []


def test_a_mismatch_names_its_place() -> None:
    tags = {"type": "array", "items": {"type": "object"}, "uniqueItems": True}
    schema = {"type": "object", "properties": {"all": {"items": {"properties": {"tags": tags}}}}}
    text = '{"all": [{"tags": []}, {"tags": [{"x": 1e999}, {"x": 10e998}]}]}'
    assert mismatch(schema, text) == "uniqueItems of all.1.tags"
    assert mismatch(schema, text.replace("10e998", "11e998")) == ""
    assert mismatch({"not": {"const": 1}}, "1") == "not"
    assert mismatch({}, "[" * 100_000).startswith("JSON (")


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ({"properties": {"a": {"not": {}}}}, "s.properties.a.not must leave some value"),
        ({"items": {"not": {"pattern": "a"}}}, "s.items.not must have no pattern"),
        ({"if": {"$ref": "#/$defs/x"}, "$defs": {"x": {"format": "uuid"}}}, "s.if must have no f"),
        ({"contains": {"anyOf": [{"patternProperties": {}}]}}, "s.contains must have no patternP"),
        ({"unevaluatedProperties": False}, "s.unevaluatedProperties must be left out"),
        ({"x-guidance": 3}, "s.x-guidance must be an object, not 3"),
    ],
)
def test_what_is_neither_enforced_nor_checked_is_refused(schema: Any, path: str) -> None:
    with pytest.raises(CassandraError) as caught:
        prepare(schema, "s")
    assert str(caught.value).startswith(path)


def test_the_part_that_does_not_compile_is_found() -> None:
    bad = {"type": "string", "pattern": "(?=a)b"}
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "array", "items": bad}},
    }
    path, why = locate(schema, why_not, "tool")
    assert path == "tool.properties.b.items"
    assert "look-ahead" in why


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "a", "ab", "b"]),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.sampled_from("ab"), below),
    max_leaves=6,
)
SCHEMAS: tuple[Any, ...] = (
    {"type": "integer", "minimum": -1, "exclusiveMaximum": 3},
    {"type": "integer", "multipleOf": 2},
    {"type": "string", "minLength": 1, "maxLength": 1},
    {"enum": [1, "a", None, [1], {"a": 1}]},
    {"const": [1, {"a": True}]},
    {"type": "array", "items": {"type": ["integer", "null"]}, "minItems": 1, "maxItems": 2},
    {"type": "array", "prefixItems": [{"type": "integer"}], "items": {"type": "boolean"}},
    {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
    {"type": "object", "properties": {"a": {}}, "additionalProperties": False},
    {"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": 1},
    {"anyOf": [{"type": "boolean"}, {"type": "object", "minProperties": 1}]},
    {"allOf": [{"type": "integer", "minimum": 0}, {"maximum": 1}]},
    {"$ref": "#/$defs/a", "$defs": {"a": {"type": "array", "items": {"$ref": "#/$defs/a"}}}},
)


@given(st.sampled_from(SCHEMAS), VALUES)
def test_a_grammar_and_the_check_agree(schema: Any, value: Any) -> None:
    assert matches(schema, value) == (not mismatch(schema, json.dumps(value)))
