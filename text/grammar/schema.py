"""Prepare JSON Schemas for llguidance, and check JSON for what a grammar cannot enforce.

A grammar enforces most keywords while a reply is made. :func:`prepare` removes notes and formats
without a definition, and finds the keywords that only a whole value can be checked for.
:func:`mismatch` checks them, by definition of the keywords, without regular expressions.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal, DecimalException
from typing import Any

from cassandra_spec.golden import CassandraError
from cassandra_spec.text.grammar.compiler import JSON_STYLE

FORMATS = frozenset(
    ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri")
)
"""Formats of strings that a grammar enforces; JSON Schema makes all formats notes by default."""

_NOTES = frozenset(
    ("title", "description", "default", "example", "examples", "deprecated", "$comment")
)
_MAPS = ("properties", "patternProperties", "$defs", "definitions")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems", "items")
_ONES = ("items", "additionalProperties", "additionalItems")
_CHECKED = (
    *("uniqueItems", "not", "if", "then", "else", "contains", "minContains", "maxContains"),
    *("dependentRequired", "dependentSchemas", "dependencies", "propertyNames"),
)
_UNKNOWN = ("unevaluatedProperties", "unevaluatedItems", "$dynamicRef", "$recursiveRef")
_INEXACT = ("pattern", "patternProperties", *_UNKNOWN)
"""Keywords that :func:`mismatch` does not evaluate."""


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A schema for llguidance; ``checked``: a reply must also pass :func:`mismatch`."""

    grammar: Any
    checked: bool


def prepare(schema: Any, where: str = "schema") -> Prepared:
    """Prepare a schema whose name in errors is ``where``.

    Raises :class:`CassandraError` with the path of a keyword that can be neither enforced nor
    checked.
    """
    preparing = _Preparing(schema)
    grammar = preparing.walk(schema, where)
    if preparing.one_of and isinstance(grammar, dict):
        options = grammar.get("x-guidance", JSON_STYLE)
        grammar = {**grammar, "x-guidance": {"coerce_one_of": True, **options}}
    return Prepared(grammar, preparing.checked)


