"""Identity of an export: its version, its options and the sources that it was made from."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import cassandra_spec
from cassandra_spec.rtl.dma.registers import VERSION

VERSION_TEXT = ".".join(map(str, VERSION))
"""The version of every exported file: that of the register map, which ``VERSION`` reads."""

_ROOT = Path(__file__).resolve().parents[2]
_SOURCES = ("golden", "rtl", "synth")


@functools.cache
def sources_hash() -> str:
    """Return the SHA-256 of the Python sources that an export depends on, in hexadecimal."""
    digest = hashlib.sha256()
    for folder in _SOURCES:
        for path in sorted((_ROOT / folder).rglob("*.py")):
            content = path.read_bytes()
            digest.update(f"{path.relative_to(_ROOT).as_posix()} {len(content)}\0".encode())
            digest.update(content)
    return digest.hexdigest()


def generator() -> str:
    """Return name and version of the program that exports."""
    return f"cassandra-spec {cassandra_spec.__version__}"


def options_of(config: Any, style: Any) -> dict[str, Any]:
    """Return the options of an export by name; those of the engine inside under its name."""
    return {**dataclasses.asdict(config), **dataclasses.asdict(style)}


def comment(options: Mapping[str, Any]) -> str:
    """Return version, generator, sources and options as the lines of a Verilog comment."""
    lines = [
        f"// Version {VERSION_TEXT}, by {generator()}; SHA-256 of the sources:",
        f"// {sources_hash()}",
    ]
    flat = _flat(options)
    lines += [f"// {' '.join(flat[at : at + 6])}" for at in range(0, len(flat), 6)]
    return "\n".join(lines) + "\n"


def _flat(options: Mapping[str, Any]) -> list[str]:
    words: list[str] = []
    for name, value in options.items():
        if isinstance(value, Mapping):
            words += [f"{name}.{word}" for word in _flat(value)]
        else:
            text = "+".join(map(str, value)) if isinstance(value, tuple) else str(value)
            words.append(f"{name}={text}")
    return words
