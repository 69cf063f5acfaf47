"""Keep replies by case in a file, from which an interrupted run is resumed."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

from cassandra_spec.bench.soak.cases import Answer, Case
from cassandra_spec.model.output import write_file

ROOT = Path(__file__).resolve().parents[2]
_ROOMS = ("golden", "model", "drafting", "native", "bench/soak")


class Answers:
    """Answers by case, kept in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        stored = json.loads(path.read_text()) if path.exists() else {}
        self._found = {
            key: Answer(**{**body, "tokens": tuple(body["tokens"])}) for key, body in stored.items()
        }

    def __contains__(self, case: Case) -> bool:
        return case.key in self._found

    def __getitem__(self, case: Case) -> Answer:
        return self._found[case.key]

    def add(self, case: Case, found: Answer) -> None:
        """Keep an answer."""
        self._found[case.key] = found
        body = {key: dataclasses.asdict(each) for key, each in self._found.items()}
        write_file(self._path, json.dumps(body).encode())


def version(inputs: Iterable[Path] = ()) -> str:
    """Return a hash of the code that answers, and of its input files; another hash starts over."""
    found = hashlib.sha256()
    for room in _ROOMS:
        for file in sorted((ROOT / room).rglob("*")):
            if file.suffix in (".py", ".cpp", ".h"):
                found.update(file.read_bytes())
    for file in inputs:
        found.update(file.read_bytes())
    return found.hexdigest()[:16]
