"""Processes that decode, one for each contender.

A worker reads a request in each line of its standard input and answers in a line. Its first line
is ``{"ready": true, "bytes": ...}`` (weights and keys and values that it says it holds) once the
model is loaded. A request is ``{"prompt": [token, ...], "max_tokens": n, "stops": [token, ...]}``,
an answer ``{"tokens": [...], "first": s, "seconds": s, ...}``: the seconds of the prompt with the
first token, and of all others.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cassandra_spec.bench.program import Program
from cassandra_spec.golden import CassandraError


def llama_program(python: Path) -> list[str]:
    """Return the command of the llama.cpp worker, without its arguments."""
    return [str(python), str(Path(__file__).with_name("llama_serve.py"))]


class Worker(Program):
    """A process that answers; stopped whenever it does not."""

    def __init__(self, name: str, command: Sequence[str], checkout: Path | None = None) -> None:
        """Start it, on the code of a checkout (default: this one).

        Raises:
            CassandraError: it does not start; the text has its last output.
        """
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        super().__init__(name, command, checkout, **pipes)
        try:
            self.about = self._read()
        except BaseException:
            self.close()
            raise
        self.pause()

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to a request."""
        self.resume()
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            return self._read()
        finally:
            self.pause()

    def _ask_to_end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            raise CassandraError(f"{self.name} has ended (code {code}): {self._last_words()}")
        found: dict[str, Any] = json.loads(line)
        return found
