"""Weights in the engine's forms, kept in a file so that a model opens without encoding them again.

The file is safetensors with a checksum of every array. It is named by the digest of the packed
model, and says what else the forms depend on. A file that says something else, does not match its
checksums, or belongs to others is made again. It is read, not mapped: the engine wants huge pages,
and of a mapped file that shrinks, the next read is a signal.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cassandra_spec.golden import FileError
from cassandra_spec.golden.file import PackedFile, RawTensor, Writer
from cassandra_spec.golden.packed import Bytes
from cassandra_spec.native.build import cache_folder, is_own, tell

LEAST = 64 << 20
"""Bytes of weights from which they are kept: fewer are encoded fast enough."""

OF_FREE = 10
"""A file takes at most one part in this many of the free disk space."""


def weights_cache() -> Path | None:
    """Return the folder of kept weights; None if ``CASSANDRA_WEIGHTS`` is 0."""
    return None if os.environ.get("CASSANDRA_WEIGHTS") == "0" else cache_folder() / "weights"


@dataclass(frozen=True, kw_only=True)
class KeptWeights:
    """A file of kept weights, and what their forms depend on (``about``)."""

    path: Path
    about: Mapping[str, Any]

    def find(self) -> PackedFile | None:
        """Return the file if it exists, has these forms, and is writable by this user alone.

        A file with drafts has what a model without them needs.
        """
        try:
            if not all(is_own(each) for each in (self.path.parent, self.path)):
                return None
            file = PackedFile(self.path)
        except (OSError, FileError):
            return None
        return file if file.about in (self.about, {**self.about, "draft": True}) else None

    def write(self, arrays: Mapping[str, Bytes]) -> bool:
        """Write the weights; return False if they are few, or the disk has no room for them."""
        size = sum(array.size for array in arrays.values())
        folder = self.path.parent
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            if size < LEAST or OF_FREE * size > shutil.disk_usage(folder).free:
                return False
            for left in folder.glob(f".{self.path.name}.*.partial"):
                left.unlink()  # of a process that was killed
            self._write(arrays)
        except OSError:
            return False
        return True

    def _write(self, arrays: Mapping[str, Bytes]) -> None:
        plan = {
            name: RawTensor(dtype="U8", shape=(array.size,), nbytes=array.size)
            for name, array in arrays.items()
        }
        with Writer(self.path, plan, about=self.about) as file:
            for name, array in arrays.items():
                file.write_raw(name, [array])
        self.path.chmod(0o600)
        size = self.path.stat().st_size / 1e6
        tell(f"native: weights kept in {self.path} ({size:,.0f} MB), to open them faster\n")

    def discard(self) -> None:
        """Remove the file, which turned out to be broken."""
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)


def read_all(file: PackedFile, arrays: Iterable[tuple[str, Bytes]], threads: int) -> None:
    """Read arrays of a file into memory, with several threads, and verify their checksums."""
    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(file.read_raw_into, *each) for each in arrays]:
            done.result()
