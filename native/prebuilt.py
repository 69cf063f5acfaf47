"""Find the library that a wheel brings, which ``make wheel`` compiled beforehand.

It lies beside the sources with two digests: its own, and that of the sources that it was compiled
from. A library that does not match both is not loaded.
"""

from __future__ import annotations

import sys
from pathlib import Path

from cassandra_spec.native.build import (
    LIBRARY,
    SOURCES,
    build_portable,
    is_sealed,
    sources_digest,
)

FOLDER = SOURCES.parent / "prebuilt"
_DIGEST = "sources.sha256"


def find_prebuilt(folder: Path = FOLDER) -> Path | None:
    """Return the prebuilt library; None in a checkout, or if it does not match its digests.

    A library that does not match is named in one line on standard error.
    """
    if not folder.is_dir():
        return None
    if is_sealed(folder / LIBRARY) and _read(folder / _DIGEST) == sources_digest():
        return folder / LIBRARY
    line = f"native: {folder / LIBRARY} must match its sources, which are now compiled instead"
    print(line, file=sys.stderr, flush=True)
    return None


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8").strip()
    except (OSError, ValueError):
        return ""


def write_prebuilt(folder: Path) -> None:
    """Compile the library into an empty folder, with its digests.

    Raises :class:`NativeError`.
    """
    build_portable(folder / LIBRARY)
    (folder / _DIGEST).write_text(sources_digest(), "utf-8")
