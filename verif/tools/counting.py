"""Runs that count lines, branches and changes of bits (``make coverage``).

While the variable COUNTS_DIR names a folder, every Verilated top counts, and leaves there its
source, ``MODULE-HASH.v``, and a file of counts for each run, ``MODULE-HASH.N.dat``.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

COUNT_FLAGS = ("--coverage-line", "--coverage-toggle", "--coverage-max-width", "1000000")
"""Options of Verilator."""


def counts_folder() -> Path | None:
    """Where counts go; None: nothing is counted."""
    name = os.environ.get("COUNTS_DIR")
    return Path(name).resolve() if name else None


def new_counts(source: Path) -> Path | None:
    """A new file for the counts of a run of this Verilog; None if nothing is counted."""
    folder = counts_folder()
    if folder is None:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    text = source.read_text()
    stem = f"{source.stem}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    (folder / f"{stem}.v").write_text(text)
    handle, name = tempfile.mkstemp(dir=folder, prefix=f"{stem}.", suffix=".dat")
    os.close(handle)
    return Path(name)
