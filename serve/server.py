"""Run the application on a socket; handle signals and shutdown."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI

from cassandra_spec.drafting import Backend, Counters, Trace
from cassandra_spec.golden import CassandraError
from cassandra_spec.serve.app import Served, make_app
from cassandra_spec.serve.metrics import Metrics
from cassandra_spec.serve.scheduler import Scheduler

_BACKLOG = 256


class Server(uvicorn.Server):
    """A server: the application on a socket.

    The first SIGINT or SIGTERM stops it after the running replies; the second stops it at once.
    """

    def __init__(self, app: FastAPI, scheduler: Scheduler, host: str, port: int) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http="h11",
                ws="none",
                loop="asyncio",
                lifespan="off",
                log_config=None,  # warnings and errors go to standard error
                access_log=False,
                server_header=False,
            )
        )
        self._scheduler = scheduler
        self._socket = _listen(host, port)

    @property
    def address(self) -> str:
        """The URL for clients."""
        host, port = self._socket.getsockname()[:2]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"

    def run_until_signal(self) -> bool:
        """Serve until a signal; return whether all replies were completed."""
        try:
            self.run(sockets=[self._socket])
        finally:
            self._socket.close()
        return not self.force_exit

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        self.stop(at_once=self.should_exit)

    def stop(self, *, at_once: bool = False) -> None:
        """Stop taking requests; end when running ones are complete. Any thread may call this."""
        self.should_exit = True
        self._scheduler.drain(abort=at_once)
        if at_once:
            self.force_exit = True
            for connection in list(self.server_state.connections):
                connection.transport.abort()


@contextlib.contextmanager
def running(server: Server) -> Iterator[str]:
    """Run a server in a thread; yield its address."""
    thread = threading.Thread(target=server.run_until_signal, name="server")
    thread.start()
    try:
        yield server.address
    finally:
        server.stop()
        thread.join()


def _listen(host: str, port: int) -> socket.socket:
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, *_, address = addresses[0]
        return socket.create_server(address[:2], family=family, backlog=_BACKLOG)
    except OSError as error:
        raise CassandraError(f"{host}:{port} must be an address to listen on: {error}") from error


@contextlib.contextmanager
def open_server(
    served: Served, backend: Backend, host: str, port: int, *, waiting: int
) -> Iterator[Server]:
    """Open a server for a backend, which the server alone uses until it is closed.

    Up to ``waiting`` requests wait while all sequences of the backend are taken. Raises
    :class:`CassandraError` if it cannot listen.
    """
    counters = Counters()
    sequences = backend.sequences(counters, keep=True)

    def trace() -> Trace:
        return Trace(costs=backend.costs, total=counters)

    made: Any = {"waiting": waiting, "make_trace": trace, "counters": counters}
    with Scheduler(sequences, backend.tokenizer, **made) as scheduler:
        app = make_app(served, scheduler, Metrics(scheduler, counters))
        yield Server(app, scheduler, host, port)
