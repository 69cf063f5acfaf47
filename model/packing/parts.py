"""Packed tensors on the disk until all of a model are there, so that packing can be interrupted.

Each tensor is a file of its own with checksums; a line in the journal says that it is whole. The
file of codebooks begins with the CRC-32 of the rest.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Mapping
from pathlib import Path

from cassandra_spec.golden import Packed
from cassandra_spec.golden.file import PackedFile, PackedTensor, Writer
from cassandra_spec.model.journal import Journal, open_sealed, seal
from cassandra_spec.model.output import write_file

_JOURNAL = "journal"
_CODEBOOKS = "codebooks"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Codebooks:
    """Codebooks of one tensor; without them the encoder makes its own (unary)."""

    codebook: tuple[int, ...] | None = None
    pruned_codebook: tuple[int, ...] | None = None


class Parts:
    """The packed tensors in a directory: ``done`` gives the file of each, by name.

    ``codebooks`` are those that have been found so far, ``saturated`` the number of values that
    were saturated. ``restarted`` says that what was there is damaged: it has been removed.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._reset()
        self.restarted = False
        try:
            self._journal = Journal(folder / _JOURNAL)
            for line in self._journal.lines:
                self._enter(line["name"], line["file"], line["saturated"])
            self._read_codebooks()
        except (ValueError, KeyError, TypeError):
            self.restarted = True
            shutil.rmtree(folder)
            folder.mkdir()
            self._journal = Journal(folder / _JOURNAL)
            self._reset()

    def _reset(self) -> None:
        self.done: dict[str, str] = {}
        self.codebooks: dict[str, Codebooks] = {}
        self.saturated = 0

    def place(self, number: int) -> Path:
        """Return the path of a tensor's part, by the tensor's number."""
        return self._folder.absolute() / f"{number}.safetensors"

    def add(self, name: str, path: Path, saturated: int) -> None:
        """Note that :func:`write_part` has written a part; the note is on the disk then."""
        self._journal.add({"name": name, "file": path.name, "saturated": saturated})
        self._enter(name, path.name, saturated)

    def read(self, name: str) -> Packed:
        """Read a tensor that was added, and verify its checksums."""
        return PackedFile(self._folder / self.done[name]).read_packed(name)

    def set_codebooks(self, found: Mapping[str, Codebooks]) -> None:
        """Keep codebooks; those of other tensors stay."""
        self.codebooks |= found
        body = {name: dataclasses.asdict(books) for name, books in self.codebooks.items()}
        write_file(self._folder / _CODEBOOKS, seal(body))

    def _enter(self, name: str, file: str, saturated: int) -> None:
        if not (self._folder / file).is_file():
            raise ValueError(f"{file} is missing")
        self.done[name] = file
        self.saturated += saturated

    def _read_codebooks(self) -> None:
        path = self._folder / _CODEBOOKS
        if path.exists():
            self.codebooks = {
                name: Codebooks(**{key: book and tuple(book) for key, book in books.items()})
                for name, books in open_sealed(path.read_bytes().strip()).items()
            }


def write_part(path: Path, name: str, packed: Packed) -> None:
    """Write a packed tensor into a file of its own; when this returns it is on the disk."""
    spec = PackedTensor(format=packed.format, shape=(packed.count,))
    with Writer(path, {name: spec}) as out:
        out.write_packed(name, packed)
