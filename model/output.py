"""Output directories that appear whole or not at all."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from golden.errors import CassandraError
from golden.file import sync_directory

__all__ = ["staged_directory"]


@contextmanager
def staged_directory(destination: Path) -> Iterator[Path]:
    """Yield a directory to fill; it gets its name when the block ends without an exception.

    ``destination`` must be absent or an empty directory, in a directory that exists. Whatever ends
    the block early, an interrupt included, leaves nothing behind.
    """
    place = destination.resolve()
    _check_place(destination, place)
    temporary = place.with_name(f".{place.name}.{secrets.token_hex(4)}.partial")
    temporary.mkdir()
    try:
        yield temporary
        sync_directory(temporary)
        temporary.replace(place)
    except BaseException:
        try:
            shutil.rmtree(temporary, ignore_errors=True)
        finally:  # once more, if a second interrupt came in between
            shutil.rmtree(temporary, ignore_errors=True)
        raise
    sync_directory(place.parent)


def _check_place(destination: Path, place: Path) -> None:
    if not place.parent.is_dir():
        raise CassandraError(f"{place.parent} must be a directory to write {place.name} into")
    if place.is_dir():
        if any(place.iterdir()):
            raise CassandraError(f"{destination} must be a new or empty directory, not a full one")
    elif place.exists() or place.is_symlink():
        raise CassandraError(f"{destination} must be a new or empty directory, not a file")
