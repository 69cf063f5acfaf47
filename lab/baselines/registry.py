"""Draft methods by name: each file of the methods folder adds its own, and so may other packages.

A method is written ``NAME:option=value:option=value``; several values have commas between them.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import pkgutil
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from cassandra_spec.golden import CassandraError
from cassandra_spec.lab.baselines import methods
from cassandra_spec.lab.baselines.method import METHODS, Method

ENTRY_POINTS = "cassandra_draft_methods"
"""The group of entry points by which other packages name modules that define methods."""

_TRUTHS = {"yes": True, "no": False}


def known_methods() -> Mapping[str, type[Method]]:
    """Return all methods by name, those of the methods folder first.

    Raises :class:`CassandraError` that names a package whose methods cannot be imported.
    """
    for module in pkgutil.iter_modules(methods.__path__):
        importlib.import_module(f"{methods.__name__}.{module.name}")
    for point in importlib.metadata.entry_points(group=ENTRY_POINTS):
        try:
            point.load()
        except (ImportError, AttributeError) as error:
            raise CassandraError(
                f"draft method {point.name} cannot be imported: {error}"
            ) from error
    return types.MappingProxyType(METHODS)


def parse_method(text: str) -> Method:
    """Parse a method and its options; raises a one-line :class:`CassandraError`."""
    name, *options = text.split(":")
    known = known_methods()
    if name not in known:
        raise CassandraError(f"method must be one of {', '.join(sorted(known))}, not {name!r}")
    method = known[name]
    hints = get_type_hints(method)
    fields = {field.name: hints[field.name] for field in dataclasses.fields(method)}
    given: dict[str, Any] = {}
    for option in options:
        key, _, value = option.partition("=")
        if key not in fields:
            having = f"one of {', '.join(fields)}" if fields else "left out: it has none"
            raise CassandraError(f"option of {name} must be {having}, not {key!r}")
        given[key] = _read(key, fields[key], value)
    for field in dataclasses.fields(method):
        if field.name not in given and field.default is dataclasses.MISSING:
            raise CassandraError(f"option {field.name} of {name} must be given, and is not")
    return method(**given)


def _read(name: str, kind: Any, text: str) -> Any:
    """Parse the value of an option by its type."""
    if get_origin(kind) in (types.UnionType,):
        kind = next(each for each in get_args(kind) if each is not types.NoneType)
    if get_origin(kind) is Literal:
        return _one_of(name, {each: each for each in get_args(kind)}, text)
    if get_origin(kind) is tuple:
        return tuple(_read(name, get_args(kind)[0], part) for part in text.split(",") if part)
    if kind is bool:
        return _one_of(name, _TRUTHS, text)
    readers: dict[Any, tuple[Callable[[str], Any], str]] = {
        int: (int, "a whole number"),
        float: (float, "a number"),
        Path: (Path, "a path"),
        str: (str, "text"),
    }
    read, what = readers[kind]
    try:
        return read(text)
    except ValueError as error:
        raise CassandraError(f"{name} must be {what}, not {text!r}") from error


def _one_of(name: str, known: Mapping[str, Any], text: str) -> Any:
    if text not in known:
        raise CassandraError(f"{name} must be {' or '.join(map(str, known))}, not {text!r}")
    return known[text]
