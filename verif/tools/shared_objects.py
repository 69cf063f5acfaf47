"""Objects of Verilator's run-time library, compiled once for all suites.

They do not depend on the design, and they take longer to compile than a small design.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

KEPT = Path(__file__).resolve().parents[2] / "build" / "verilated"
"""Folder with the objects of each set of flags."""

_LIBRARY = "verilated*.o"  # objects of the design are Vtop*.o


@contextlib.contextmanager
def shared_objects(folder: Path, flags: Sequence[str], kept: Path = KEPT) -> Iterator[None]:
    """Provide the library of an earlier build while ``make`` runs in ``folder``.

    The library depends on ``flags``: options, version and compiler. After a successful build its
    objects are kept for later ones, unless the store has objects already.
    """
    store = kept / hashlib.sha256("\0".join(flags).encode()).hexdigest()[:16]
    for item in store.glob(_LIBRARY):
        if not (folder / item.name).exists():
            shutil.copy(item, folder)
    yield
    if not store.is_dir():
        _keep(sorted(folder.glob(_LIBRARY)), store)


def _keep(objects: Sequence[Path], store: Path) -> None:
    """Copy the objects into a temporary folder that becomes ``store``, unless it exists."""
    store.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(dir=store.parent))
    for item in objects:
        shutil.copy(item, aside)
    try:
        aside.rename(store)
    except OSError:
        shutil.rmtree(aside)
