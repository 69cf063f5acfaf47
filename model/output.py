"""Output files and directories that appear whole or not at all."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.golden.file import sync_directory


@contextmanager
def staged_directory(destination: Path) -> Iterator[Path]:
    """Yield a directory to fill; it gets its name when the block ends without an exception.

    ``destination`` must be absent or an empty directory, in a directory that exists. Whatever ends
    the block early leaves nothing behind; what a kill leaves, the next call for ``destination``
    removes.
    """
    with resumable_directory(destination, key="", fresh=True) as (output, _):
        yield output


@contextmanager
def resumable_directory(
    destination: Path, *, key: str, fresh: bool = False
) -> Iterator[tuple[Path, Path]]:
    """Yield a directory to fill, and one whose contents outlive an interrupt.

    The first gets the name of ``destination`` when the block ends without an exception, as in
    :func:`staged_directory`. The second has what an earlier block with the same ``key`` has put
    into it, unless ``fresh``. Both are in ``.NAME.partial`` beside the destination, which stays
    when the block is interrupted, killed, or ended by an ``OSError`` (a full disk) with something
    in the second. It is locked; two processes that write one destination are an error.
    """
    with _resumable(_place(destination), "", destination, key, fresh=fresh) as found:
        yield found


@contextmanager
def resumable_file(destination: Path, *, key: str) -> Iterator[tuple[Path, Path]]:
    """Write one file like :func:`resumable_directory`; an existing file is replaced."""
    place = file_place(destination)
    with _resumable(place, place.name, destination, key, fresh=False) as found:
        yield found


def file_place(destination: Path) -> Path:
    """Return the path of a file to write. Raises :class:`CassandraError` if it cannot be there."""
    if destination.is_dir():
        raise CassandraError(f"{destination} must be a file to write, not a directory")
    return _resolved(destination, "a file to write")


@contextmanager
def _resumable(
    place: Path, name: str, destination: Path, key: str, *, fresh: bool
) -> Iterator[tuple[Path, Path]]:
    """Yield temporary directories; at the end, move the output or ``name`` in it to ``place``."""
    folder = place.with_name(f".{place.name}.partial")
    folder.mkdir(exist_ok=True)
    with _locked(folder, destination):
        try:
            output, store = _prepare(folder, key, fresh)
            yield output / name, store
            _sync(output)
            (output / name).replace(place)
        except BaseException as error:
            _leave(folder, error)
            raise
        shutil.rmtree(folder)
    sync_directory(place.parent)


def _leave(folder: Path, error: BaseException) -> None:
    """Remove files that a resumed run cannot use, and name the others in the error."""
    if isinstance(error, CassandraError) or not any(folder.glob("store/*")):
        shutil.rmtree(folder, ignore_errors=True)
        return
    shutil.rmtree(folder / "output", ignore_errors=True)
    error.add_note(f"run it again to go on; what is done is in {folder}")


def _prepare(folder: Path, key: str, fresh: bool) -> tuple[Path, Path]:
    """Create the directories of :func:`resumable_directory`; remove files of another key."""
    output, store, stated = folder / "output", folder / "store", folder / "key"
    if fresh or not stated.is_file() or stated.read_bytes() != key.encode():
        stated.unlink(missing_ok=True)
        shutil.rmtree(store, ignore_errors=True)
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir()
    store.mkdir(exist_ok=True)
    write_file(stated, key.encode())
    return output, store


@contextmanager
def _locked(folder: Path, destination: Path) -> Iterator[None]:
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not folder.is_dir() or not os.path.samestat(os.fstat(handle), folder.stat()):
            raise BlockingIOError  # the other process has just finished
        yield
    except BlockingIOError as error:
        raise CassandraError(
            f"{destination} must be written by one process at a time, not by another one now"
        ) from error
    finally:
        os.close(handle)


def write_file(path: Path, data: bytes) -> None:
    """Write a file that gets its name only when it is completely on the disk."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_directory(path.parent)


def write_json(path: Path | None, body: object, *, indent: int | None = 1) -> None:
    """Write JSON as :func:`write_file` does; nothing where there is no path."""
    if path:
        write_file(path, (json.dumps(body, indent=indent) + "\n").encode())


def _sync(folder: Path) -> None:
    """Put all files of a directory on the disk, and the names of those in it."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
        elif path.is_dir():
            sync_directory(path)
    sync_directory(folder)


def _place(destination: Path) -> Path:
    """Return the path of a directory to write, which must be absent or empty."""
    place = _resolved(destination, "a new or empty directory")
    if place.is_dir():
        if any(place.iterdir()):
            raise CassandraError(f"{destination} must be a new or empty directory, not a full one")
    elif place.exists() or place.is_symlink():
        raise CassandraError(f"{destination} must be a new or empty directory, not a file")
    return place


def _resolved(destination: Path, expected: str) -> Path:
    """Return the path without links; its parent must exist."""
    try:
        place = destination.resolve()
    except (OSError, RuntimeError) as error:  # a loop of links, a name that is too long
        raise CassandraError(
            f"{destination} must be {expected}, not a path that leads nowhere"
        ) from error
    if not place.parent.is_dir():
        raise CassandraError(f"{place.parent} must be a directory to write {place.name} into")
    return place
