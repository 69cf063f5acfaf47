"""The application: an OpenAI-compatible interface to a scheduler."""

from __future__ import annotations

import asyncio
import dataclasses
import hmac
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, TypeVar

from fastapi import Depends, FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from cassandra_spec.drafting import Prompt, Sampling, Settings, encode_prompt
from cassandra_spec.golden import CassandraError
from cassandra_spec.report.trace_page import live_page
from cassandra_spec.serve.answers import Answer, error_event
from cassandra_spec.serve.errors import ApiError, busy
from cassandra_spec.serve.metrics import Metrics
from cassandra_spec.serve.requests import Asked, ChatRequest, CompletionRequest, read_request
from cassandra_spec.serve.scheduler import BusyError, Event, Scheduler

_Asked = ChatRequest | CompletionRequest

LOCAL_HOSTS = ("localhost", "127.0.0.1", "[::1]")
"""Names that a server always has."""

BODY_SECONDS = 60.0
"""In which the body of a request must come."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Served:
    """The model that is served, and the limits."""

    name: str
    fingerprint: str  # of the weights
    created: int  # seconds since 1970
    tokenizer: Any  # of the application alone: one thread at a time
    vocabulary: int
    context: int  # positions of prompt and reply
    settings: Settings  # of greedy replies; stop tokens are those of the model
    temperature: float  # of requests that say none
    max_tokens: int  # of a reply, at most
    max_body: int  # bytes
    api_key: str = ""  # that requests must have; empty: none
    hosts: tuple[str, ...] = ()  # names of this server beside those of localhost
    origins: tuple[str, ...] = ()  # of pages elsewhere that may ask it


def make_app(served: Served, scheduler: Scheduler, metrics: Metrics) -> FastAPI:
    """The application of one model."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.add_exception_handler(ApiError, _answer_error)
    app.add_exception_handler(BusyError, _answer_error)
    app.add_exception_handler(HTTPException, _answer_error)
    app.add_exception_handler(ClientDisconnect, _answer_error)
    app.add_exception_handler(Exception, _answer_error)
    _add_host_checks(app, served)
    replies = _Replies(served, scheduler)
    page = live_page(keyed=bool(served.api_key), max_tokens=served.max_tokens)
    shown = (
        page.html(),
        {
            "Content-Security-Policy": f"{page.policy}; frame-ancestors 'none'",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cache-Control": "no-cache",
        },
    )
    keyed = [Depends(_key_check(served.api_key))]

    @app.get("/")
    async def look() -> Response:
        html, headers = shown
        return HTMLResponse(html, headers=headers)

    @app.post("/v1/chat/completions", dependencies=keyed)
    async def chat(request: Request) -> Response:
        return await replies.answer(request, ChatRequest)

    @app.post("/v1/completions", dependencies=keyed)
    async def complete(request: Request) -> Response:
        return await replies.answer(request, CompletionRequest)

    @app.get("/v1/models", dependencies=keyed)
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [_model(served)]}

    @app.get("/v1/models/{name:path}", dependencies=keyed)
    async def model(name: str) -> dict[str, Any]:
        _require_model(served, name)
        return _model(served)

    @app.get("/health")
    async def health() -> dict[str, str]:
        if not scheduler.ready:
            raise busy("the server is shutting down")
        return {"status": "ok"}

    @app.get("/metrics")
    async def figures() -> Response:
        return Response(metrics.text(), media_type=CONTENT_TYPE_LATEST)

    return app


def _add_host_checks(app: FastAPI, served: Served) -> None:
    """Refuse requests for other hosts, and pages of other origins that are not named.

    Without this a page could give its own name the address 127.0.0.1 and ask the server.
    """
    if served.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=served.origins,
            allow_methods=["GET", "POST"],
            allow_headers=["authorization", "content-type"],
        )
    hosts = [*LOCAL_HOSTS, *served.hosts]
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=hosts, www_redirect=False)


def _model(served: Served) -> dict[str, Any]:
    fields = {"id": served.name, "created": served.created, "max_model_len": served.context}
    return {**fields, "object": "model", "owned_by": "cassandra"}


def _require_model(served: Served, name: str) -> None:
    if name != served.name:
        message = f"model must be {served.name!r}, the one that is served, not {name!r}"
        raise ApiError(404, message, param="model", code="model_not_found")


def _key_check(key: str) -> Callable[[Request], Awaitable[None]]:
    async def check(request: Request) -> None:
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        if key and not hmac.compare_digest(given.encode(), key.encode()):
            message = "the API key must be that of the server (Authorization: Bearer KEY)"
            headers = {"WWW-Authenticate": "Bearer"}
            raise ApiError(401, message, code="invalid_api_key", headers=headers)

    return check


async def _answer_error(request: Request, error: Exception) -> Response:
    if isinstance(error, ClientDisconnect):
        return Response(status_code=400)  # nobody reads it
    if isinstance(error, HTTPException):
        message = f"{request.method} {request.url.path}: {error.detail}"
        error = ApiError(error.status_code, message, headers=error.headers)
    return _as_api_error(error).response


