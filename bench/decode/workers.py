"""Processes that decode, one for each contender.

A worker reads a request in each line of its standard input and answers in a line. Its first line
is ``{"ready": true, "bytes": ...}`` (weights and keys and values that it says it holds) once the
model is loaded. A request is ``{"prompt": [token, ...], "max_tokens": n, "stops": [token, ...]}``,
an answer ``{"tokens": [...], "first": s, "seconds": s, ...}``: the seconds of the prompt with the
first token, and of all others.

Between its turns a worker is stopped (SIGSTOP), so threads that wait by spinning take nothing from
whoever has the turn.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cassandra_spec.golden import CassandraError

_LINES = 3  # last lines of a failed worker's output


def llama_program(python: Path) -> list[str]:
    """Return the command of the llama.cpp worker, without its arguments."""
    return [str(python), str(Path(__file__).with_name("llama_serve.py"))]


class Worker:
    """A process that answers; stopped whenever it does not. A context manager."""

    def __init__(self, name: str, command: Sequence[str], checkout: Path | None = None) -> None:
        """Start it, on the code of a checkout (default: this one).

        Raises:
            CassandraError: it does not start; the text has its last output.
        """
        self.name = name
        root = checkout or Path(__file__).resolve().parents[2]
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            cwd=root,
            env={**os.environ, "PYTHONPATH": str(checkout)} if checkout else None,
        )
        try:
            self.about = self._read()
        except BaseException:
            self.close()
            raise
        self._signal(signal.SIGSTOP)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to a request."""
        self._signal(signal.SIGCONT)
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            return self._read()
        finally:
            self._signal(signal.SIGSTOP)

    @property
    def resident(self) -> int:
        """Bytes of memory that the process holds (VmRSS)."""
        for line in Path(f"/proc/{self._process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        return 0

    def close(self) -> None:
        """End the process."""
        self._signal(signal.SIGCONT)
        if self._process.stdin is not None and not self._process.stdin.closed:
            self._process.stdin.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._errors.close()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            raise CassandraError(f"{self.name} has ended (code {code}): {self._last_words()}")
        found: dict[str, Any] = json.loads(line)
        return found

    def _last_words(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").split("\n")
        return " / ".join([line.strip() for line in lines if line.strip()][-_LINES:])

    def _signal(self, number: int) -> None:
        if self._process.poll() is None:
            os.kill(self._process.pid, number)
