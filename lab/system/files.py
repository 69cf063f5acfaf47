"""Reading TOML and JSON: every constant has its unit and its source beside it."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cassandra_spec.lab.system.errors import SystemModelError, check_number

HERE = Path(__file__).resolve().parent
"""The directory of the bundled files."""

Table = Mapping[str, Any]


def read_text(path: Path) -> str:
    """Read a UTF-8 text; an ``OSError`` or a :class:`SystemModelError` names the file."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise SystemModelError(f"{path} must be text in UTF-8") from None


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file; an ``OSError`` or a :class:`SystemModelError` names the file."""
    try:
        return tomllib.loads(read_text(path))
    except tomllib.TOMLDecodeError as error:
        raise SystemModelError(f"{path} must be TOML: {error}") from None


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object; an ``OSError`` or a :class:`SystemModelError` names the file."""
    try:
        content = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise SystemModelError(f"{path} must be JSON: {error}") from None
    if not isinstance(content, dict):
        raise SystemModelError(f"{path} must be a JSON object, not {type(content).__name__}")
    return content


def constant(where: str, name: str, entry: Any, unit: str, *, low: float = 0.0) -> float:
    """Return the value of ``name = { value = ..., unit = "...", source = "..." }``, at least
    ``low``.

    Raises:
        SystemModelError: the entry has another form or unit, no source, or is no such number.
    """
    if not isinstance(entry, Mapping) or set(entry) != {"value", "unit", "source"}:
        raise SystemModelError(f"{where}: {name} must have value, unit and source, not {entry!r}")
    if entry["unit"] != unit:
        raise SystemModelError(f"{where}: unit of {name} must be {unit!r}, not {entry['unit']!r}")
    if not isinstance(entry["source"], str) or not entry["source"].strip():
        raise SystemModelError(f"{where}: source of {name} must say where it is from")
    check_number(f"{where}: {name}", entry["value"], low=low, zero=True)
    return float(entry["value"])
