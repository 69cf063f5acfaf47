"""Pass times measured by an earlier process, so that a new one plans well from the start.

A file holds the times of one model on one machine, beside the compiled library. It is only a hint:
a file that is damaged, out of range or written by others is ignored. ``CASSANDRA_HINTS=0`` turns
hints off.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cassandra_spec.native.build import cache_folder, is_own

VERSION = 1
SHORTEST, LONGEST = 1e-7, 1e3
"""Credible range of a pass time in seconds."""

_MAX_BYTES = 1 << 16
_MAX_ROWS = 16
_FITTED = 4


def processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Return the best available name of the processor; on Arm, numbers of its kinds of cores."""
    with contextlib.suppress(OSError):
        lines = [line.partition(":") for line in cpuinfo.read_text(errors="replace").splitlines()]
        for name in ("model name", "CPU part"):
            if values := {value.strip() for key, _, value in lines if key.strip() == name}:
                return " ".join(sorted(values))
    return platform.processor() or platform.machine()


def hint_path(*parts: object) -> Path | None:
    """Return the file of the times that depend on ``parts``; None if hints are off."""
    if os.environ.get("CASSANDRA_HINTS", "1") == "0":
        return None
    text = json.dumps([VERSION, processor(), *map(str, parts)])
    return cache_folder() / "hints" / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"


def read_hint(path: Path) -> dict[str, Any] | None:
    """Return the times in a file; None if it holds no credible ones."""
    try:
        if not is_own(path) or path.stat().st_size > _MAX_BYTES:
            return None
        body = json.loads(path.read_text(encoding="utf-8"))
        return body if all(_is_credible(body[name]) for name in ("draft", "verify")) else None
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def _is_credible(times: Mapping[str, Any]) -> bool:
    """Return True if all times, row counts and positions are in range."""
    growth, entries = times["growth"], times["times"]
    if not entries:
        return True
    fits = len(growth) == _FITTED and all(_within(each, 0.0, LONGEST) for each in growth)
    return (
        fits
        and growth[0] >= SHORTEST
        and len(entries) <= _MAX_ROWS
        and all(
            _within(rows, 1, _MAX_ROWS)
            and rows == int(rows)
            and _within(seen, 0, 2**31)
            and _within(seconds, SHORTEST, LONGEST)
            for rows, seen, seconds in entries
        )
    )


def _within(value: Any, low: float, high: float) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and low <= value <= high  # false for NaN


def write_hint(path: Path, times: Mapping[str, Any]) -> None:
    """Write times to a file atomically; do nothing if that is not possible."""
    partial = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
            partial = file.name
            json.dump(times, file)
        Path(partial).chmod(0o644)
        Path(partial).replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            Path(partial or path.with_suffix(".partial")).unlink(missing_ok=True)
