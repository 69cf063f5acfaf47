"""Cassandra: a format, a codec, gateware and a runtime for self-speculative decoding.

    import cassandra_spec as cassandra

    cassandra.pack("smollm2", "packed")
    with cassandra.open("packed") as model:
        print(model.reply("Why is the sky blue?"))

These names stay (docs/software/python.md); the packages, which are links to the top-level folders
of the checkout, may change.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cassandra_spec.api.gateware import GatewareOptions, export_gateware
    from cassandra_spec.api.opening import KeyValues
    from cassandra_spec.api.packing import PackFields, Work, pack
    from cassandra_spec.api.replies import Chat, Model, Reply, ReplyOptions, Stream
    from cassandra_spec.api.replies import open_model as open
    from cassandra_spec.drafting.settings import DraftCache, Levels
    from cassandra_spec.golden import (
        CassandraError,
        DecodeError,
        FileError,
        Format,
        Packed,
        decode_draft,
        decode_target,
        encode,
    )

__version__ = "0.3.0"

__all__ = [
    "CassandraError",
    "Chat",
    "DecodeError",
    "DraftCache",
    "FileError",
    "Format",
    "GatewareOptions",
    "KeyValues",
    "Levels",
    "Model",
    "PackFields",
    "Packed",
    "Reply",
    "ReplyOptions",
    "Stream",
    "Work",
    "__version__",
    "decode_draft",
    "decode_target",
    "encode",
    "export_gateware",
    "open",
    "pack",
]

_MODULES = {
    "api.gateware": ("GatewareOptions", "export_gateware"),
    "api.opening": ("KeyValues",),
    "api.packing": ("PackFields", "Work", "pack"),
    "api.replies": ("Chat", "Model", "Reply", "ReplyOptions", "Stream"),
    "drafting.settings": ("DraftCache", "Levels"),
    "golden": (
        *("CassandraError", "DecodeError", "FileError", "Format", "Packed"),
        *("decode_draft", "decode_target", "encode"),
    ),
}
_HOMES = {name: (module, name) for module, names in _MODULES.items() for name in names}
_HOMES["open"] = ("api.replies", "open_model")


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that the package itself imports at once."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, home = _HOMES[name]
    value = getattr(importlib.import_module(f"{__name__}.{module}"), home)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
