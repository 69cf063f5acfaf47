"""Coverage counting (``make coverage``).

While the variable COUNTS_DIR names a folder, every Verilated top counts lines, branches and
toggles, and writes its source, ``MODULE-HASH.v``, and one file of counts per run,
``MODULE-HASH.N.dat``, to that folder.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

COUNT_FLAGS = ("--coverage-line", "--coverage-toggle", "--coverage-max-width", "1000000")
"""Options of Verilator."""


def counts_folder() -> Path | None:
    """Return the folder for counts; None: counting is off."""
    name = os.environ.get("COUNTS_DIR")
    return Path(name).resolve() if name else None


def new_counts(source: Path) -> Path | None:
    """Return a new file for the counts of a run of this Verilog; None if counting is off."""
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
