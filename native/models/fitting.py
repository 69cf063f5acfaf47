"""Fit a model into memory: in its fastest form, in planes, or with a target in the file."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

from cassandra_spec.golden import CassandraError
from cassandra_spec.golden.file import PackedFile
from cassandra_spec.native.forms import TRIED_PLANES, Target
from cassandra_spec.native.library import isa
from cassandra_spec.native.memory import available_memory, size_text
from cassandra_spec.native.models import streaming
from cassandra_spec.native.models.config import ModelConfig
from cassandra_spec.native.models.streaming import StreamedFile

SHARE = 0.9
"""Share of the memory that is left which a model takes without a limit of its own."""

_DEFAULTS: Mapping[str, Any] = {"target": "bf16", "draft": True, "slots": 1, "threads": None}


def fitted(
    config: ModelConfig, packed: PackedFile, limit: int | None, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the options, with planes or a stream added if the model exceeds the limit (bytes).

    Without one, the limit of a model that would not fit is what the system has left, which a line
    on standard error says.
    """
    if limit is not None:
        return _limited(config, packed, limit, options)
    room = _room(config, packed, options)
    if room is None:
        return dict(options)
    found = _limited(config, packed, room, options)
    held = "is read from the file" if found["stream"] else f"is held in {found['target']}"
    line = f"native: {packed.path.parent} must fit into {size_text(room)}, so its target {held}"
    print(line, file=sys.stderr, flush=True)
    return found


def _needs(
    config: ModelConfig, packed: PackedFile, options: Mapping[str, Any], target: Target
) -> streaming.Needs:
    """Return what a model needs with these options, but for the form of its target."""
    return streaming.needs(
        config,
        packed,
        target=target,
        draft=options["draft"],
        context=options.get("context") or min(config.positions, streaming.CONTEXT),
        slots=max(options["slots"], 1),  # concurrent sequences: these slots, or slot 0
        threads=options["threads"] or len(os.sched_getaffinity(0)),
    )


def _room(config: ModelConfig, packed: PackedFile, options: Mapping[str, Any]) -> int | None:
    """Return a limit by the memory that is left, if a model that can be smaller needs more."""
    chosen = {**_DEFAULTS, **options}
    available = available_memory()
    if available is None or chosen["target"] == "packed12":
        return None
    limit = int(SHARE * available)
    needed = _needs(config, packed, chosen, chosen["target"])
    return limit if needed.minimum <= limit < needed.whole else None


def _limited(
    config: ModelConfig, packed: PackedFile, limit: int, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the options, with planes or a stream added if the model exceeds the limit.

    Planes have the replies of ``bf16``, and take less memory.
    """
    chosen = {**_DEFAULTS, **options}
    chosen["context"] = chosen.get("context") or min(config.positions, streaming.CONTEXT)

    def needs(target: Target) -> streaming.Needs:
        return _needs(config, packed, chosen, target)

    stream = None
    narrower = chosen["target"] == "bf16" and isa() in TRIED_PLANES
    if narrower and needs("planes").whole <= limit < needs("bf16").whole:
        chosen["target"] = "planes"
    if needs(chosen["target"]).whole > limit:
        stream = StreamedFile(packed, config, needs("bf16"), limit)
    if stream and chosen["target"] == "packed12":
        raise CassandraError(
            "target must be bf16 or planes where it is read from the file (memory-limit), "
            "not packed12"
        )
    return {**chosen, "stream": stream}