class _Preparing:
    """One schema on its way to a grammar."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self.checked = self.one_of = False

    def walk(self, schema: Any, path: str) -> Any:
        """Return the part of a schema that a grammar enforces."""
        if not isinstance(schema, dict):
            return schema
        return {
            name: self._value(name, value, f"{path}.{name}")
            for name, value in schema.items()
            if self._is_kept(name, value, path)
        }

    def _is_kept(self, name: str, value: Any, path: str) -> bool:
        if name == "x-guidance" and not isinstance(value, dict):
            raise CassandraError(f"{path}.{name} must be an object, not {value!r}")
        if name in _UNKNOWN:
            raise CassandraError(f"{path}.{name} must be left out: it is not supported")
        if name == "format":
            return value in FORMATS
        if name in _CHECKED:
            self._require_checkable(name, value, f"{path}.{name}")
            self.checked = self.checked or value is not False
        return name not in _NOTES and name not in _CHECKED

    def _value(self, name: str, value: Any, path: str) -> Any:
        if name in _MAPS and isinstance(value, dict):
            return {each: self.walk(one, f"{path}.{each}") for each, one in value.items()}
        if name in _LISTS and isinstance(value, list):
            if name == "oneOf" and not any(self._inexact(each) for each in value):
                self.one_of = self.checked = True
            return [self.walk(one, f"{path}.{at}") for at, one in enumerate(value)]
        return self.walk(value, path) if name in _ONES else value

    def _require_checkable(self, name: str, value: Any, path: str) -> None:
        if name == "not" and (value is True or value == {}):
            raise CassandraError(f"{path} must leave some value, and excludes all")
        if inexact := self._inexact(value):
            raise CassandraError(f"{path} must have no {inexact}, which is not supported there")

    def _inexact(self, value: Any, seen: tuple[str, ...] = ()) -> str:
        """Return a keyword within a schema that :func:`mismatch` does not evaluate."""
        if isinstance(value, list):
            return next((bad for each in value if (bad := self._inexact(each, seen))), "")
        if not isinstance(value, dict):
            return ""
        if bad := next((name for name in _INEXACT if name in value), ""):
            return bad
        if value.get("format") in FORMATS:
            return "format"
        parts = [each for name, each in value.items() if name not in ("const", "enum")]
        ref = value.get("$ref")
        if isinstance(ref, str) and ref not in seen:
            seen = (*seen, ref)
            parts.append(_target(self._root, ref))
        return next((bad for each in parts if (bad := self._inexact(each, seen))), "")


def _target(root: Any, ref: str) -> Any:
    """Return the schema at a JSON pointer into ``root``; True if it has no schema there."""
    schema = root
    for part in ref.removeprefix("#").split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(schema, list) and name.isdecimal() and int(name) < len(schema):
            schema = schema[int(name)]
        elif isinstance(schema, dict) and name in schema:
            schema = schema[name]
        else:
            return True
    return schema if ref.startswith("#") else True


# --- the part of a schema that cannot be compiled -------------------------------------------------

_MOST_TRIES = 64


def locate(schema: Any, fails: Callable[[Any], str], path: str) -> tuple[str, str]:
    """Return the path of the smallest part of a schema that ``fails`` has a reason against.

    ``fails`` returns the reason, or an empty text. At most 64 parts are tried.
    """
    tries = iter(range(_MOST_TRIES))
    shared = {name: schema[name] for name in ("$defs", "definitions") if name in schema}

    def smallest(part: Any, path: str, reason: str) -> tuple[str, str]:
        for below, child in _children(part):
            if next(tries, None) is None:
                break
            if why := fails({**shared, **child}):
                return smallest(child, f"{path}.{below}", why)
        return path, reason

    return smallest(schema, path, fails(schema))


def _children(schema: Any) -> Iterator[tuple[str, Any]]:
    for name, value in schema.items() if isinstance(schema, dict) else ():
        parts: dict[str, Any] = {}
        if name in _MAPS and isinstance(value, dict):
            parts = {f"{name}.{each}": one for each, one in value.items()}
        elif name in _LISTS and isinstance(value, list):
            parts = {f"{name}.{at}": one for at, one in enumerate(value)}
        elif name in _ONES:
            parts = {name: value}
        yield from ((path, one) for path, one in parts.items() if isinstance(one, dict))


# --- values ---------------------------------------------------------------------------------------

_NO, _MAYBE, _YES = 0, 1, 2  # verdicts; of all parts: min, of any: max
_DEPTH, _STEPS = 64, 100_000


def mismatch(schema: Any, text: str) -> str:
    """Return the place and the keyword that JSON text does not match, or an empty text.

    Keywords that are not evaluated, such as ``pattern``, never lead to a mismatch by themselves.
    """
    try:
        value = json.loads(text, parse_float=Decimal, parse_int=Decimal)
    except (ValueError, RecursionError, DecimalException) as error:
        return f"JSON ({error})"
    return _Checking(schema).place(schema, value, "")


class _Checking:
    """One value against the parts of one schema; a verdict is no, maybe or yes."""

    def __init__(self, root: Any) -> None:
        self._root, self._steps = root, 0

    def place(self, schema: Any, value: Any, path: str) -> str:
        """Return the keyword and path of the deepest mismatch, or an empty text."""
        self._steps = 0
        if self.verdict(schema, value) != _NO:
            return ""
        for child, part, below in _members(schema, value):
            if mismatch_below := self.place(part, child, f"{path}.{below}" if path else below):
                return mismatch_below
        keywords = schema if isinstance(schema, dict) else ()
        bad = (name for name in keywords if self._keyword(name, schema, value, 0) == _NO)
        keyword = next(bad, "false")
        return f"{keyword} of {path}" if path else keyword

    def verdict(self, schema: Any, value: Any, depth: int = 0) -> int:
        """Return whether a value matches a schema."""
        self._steps += 1
        if depth > _DEPTH or self._steps > _STEPS:
            return _MAYBE
        if not isinstance(schema, dict):
            return _NO if schema is False else _YES
        verdicts = (self._keyword(name, schema, value, depth + 1) for name in schema)
        return min(verdicts, default=_YES)

    def _keyword(self, name: str, schema: Mapping[str, Any], value: Any, depth: int) -> int:
        if name in _INEXACT or (name == "format" and schema[name] in FORMATS):
            return _MAYBE
        if rule := _SIMPLE.get(name):
            try:
                return _YES if rule(schema[name], value) else _NO
            except (TypeError, DecimalException):
                return _MAYBE
        rules = _NESTED.get(name)
        return min(rules(self, schema, value, depth), default=_YES) if rules else _YES

    def target(self, ref: Any) -> Any:
        return _target(self._root, ref) if isinstance(ref, str) else True


def _members(schema: Any, value: Any) -> Iterator[tuple[Any, Any, str]]:
    """Yield each member of an object or an array, its schema and its name."""
    if isinstance(schema, dict) and isinstance(value, dict):
        known = schema.get("properties", {})
        inexact = bool(schema.get("patternProperties"))
        rest = True if inexact else schema.get("additionalProperties", True)
        yield from ((one, known.get(name, rest), name) for name, one in value.items())
    elif isinstance(schema, dict) and isinstance(value, list):
        items = schema.get("items", True)
        first = schema.get("prefixItems", items if isinstance(items, list) else [])
        rest = schema.get("additionalItems", True) if isinstance(items, list) else items
        parts = [*first, *([rest] * max(len(value) - len(first), 0))]
        yield from (
            (one, part, str(at)) for at, (one, part) in enumerate(zip(value, parts, strict=False))
        )


def _is_number(value: Any) -> bool:
    return isinstance(value, Decimal | int | float) and not isinstance(value, bool)


def _frozen(value: Any) -> Any:
    """Return a hashable form; equal JSON values have equal ones."""
    if isinstance(value, dict):
        return frozenset((name, _frozen(each)) for name, each in value.items())
    if isinstance(value, list):
        return tuple(map(_frozen, value))
    return ("number", _decimal(value)) if _is_number(value) else (type(value), value)


def _decimal(value: Any) -> Decimal:
    return Decimal(str(value)) if isinstance(value, float) else Decimal(value)


_TYPES: Mapping[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "number": _is_number,
    "integer": lambda value: _is_number(value) and _decimal(value) % 1 == 0,
}


def _has_type(kind: Any, value: Any) -> bool:
    kinds = kind if isinstance(kind, list) else [kind]
    return any(_TYPES[each](value) for each in kinds if each in _TYPES)


def _number(holds: Callable[[Decimal, Decimal], bool]) -> Callable[[Any, Any], bool]:
    def rule(limit: Any, value: Any) -> bool:
        if not _is_number(limit):  # such as exclusiveMinimum in draft 4
            raise TypeError
        return not _is_number(value) or holds(_decimal(value), _decimal(limit))

    return rule


def _size(
    kind: type[str] | type[list[Any]] | type[dict[str, Any]], holds: Callable[[int, int], bool]
) -> Callable[[Any, Any], bool]:
    return lambda limit, value: not isinstance(value, kind) or holds(len(value), limit)


_SIMPLE: Mapping[str, Callable[[Any, Any], bool]] = {
    "type": _has_type,
    "const": lambda one, value: _frozen(one) == _frozen(value),
    "enum": lambda some, value: _frozen(value) in map(_frozen, some),
    "required": lambda names, value: not isinstance(value, dict) or set(names) <= value.keys(),
    "uniqueItems": lambda on, value: (
        not (on and isinstance(value, list)) or len(set(map(_frozen, value))) == len(value)
    ),
    "dependentRequired": lambda table, value: (
        not isinstance(value, dict)
        or all(set(names) <= value.keys() for name, names in table.items() if name in value)
    ),
    "minimum": _number(lambda value, limit: value >= limit),
    "maximum": _number(lambda value, limit: value <= limit),
    "exclusiveMinimum": _number(lambda value, limit: value > limit),
    "exclusiveMaximum": _number(lambda value, limit: value < limit),
    "multipleOf": _number(lambda value, step: value % step == 0),
    "minLength": _size(str, lambda size, limit: size >= limit),
    "maxLength": _size(str, lambda size, limit: size <= limit),
    "minItems": _size(list, lambda size, limit: size >= limit),
    "maxItems": _size(list, lambda size, limit: size <= limit),
    "minProperties": _size(dict, lambda size, limit: size >= limit),
    "maxProperties": _size(dict, lambda size, limit: size <= limit),
}
"""Keywords that depend on their own argument and the value."""

_Rule = Callable[[_Checking, Mapping[str, Any], Any, int], Iterator[int]]


def _of_members(unless: str = "") -> _Rule:
    def rule(check: _Checking, schema: Any, value: Any, depth: int) -> Iterator[int]:
        pairs = iter(()) if unless in schema else _members(schema, value)  # all are seen once
        return (check.verdict(part, one, depth) for one, part, _ in pairs)

    return rule


def _of_ref(check: _Checking, schema: Any, value: Any, depth: int) -> Iterator[int]:
    yield check.verdict(check.target(schema["$ref"]), value, depth)


def _of_all(check: _Checking, schema: Any, value: Any, depth: int) -> Iterator[int]:
    return (check.verdict(each, value, depth) for each in schema["allOf"])


def _of_any(check: _Checking, schema: Any, value: Any, depth: int) -> Iterator[int]:
    yield max(check.verdict(each, value, depth) for each in schema["anyOf"])


def _of_one(check: _Checking, schema: Any, value: Any, depth: int) -> Iterator[int]:
    verdicts = [check.verdict(each, value, depth) for each in schema["oneOf"]]
    yield _NO if verdicts.count(_YES) > 1 else _MAYBE if _MAYBE in verdicts else max(verdicts)


def _of_not(check: _Checking, schema: Any, value: Any, depth: int) -> Iterator[int]:
    yield _YES - check.verdict(schema["not"], value, depth)


def _of_if(check: _Checking, schema: Any, value: Any, depth: int) -> Iterator[int]:
    condition = check.verdict(schema["if"], value, depth)
    branch = schema.get("then", True) if condition == _YES else schema.get("else", True)
    yield _MAYBE if condition == _MAYBE else check.verdict(branch, value, depth)


def _of_contains(check: _Checking, schema: Any, value: Any, depth: int) -> Iterator[int]:
    if isinstance(value, list):
        verdicts = [check.verdict(schema["contains"], each, depth) for each in value]
        least, most = schema.get("minContains", 1), schema.get("maxContains", len(value))
        sure, possible = verdicts.count(_YES), len(verdicts) - verdicts.count(_NO)
        yield _NO if possible < least or sure > most else _YES


def _of_dependent(name: str) -> _Rule:
    def rule(check: _Checking, schema: Any, value: Any, depth: int) -> Iterator[int]:
        for key, part in schema[name].items() if isinstance(value, dict) else ():
            if key in value and isinstance(part, list):
                yield _YES if set(part) <= value.keys() else _NO
            elif key in value:
                yield check.verdict(part, value, depth)

    return rule


def _of_names(check: _Checking, schema: Any, value: Any, depth: int) -> Iterator[int]:
    for name in value if isinstance(value, dict) else ():
        yield check.verdict(schema["propertyNames"], name, depth)


_NESTED: Mapping[str, _Rule] = {
    "properties": _of_members(),
    "additionalProperties": _of_members(unless="properties"),
    "prefixItems": _of_members(),
    "items": _of_members(unless="prefixItems"),
    "$ref": _of_ref,
    "allOf": _of_all,
    "anyOf": _of_any,
    "oneOf": _of_one,
    "not": _of_not,
    "if": _of_if,
    "contains": _of_contains,
    "dependentSchemas": _of_dependent("dependentSchemas"),
    "dependencies": _of_dependent("dependencies"),
    "propertyNames": _of_names,
}
"""Keywords that depend on other schemas."""
