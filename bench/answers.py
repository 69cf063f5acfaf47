"""Keep the answers of contenders in a journal, from which an interrupted run is resumed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import cassandra_spec
from cassandra_spec.golden.errors import FileError
from cassandra_spec.model.journal import Journal

ROOMS = ("bench", "drafting", "model", "native")
"""Rooms of the code that answers and their times depend on, by default."""
_SOURCES = {".py", ".cpp", ".h"}


class Answers:
    """Answers by all that they depend on, the code of some rooms and input files included.

    Without a path they are not kept. Raises :class:`CassandraError` if the file is there and is not
    such a journal.
    """

    def __init__(
        self, path: Path | None = None, rooms: Sequence[str] = ROOMS, inputs: Sequence[Path] = ()
    ) -> None:
        self._journal, self._code = None, ""
        self._known: dict[str, Any] = {}
        if path is None:
            return
        path.open("ab").close()  # a path that cannot be written is refused now
        try:
            self._journal, self._code = Journal(path), _digest(rooms, inputs)
            self._known = {line["key"]: line["answer"] for line in self._journal.lines}
        except (ValueError, KeyError) as error:
            raise FileError(f"{path} must be a journal of casspec: {error}") from error

    def __contains__(self, key: Sequence[object]) -> bool:
        return self._name(key) in self._known

    def __getitem__(self, key: Sequence[object]) -> Any:
        return self._known[self._name(key)]

    def _name(self, key: Sequence[object]) -> str:
        return hashlib.sha256(json.dumps([self._code, *key]).encode()).hexdigest()

    def get(self, key: Sequence[object], make: Callable[[], Any]) -> Any:
        """Return the answer of a key (both JSON); call ``make`` if the journal has none."""
        if self._journal is None:
            return make()
        name = self._name(key)
        if name not in self._known:
            self._known[name] = make()
            self._journal.add({"key": name, "answer": self._known[name]})
        return self._known[name]


def _digest(rooms: Sequence[str], inputs: Sequence[Path]) -> str:
    """Return a hash of the source code and the files that answers depend on."""
    package, found = Path(cassandra_spec.__file__).parent, hashlib.sha256()
    for room in rooms:
        for file in sorted((package / room).resolve().rglob("*")):
            if file.suffix in _SOURCES:
                found.update(file.read_bytes())
    for file in inputs:
        found.update(file.read_bytes())
    return found.hexdigest()