def _as_api_error(error: BaseException) -> ApiError:
    """What a client is told of an error."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, BusyError):
        return busy(str(error))
    text = str(error) if isinstance(error, CassandraError) else type(error).__name__
    return ApiError(500, f"the reply must be made without an error, and had {text}")


class _Replies:
    """Requests on their way to the scheduler, and replies on their way back."""

    def __init__(self, served: Served, scheduler: Scheduler) -> None:
        self._served, self._scheduler = served, scheduler
        self._encoding = threading.Lock()
        self._arriving = 0  # requests that have not come to the scheduler

    async def answer(self, request: Request, kind: type[_Asked]) -> Response:
        """The reply to a request, whole or as a stream."""
        self._scheduler.require_room(self._arriving)
        self._arriving += 1
        try:
            asked = read_request(kind, await _read_body(request, self._served.max_body))
            _require_model(self._served, asked.model)
            prompt = await asyncio.to_thread(self._encode, asked)
        finally:
            self._arriving -= 1
        answer = Answer(asked.kind, self._served.name, self._served.fingerprint, len(prompt))
        traced = asked.stream and asked.stream_options.include_trace
        settings = self._settings(asked, len(prompt))
        ways = {"streamed": asked.stream, "traced": traced}
        reply = _Reply(self._scheduler, prompt, settings, **ways)
        try:
            if not asked.stream:
                return JSONResponse(answer.whole(*await _unless_gone(request, reply.whole())))
            first = await _unless_gone(request, reply.event())
            usage = asked.stream_options.include_usage
            return _Stream(reply, _pieces(reply, first, answer, usage=usage))
        except BaseException:
            reply.cancel()
            raise

    def _encode(self, asked: _Asked) -> Sequence[int]:
        """Tokens of a prompt, at least one, in a thread that may take its time."""
        if isinstance(asked, ChatRequest):
            return self._encode_text("messages", asked.messages_of_template)
        if isinstance(asked.prompt, str):
            return self._encode_text("prompt", asked.prompt, raw=True)
        vocabulary = self._served.vocabulary
        if max(asked.prompt) >= vocabulary:
            message = f"prompt must have tokens below {vocabulary}, not {max(asked.prompt)}"
            raise ApiError(400, message, param="prompt", code="invalid_value")
        return asked.prompt

    def _encode_text(self, param: str, prompt: Prompt, *, raw: bool = False) -> Sequence[int]:
        try:
            with self._encoding:
                tokens = encode_prompt(self._served.tokenizer, prompt, raw=raw)
            if not tokens:
                raise CassandraError(f"{param} must have at least one token")
            return tokens
        except CassandraError as error:
            raise ApiError(400, str(error), param=param, code="invalid_value") from error

    def _settings(self, asked: Asked, prompt: int) -> Settings:
        served = self._served
        room = served.context - prompt
        most = asked.most_tokens
        if most is None:
            most = max(min(served.max_tokens, asked.default_tokens, room), 1)
        if most > served.max_tokens:
            message = f"max_tokens must be at most {served.max_tokens}, not {most}"
            raise ApiError(400, message, param="max_tokens", code="invalid_value")
        if most > room:
            message = (
                f"prompt and reply must fit the model's {served.context} positions, not need "
                f"{prompt} for the prompt and {most} for the reply"
            )
            raise ApiError(400, message, code="context_length_exceeded")
        settings = dataclasses.replace(
            served.settings, max_tokens=most, stop_strings=tuple(asked.stop)
        )
        temperature = served.temperature if asked.temperature is None else asked.temperature
        if not temperature:
            return dataclasses.replace(settings, gamma=0) if asked.plain else settings
        sampling = Sampling(temperature=temperature, top_p=asked.top_p)
        seed = None if asked.seed is None else asked.seed % 2**64
        return dataclasses.replace(settings, gamma=0, sampling=sampling, seed=seed)


class _Reply:
    """A job of the scheduler, as the event loop sees it."""

    def __init__(
        self, scheduler: Scheduler, prompt: Sequence[int], settings: Settings, **ways: bool
    ) -> None:
        loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[Event] = asyncio.Queue()

        def deliver(event: Event) -> None:
            loop.call_soon_threadsafe(self._events.put_nowait, event)

        self._job = scheduler.submit(prompt, settings, deliver, **ways)
        self.cancel = self._job.cancel

    async def event(self) -> Event:
        """The next one. Raises the error of a reply that has failed."""
        event = await self._events.get()
        if event.error is not None:
            raise _as_api_error(event.error)
        return event

    async def whole(self) -> tuple[str, Event]:
        """The text of the whole reply, which is not streamed, and its event."""
        event = await self.event()
        return event.text, event


async def _pieces(
    reply: _Reply, event: Event, answer: Answer, *, usage: bool
) -> AsyncIterator[bytes]:
    """The stream of a reply from its first event on."""
    yield answer.first(usage=usage)
    try:
        while not event.finish_reason:
            yield answer.piece(event, usage=usage)
            event = await reply.event()
    except ApiError as error:
        yield error_event(error.body)
    else:
        yield answer.piece(event, usage=usage) + answer.end(event, usage=usage)


class _Stream(StreamingResponse):
    """Server-sent events; the job ends with the connection."""

    def __init__(self, reply: _Reply, pieces: AsyncIterator[bytes]) -> None:
        headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
        super().__init__(pieces, headers=headers, media_type="text/event-stream")
        self._reply = reply

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._reply.cancel()


async def _read_body(request: Request, most: int) -> bytes:
    """The body of a request, which is JSON."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ApiError(415, f"Content-Type must be application/json, not {kind or 'missing'}")
    data = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for piece in request.stream():
                data += piece
                if len(data) > most:
                    message = f"the body must have at most {most} bytes"
                    headers = {"Connection": "close"}  # the rest is not read
                    raise ApiError(413, message, code="request_too_large", headers=headers)
    except TimeoutError:
        raise ApiError(408, f"the body must come within {BODY_SECONDS:g} s") from None
    return bytes(data)


Result = TypeVar("Result")


async def _unless_gone(request: Request, work: Awaitable[Result]) -> Result:
    """What ``work`` gives; it is cancelled when the client goes (``ClientDisconnect``)."""
    working, gone = asyncio.ensure_future(work), asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait({working, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        working.cancel()
        gone.cancel()
        await asyncio.gather(working, gone, return_exceptions=True)


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
