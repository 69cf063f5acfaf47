"""Server programs that a benchmark runs on free ports of this machine."""

from __future__ import annotations

import contextlib
import http.client
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from cassandra_spec.bench.conform.address import Server
from cassandra_spec.bench.program import Program
from cassandra_spec.golden import CassandraError

HOST = "127.0.0.1"
PORT = "{port}"
"""Word of a command that stands for the port."""

_START = 600.0
"""Time limit in seconds until a server has loaded its model."""


class LocalServer(Program):
    """A server program with OpenAI's interface, ``/health`` and perhaps ``/metrics``."""

    def __init__(self, name: str, command: Sequence[str]) -> None:
        """Start it, with a free port in the place of ``PORT``, and wait until it is ready.

        Raises:
            CassandraError: it does not start; the text has its last output.
        """
        port = str(_free_port())
        self.place = f"{HOST}:{port}"
        words = [port if word == PORT else word for word in command]
        # a session of its own: Ctrl-C is for the benchmark, which ends its servers
        super().__init__(name, words, stdout=subprocess.DEVNULL, start_new_session=True)
        try:
            self._wait()
            self.model = Server(f"http://{self.place}").model()
        except BaseException:
            self.close()
            raise

    def metrics(self) -> dict[str, float]:
        """Return the metrics by name with labels; empty if the server has none."""
        status, text = _get(self.place, "/metrics")
        if status != http.client.OK:
            return {}
        lines = [line for line in text.splitlines() if line and not line.startswith("#")]
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}

    def require_running(self) -> None:
        """Raise :class:`CassandraError` with the last output if the program has ended."""
        code = self._process.poll()
        if code is not None:
            raise CassandraError(f"{self.name} has ended (code {code}): {self._last_words()}")

    def _wait(self) -> None:
        until = time.monotonic() + _START
        while time.monotonic() < until:
            self.require_running()
            with contextlib.suppress(OSError, http.client.HTTPException):
                if _get(self.place, "/health")[0] == http.client.OK:
                    return
            time.sleep(0.05)
        raise CassandraError(f"{self.name} must be ready within {_START:.0f} s")


def _get(place: str, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection(place, timeout=30.0)
    with contextlib.closing(connection):
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(errors="replace")


def _free_port() -> int:
    with socket.create_server((HOST, 0)) as found:
        return int(found.getsockname()[1])


def casspec_serve(packed: Path, *flags: str) -> list[str]:
    """Return the command of this project's server."""
    program = [sys.executable, "-m", "cassandra_spec.commands", "serve"]
    return [*program, str(packed.absolute()), "--port", PORT, *flags]
