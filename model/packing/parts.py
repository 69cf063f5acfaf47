"""Packed tensors on the disk until all of a model are there, so that packing can be interrupted.

Each tensor is a file of its own with checksums; a line in the journal says that it is whole.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cassandra_spec.golden import Packed
from cassandra_spec.golden.file import PackedFile, PackedTensor, Writer
from cassandra_spec.model.output import write_file

__all__ = ["Codebooks", "Parts"]

_JOURNAL = "journal"
_CODEBOOKS = "codebooks.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Codebooks:
    """Codebooks of one tensor; without them the encoder makes its own (unary)."""

    codebook: tuple[int, ...] | None = None
    pruned_codebook: tuple[int, ...] | None = None


class Parts:
    """The packed tensors in a directory: ``done`` gives the file of each, by name.

    ``codebooks`` are those that have been found so far, ``saturated`` the values that were.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.done: dict[str, str] = {}
        self.saturated = 0
        for line in self._journal_lines():
            self._enter(line["name"], line["file"], line["saturated"])
        self.codebooks = self._read_codebooks()

    def add(self, name: str, packed: Packed) -> None:
        """Keep a packed tensor; when this returns it is on the disk."""
        file = f"{len(self.done)}.safetensors"
        spec = PackedTensor(format=packed.format, shape=(packed.count,))
        with Writer(self._folder / file, {name: spec}) as out:
            out.write_packed(name, packed)
        line = json.dumps({"name": name, "file": file, "saturated": packed.saturated})
        with (self._folder / _JOURNAL).open("a", encoding="utf-8") as journal:
            journal.write(f"{line}\n")
            journal.flush()
            os.fsync(journal.fileno())
        self._enter(name, file, packed.saturated)

    def read(self, name: str) -> Packed:
        """A tensor that was added, its checksums verified."""
        return PackedFile(self._folder / self.done[name]).read_packed(name)

    def set_codebooks(self, found: Mapping[str, Codebooks]) -> None:
        """Keep codebooks; those of other tensors stay."""
        self.codebooks |= found
        body = {name: dataclasses.asdict(books) for name, books in self.codebooks.items()}
        write_file(self._folder / _CODEBOOKS, json.dumps(body).encode())

    def _enter(self, name: str, file: str, saturated: int) -> None:
        self.done[name] = file
        self.saturated += saturated

    def _journal_lines(self) -> list[dict[str, Any]]:
        """Whole lines; what was being written when the machine stopped is cut off."""
        path = self._folder / _JOURNAL
        if not path.exists():
            return []
        text = path.read_text(encoding="utf-8")
        whole = text[: text.rfind("\n") + 1]
        if whole != text:
            write_file(path, whole.encode())
        return [json.loads(line) for line in whole.splitlines()]

    def _read_codebooks(self) -> dict[str, Codebooks]:
        path = self._folder / _CODEBOOKS
        if not path.exists():
            return {}
        body = json.loads(path.read_text(encoding="utf-8"))
        return {
            name: Codebooks(**{key: book and tuple(book) for key, book in books.items()})
            for name, books in body.items()
        }
