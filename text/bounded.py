"""Compute text with untrusted code, such as chat templates, within limits of time and memory."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, NoReturn

from cassandra_spec.golden.errors import CassandraError

_MEMORY = 1 << 29  # bytes that the child may allocate beyond this process's usage
_PIECE = 1 << 16
_LENGTH = 8  # bytes of the length prefix of each pipe message
_IDLE = 60.0  # seconds without a request after which a child exits
_LOOK = 5.0  # seconds between two checks that the parent is alive


class TextChild:
    """Run untrusted text computations in a child process that is killed at a limit.

    The child is forked at the first request and keeps its caches (compiled templates) between
    requests. It holds no file, socket or terminal of this process. It exits after a minute without
    requests, and when this process exits. Threads may share it: requests are served one at a time.
    """

    def __init__(self, name: str) -> None:
        """Set the subject of error messages to ``name``."""
        self._name = name
        self._lock = threading.Lock()
        self._forked: _Forked | None = None

    def text(
        self, compute: Callable[[Any], str], request: Any, *, seconds: float, size: int
    ) -> str:
        """Return ``compute(request)``, computed in the child; ``request`` must be serializable as
        JSON.

        A running child keeps the ``compute`` that it was forked with. ``seconds`` limits wall-clock
        time, ``size`` the UTF-8 bytes of the result. Raises :class:`CassandraError` if a limit is
        reached or ``compute`` raises; the child is then killed, and the next request forks a new
        one.
        """
        with self._lock:
            if self._forked is None or not self._forked.usable:
                self.end()
                self._forked = _Forked(compute)
            done = False
            try:
                data = self._forked.ask(request, seconds, size)
                done = data is not None and data[:1] == b"+" and len(data) <= size + 1
            finally:
                if not done:
                    self.end()
        return self._checked(data, seconds, size)

    def end(self) -> None:
        """Kill the child and close its pipes."""
        if self._forked is not None:
            self._forked.end()
            self._forked = None

    def _checked(self, data: bytes | None, seconds: float, size: int) -> str:
        if data is None:
            raise CassandraError(f"{self._name} must be done in {seconds:g} s, and is not")
        if len(data) > size + 1:
            more = f"must make at most {size} bytes of text, and makes more"
            raise CassandraError(f"{self._name} {more}")
        text = data[1:].decode("utf-8", "surrogatepass")
        if data[:1] != b"+":
            ended = text or "a lack of memory"
            raise CassandraError(f"{self._name} must make a text, not end with {ended}")
        return text


class _Forked:
    """A child process, from its parent's side."""

    def __init__(self, compute: Callable[[Any], str]) -> None:
        answers, writing = os.pipe()
        reading, requests = os.pipe()
        child = os.fork()
        if not child:
            _serve(compute, reading, writing)
        os.close(reading)
        os.close(writing)
        self._owner, self._used = os.getpid(), time.monotonic()
        self._requests, self._answers = requests, answers
        self.end = weakref.finalize(self, _end, child, requests, answers, self._owner)

    @property
    def usable(self) -> bool:
        """True if this process owns the child and the child is not about to exit from idleness."""
        return self._owner == os.getpid() and time.monotonic() - self._used < _IDLE / 2

    def ask(self, request: Any, seconds: float, size: int) -> bytes | None:
        """Return the status byte (+ or -) and the text, cut above ``size``; None at a timeout."""
        end = time.monotonic() + seconds
        body = json.dumps([seconds, request]).encode()
        with contextlib.suppress(BrokenPipeError):  # the child has died; reading ends too
            _write(self._requests, body)
        head = _read(self._answers, end, _LENGTH)
        length = min(int.from_bytes(head or b"", "little"), size + 2)
        data = head and _read(self._answers, end, length)
        self._used = time.monotonic()
        return data


def _end(child: int, requests: int, answers: int, owner: int) -> None:
    """Close the pipes; in the process that forked the child, also kill it and wait for it."""
    os.close(requests)
    os.close(answers)
    if os.getpid() == owner:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _write(pipe: int, data: bytes) -> None:
    view = memoryview(len(data).to_bytes(_LENGTH, "little") + data)
    while view:
        view = view[os.write(pipe, view[:_PIECE]) :]


def _read(pipe: int, end: float, size: int) -> bytes | None:
    """Read ``size`` bytes, fewer at end of file; return None after a timeout."""
    data = bytearray()
    while len(data) < size:
        ready, _, _ = select.select([pipe], [], [], max(end - time.monotonic(), 0))
        if not ready:
            return None
        piece = os.read(pipe, min(_PIECE, size - len(data)))
        if not piece:
            break
        data += piece
    return bytes(data)


# --- in the child -------------------------------------------------------------------------------


def _serve(compute: Callable[[Any], str], reading: int, writing: int) -> NoReturn:
    """Answer requests until the pipe closes; write only to the pipe and skip all exit handlers."""
    try:
        _detach(reading, writing)
        while (body := _next_request(reading)) is not None:
            _write(writing, _answer(compute, body))
    finally:
        os._exit(0)


def _detach(*kept: int) -> None:
    """Close the parent's files, reset its signal handlers and limit memory."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    null = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(null, stream)
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        if int(name) > 2 and int(name) not in kept:
            with contextlib.suppress(OSError):  # the descriptor of this listing is already closed
                os.close(int(name))
    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123
        used = int(file.read().split()[0]) * resource.getpagesize()
    _limit(resource.RLIMIT_AS, used + _MEMORY)


def _limit(what: int, most: int) -> None:
    hard = resource.getrlimit(what)[1]
    resource.setrlimit(what, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def _next_request(reading: int) -> bytes | None:
    """Read the next request; return None at end of file or if the parent has exited."""
    parent, end = os.getppid(), time.monotonic() + _IDLE
    while not select.select([reading], [], [], _LOOK)[0]:
        if time.monotonic() > end or os.getppid() != parent:
            return None
    head = _read(reading, end, _LENGTH)
    return _read(reading, end, int.from_bytes(head, "little")) if head else None


def _answer(compute: Callable[[Any], str], body: bytes) -> bytes:
    try:
        seconds, request = json.loads(body)
        used = resource.getrusage(resource.RUSAGE_SELF)
        _limit(resource.RLIMIT_CPU, int(used.ru_utime + used.ru_stime + seconds) + 2)
        answer = "+" + compute(request)
    except BaseException as error:  # any error is reported to the parent
        answer = "-" + " ".join(f"{type(error).__name__}: {error}"[:200].split())
    return answer.encode("utf-8", "surrogatepass")
