"""Write one line for each request: what was asked, what it took, and how it ended."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Sequence

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cassandra_spec.serve.scheduler import Event

QUIET_PATHS = ("/health", "/metrics")
"""Paths that are asked all the time: only their errors are written."""

_KEY = "cassandra_line"


@dataclasses.dataclass(kw_only=True)
class Line:
    """The parts of a request's line that become known while it is answered."""

    status: int = 0
    ignored: Sequence[str] = ()  # fields of the request without effect
    reason: str = ""  # message of an error
    prompt: int = 0  # length in tokens
    events: list[Event] = dataclasses.field(default_factory=list)  # last event of each reply

    def parts(self) -> Iterable[str]:
        """Yield the parts of the line after the status."""
        if self.events:
            yield from self._figures()
        if self.reason:
            yield self.reason
        if self.ignored:
            yield f"without effect: {', '.join(self.ignored)}"

    def _figures(self) -> Iterable[str]:
        tokens, cached = (sum(getattr(each, name) for each in self.events) for name in _COUNTS)
        yield f"prompt {self.prompt} tokens ({cached} cached)"
        seconds = max((_seconds(each) for each in self.events), default=0.0)
        rate = (tokens - len(self.events)) / seconds if seconds else 0.0
        yield f"reply {tokens} tokens" + (f" ({rate:.1f} tokens/s)" if rate > 0 else "")
        made = [each.figures for each in self.events if each.figures]
        if drafted := sum(each.drafted for each in made):
            yield f"drafted {drafted}, accepted {sum(each.accepted for each in made)}"
        yield "/".join(sorted({each.finish_reason or "error" for each in self.events}))


_COUNTS = ("tokens", "cached")


def _seconds(event: Event) -> float:
    return event.figures.ended - event.figures.begun if event.figures else 0.0


def line_of(request: Request) -> Line:
    """Return the line of a request."""
    line: Line = request.scope.setdefault(_KEY, Line())
    return line


class RequestLog:
    """Pass requests to an application, and write a line at the end of each (ASGI middleware)."""

    def __init__(self, app: ASGIApp, write: Callable[[str], object]) -> None:
        self._app, self._write = app, write

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        line = scope[_KEY] = Line()
        begun = time.monotonic()

        async def watched(message: Message) -> None:
            if message["type"] == "http.response.start":
                line.status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, watched)
        finally:
            if line.status >= 400 or scope["path"] not in QUIET_PATHS:
                seconds = time.monotonic() - begun
                head = f"{scope['method']} {scope['path']} {line.status or 'disconnected'}"
                self._write(_printable("; ".join([f"{head} in {seconds:.2f} s", *line.parts()])))


def _printable(text: str) -> str:
    """Return one line of printable characters, of bounded length."""
    shown = "".join(each if each.isprintable() else repr(each)[1:-1] for each in text[:1000])
    return shown.encode("ascii", "backslashreplace").decode()
