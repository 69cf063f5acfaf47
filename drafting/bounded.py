"""Text from code that nobody has read, such as chat templates: computed within limits."""

from __future__ import annotations

import os
import resource
import select
import signal
import time
from collections.abc import Callable
from typing import NoReturn

from cassandra_spec.golden.errors import CassandraError

_MEMORY = 1 << 29  # bytes that the child may take beyond what this process has
_PIECE = 1 << 16


def bounded_text(compute: Callable[[], str], name: str, *, seconds: float, size: int) -> str:
    """What ``compute`` returns, from a child process that is killed at a limit.

    ``seconds`` are of the clock, ``size`` is bytes of UTF-8. Raises :class:`CassandraError`, with
    ``name`` for the subject, if a limit is reached or ``compute`` raises.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        _compute(compute, writing, seconds)
    os.close(writing)
    try:
        data = _read(reading, time.monotonic() + seconds, size)
    finally:
        os.close(reading)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    if data is None:
        raise CassandraError(f"{name} must be done in {seconds:g} s, and is not")
    if len(data) > size:
        raise CassandraError(f"{name} must make at most {size} bytes of text, and makes more")
    text = data[1:].decode("utf-8", "surrogatepass")
    if data[:1] != b"+":
        raise CassandraError(f"{name} must make a text, not end with {text or 'a lack of memory'}")
    return text


def _compute(compute: Callable[[], str], pipe: int, seconds: float) -> NoReturn:
    """In the child: nothing but the pipe is written, and nothing of the parent is cleaned up."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123
            used = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + _MEMORY, used + _MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, int(seconds) + 1))
        answer = "+" + compute()
    except BaseException as error:  # whatever it is, the parent says it
        answer = "-" + " ".join(f"{type(error).__name__}: {error}"[:200].split())
    try:
        view = memoryview(answer.encode("utf-8", "surrogatepass"))
        while view:
            view = view[os.write(pipe, view[:_PIECE]) :]
    finally:
        os._exit(0)


def _read(pipe: int, end: float, size: int) -> bytes | None:
    """All that comes, up to a little more than ``size``; None if it is not whole in time."""
    data = bytearray()
    while len(data) <= size:
        ready, _, _ = select.select([pipe], [], [], max(end - time.monotonic(), 0))
        if not ready:
            return None
        piece = os.read(pipe, _PIECE)
        if not piece:
            break
        data += piece
    return bytes(data)
