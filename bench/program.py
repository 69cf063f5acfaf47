"""Processes that a benchmark starts, stops between their turns and ends.

Between its turns a program is stopped (SIGSTOP), so threads that wait by spinning take nothing from
the program that has the turn.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

_LINES = 3  # last lines of a failed program's output
_SECONDS = 10.0
"""Time limit for the end of a program, after which it is killed."""


class Program:
    """A process whose standard error is kept. A context manager."""

    def __init__(
        self, name: str, command: Sequence[str], checkout: Path | None = None, **pipes: Any
    ) -> None:
        """Start it, on the code of a checkout (default: this one); ``pipes`` are Popen's."""
        self.name = name
        root = checkout or Path(__file__).resolve().parents[1]
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            command,
            stderr=self._errors,
            cwd=root,
            env={**os.environ, "PYTHONPATH": str(checkout)} if checkout else None,
            **pipes,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def resident(self) -> int:
        """Bytes of memory that the process holds (VmRSS)."""
        for line in Path(f"/proc/{self._process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        return 0

    def pause(self) -> None:
        """Stop the process until it is resumed."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue a paused process."""
        self._signal(signal.SIGCONT)

    def close(self) -> None:
        """End the process; kill it if it does not end in time."""
        self.resume()
        self._ask_to_end()
        try:
            self._process.wait(timeout=_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._errors.close()

    def _ask_to_end(self) -> None:
        self._signal(signal.SIGTERM)

    def _last_words(self) -> str:
        """Return the last lines of standard error."""
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").split("\n")
        return " / ".join([line.strip() for line in lines if line.strip()][-_LINES:])

    def _signal(self, number: int) -> None:
        if self._process.poll() is None:
            os.kill(self._process.pid, number)
