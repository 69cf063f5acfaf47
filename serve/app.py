"""Build the application: an OpenAI-compatible interface to a scheduler."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import functools
import hmac
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from cassandra_spec.drafting import Sampling, Settings, encode_prompt
from cassandra_spec.golden import CassandraError
from cassandra_spec.serve.answers import Answer
from cassandra_spec.serve.errors import ApiError, busy, invalid, require_known
from cassandra_spec.serve.log import Line, RequestLog, line_of
from cassandra_spec.serve.logprobs import TokenTexts
from cassandra_spec.serve.metrics import Metrics
from cassandra_spec.serve.processors import NoEnd
from cassandra_spec.serve.requests import ChatRequest, CompletionRequest, read_request
from cassandra_spec.serve.responses import ResponseAnswer, ResponsesRequest
from cassandra_spec.serve.scheduler import BusyError, Event, Job, Scheduler
from cassandra_spec.serve.structured import Plan, plan_reply, why_unfit
from cassandra_spec.serve.tokens import (
    DetokenizeRequest,
    TokenizeRequest,
    detokenize,
    tokenize,
)
from cassandra_spec.serve.tool_calls import (
    CallFormat,
    call_format,
    render,
    schema_text,
    with_tools,
)
from cassandra_spec.text.grammar import Grammar, GrammarCompiler, GrammarText
from cassandra_spec.text.reply import encode_text, prompt_text, template_arguments
from cassandra_spec.toolkit.trace_page import live_page

_Generation = ChatRequest | CompletionRequest
_Messages = Sequence[Mapping[str, Any]]

_GONE = "the client has disconnected"

LOCAL_HOSTS = ("localhost", "127.0.0.1", "[::1]")
"""Host names that are always accepted."""

BODY_SECONDS = 60.0
"""Time limit for receiving the body of a request."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Served:
    """The served model and its limits."""

    name: str
    fingerprint: str  # hash of the weights
    created: int  # seconds since 1970
    tokenizer: Any  # used by the application only, one thread at a time
    vocabulary: int
    context: int  # positions of prompt and reply
    settings: Settings  # defaults of replies, with the model's stop tokens
    temperature: float  # default
    max_tokens: int  # length limit of a reply
    max_body: int  # size limit of a request in bytes
    log: Callable[[str], object] = lambda line: None  # takes one line for each request
    api_key: str = ""  # required of clients; empty: not required
    hosts: tuple[str, ...] = ()  # accepted host names besides those of localhost
    origins: tuple[str, ...] = ()  # origins of web pages that may send requests


def make_app(served: Served, scheduler: Scheduler, metrics: Metrics) -> FastAPI:
    """Build the application of one model."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    for kind in (ApiError, BusyError, HTTPException, ClientDisconnect, Exception):
        app.add_exception_handler(kind, _answer_error)
    _add_host_checks(app, served)
    app.add_middleware(RequestLog, write=served.log)
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
    both = APIRouter(dependencies=keyed)  # with and without /v1

    @app.get("/")
    async def look() -> Response:
        html, headers = shown
        return HTMLResponse(html, headers=headers)

    @both.post("/chat/completions")
    async def chat(request: Request) -> Response:
        return await replies.answer(request, ChatRequest)

    @both.post("/completions")
    async def complete(request: Request) -> Response:
        return await replies.answer(request, CompletionRequest)

    @both.post("/responses")
    async def respond(request: Request) -> Response:
        return await replies.answer(request, ResponsesRequest)

    _add_facts(both, served, replies)
    for prefix in ("", "/v1"):
        app.include_router(both, prefix=prefix)
    _add_tokens(app, served, replies, keyed)

    @app.get("/health")
    async def health() -> dict[str, str]:
        if not scheduler.ready:
            raise busy("the server is shutting down")
        return {"status": "ok"}

    @app.get("/metrics")
    async def figures() -> Response:
        return Response(metrics.text(), media_type=CONTENT_TYPE_LATEST)

    return app


def _add_facts(app: APIRouter, served: Served, replies: _Replies) -> None:
    """Add what clients ask about the model and their prompts."""

    @app.post("/chat/completions/input_tokens")
    async def tokens_of_chat(request: Request) -> dict[str, Any]:
        return await replies.count(request, ChatRequest)

    @app.post("/responses/input_tokens")
    async def tokens_of_response(request: Request) -> dict[str, Any]:
        return await replies.count(request, ResponsesRequest)

    @app.get("/models")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [_model(served)]}

    @app.get("/models/{name:path}")
    async def model(name: str) -> dict[str, Any]:
        _require_model(served, name)
        return _model(served)


def _add_tokens(app: FastAPI, served: Served, replies: _Replies, keyed: Sequence[Any]) -> None:
    """Add the tokenizer's two ways."""

    @app.post("/tokenize", dependencies=keyed)
    async def tokens_of(request: Request) -> Response:
        asked = read_request(TokenizeRequest, await _read_body(request, served.max_body))
        return JSONResponse(await replies.with_tokenizer(functools.partial(tokenize, asked)))

    @app.post("/detokenize", dependencies=keyed)
    async def text_of(request: Request) -> Response:
        asked = read_request(DetokenizeRequest, await _read_body(request, served.max_body))
        read = functools.partial(detokenize, asked, vocabulary=served.vocabulary)
        return JSONResponse(await replies.with_tokenizer(read))


def _add_host_checks(app: FastAPI, served: Served) -> None:
    """Refuse requests for unknown hosts, and from pages of unknown origins.

    Without this check a page could resolve its own name to 127.0.0.1 and reach the server.
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
    meta = {"n_ctx": served.context, "n_vocab": served.vocabulary}  # as llama-server has them
    return {**fields, "object": "model", "owned_by": "cassandra", "meta": meta}


def _require_model(served: Served, name: str) -> None:
    if name != served.name:
        message = f"model must be {served.name!r}, the one that is served, not {name!r}"
        raise ApiError(404, message, param="model", code="model_not_found")


def _key_check(key: str) -> Callable[[Request], Awaitable[None]]:
    async def check(request: Request) -> None:
        client_key = request.headers.get("authorization", "").removeprefix("Bearer ")
        if key and not hmac.compare_digest(client_key.encode(), key.encode()):
            message = "the API key must be that of the server (Authorization: Bearer KEY)"
            headers = {"WWW-Authenticate": "Bearer"}
            raise ApiError(401, message, code="invalid_api_key", headers=headers)

    return check


async def _answer_error(request: Request, error: Exception) -> Response:
    if isinstance(error, ClientDisconnect):
        line_of(request).reason = _GONE
        return Response(status_code=400)
    if isinstance(error, HTTPException):
        message = f"{request.method} {request.url.path}: {error.detail}"
        error = ApiError(error.status_code, message, headers=error.headers)
    error = _as_api_error(error)
    line_of(request).reason = error.message
    return error.response


def _as_api_error(error: BaseException) -> ApiError:
    """Translate an exception into an error for the client."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, BusyError):
        return busy(str(error))
    text = str(error) if isinstance(error, CassandraError) else type(error).__name__
    return ApiError(500, f"the reply must be made without an error, and had {text}")


class _Replies:
    """Passes requests to the scheduler and returns its replies."""

    def __init__(self, served: Served, scheduler: Scheduler) -> None:
        self._served, self._scheduler = served, scheduler
        self._encoding = threading.Lock()
        self._texts = TokenTexts(copy.deepcopy(served.tokenizer))  # used by the event loop only
        self._grammars = GrammarCompiler(
            copy.deepcopy(served.tokenizer), served.settings.stop_tokens
        )
        self._calls = call_format(served.tokenizer.chat_template)
        self._arriving = 0  # requests not yet with the scheduler

    async def answer(
        self, request: Request, kind: type[_Generation] | type[ResponsesRequest]
    ) -> Response:
        """Answer a request, whole or as a stream."""
        line = line_of(request)
        self._scheduler.require_room(self._arriving)
        self._arriving += 1
        try:
            read = read_request(kind, await _read_body(request, self._served.max_body))
            line.ignored = read.ignored
            body = read.chat if isinstance(read, ResponsesRequest) else read
            plan = self._plan(body)
            prompts, echoes = await asyncio.to_thread(self._encode, body)
            grammars = await asyncio.to_thread(self._compile, body, plan)
        finally:
            self._arriving -= 1
        answer = (
            self._response(read, prompts, plan)
            if isinstance(read, ResponsesRequest)
            else self._answer(read, prompts, echoes, plan)
        )
        line.prompt = body.n * sum(map(len, prompts))  # each reply reads its own
        replies = self._begin(body, prompts, grammars)
        replies.ended = line.events
        try:
            if not body.stream:
                return JSONResponse(answer.whole(await _unless_gone(request, replies.whole())))
            first = await _unless_gone(request, replies.event())
            usage = body.stream_options.include_usage
            return _Stream(replies, _pieces(replies, first, answer, line, usage=usage), line)
        except BaseException:
            replies.cancel()
            raise

    async def count(
        self, request: Request, kind: type[ChatRequest | ResponsesRequest]
    ) -> dict[str, Any]:
        """Return the number of prompt tokens that a request would have."""
        read = read_request(kind, await _read_body(request, self._served.max_body))
        line_of(request).ignored = read.ignored
        body = read.chat if isinstance(read, ResponsesRequest) else read
        prompts, _ = await asyncio.to_thread(self._encode, body)
        return {"object": "response.input_tokens", "input_tokens": sum(map(len, prompts))}

    def _response(
        self, asked: ResponsesRequest, prompts: Sequence[Sequence[int]], plan: Plan
    ) -> ResponseAnswer:
        calls = self._calls_of(asked.chat)
        return ResponseAnswer(
            asked, len(prompts[0]), model=self._served.name, calls=calls, plan=plan
        )

    async def with_tokenizer(self, read: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        """Return what ``read`` returns for the tokenizer, in a thread."""

        def locked() -> dict[str, Any]:
            with self._encoding:
                return read(self._served.tokenizer)

        return await asyncio.to_thread(locked)

    def _answer(
        self,
        body: _Generation,
        prompts: Sequence[Sequence[int]],
        echoes: Sequence[str],
        plan: Plan,
    ) -> Answer:
        return Answer(
            body.kind,
            self._served.name,
            self._served.fingerprint,
            prompts,
            n=body.n,
            echoes=echoes,
            texts=None if body.scored is None else self._texts,
            calls=self._calls_of(body),
            plan=plan,
            old_calls=body.old_calls,
        )

    def _calls_of(self, body: _Generation) -> CallFormat | None:
        """Return the format of a reply's calls, if it may have some."""
        return self._calls if isinstance(body, ChatRequest) and body.callable else None

    def _begin(
        self, body: _Generation, prompts: Sequence[Sequence[int]], grammars: Sequence[Grammar]
    ) -> _Jobs:
        """Begin the replies to all prompts, ``n`` to each."""
        traced = body.stream and body.stream_options.include_trace
        count, room = len(prompts) * body.n, self._scheduler.room
        if count > room:
            message = f"prompt and n must ask for at most {room} replies at once, not {count}"
            raise invalid("n", message)
        if count > 1 and traced:
            message = "stream_options.include_trace must be false for several replies"
            raise invalid("stream_options", message)
        jobs = [
            (prompt, self._settings(body, len(prompt), number, grammars))
            for prompt in prompts
            for number in range(body.n)
        ]
        silent = body.token_limit == 0
        return _Jobs(self._scheduler, jobs, silent=silent, streamed=body.stream, traced=traced)

    def _encode(self, body: _Generation) -> tuple[list[Sequence[int]], list[str]]:
        """Encode the prompts, each to at least one token; return their texts, too, if to be echoed.

        Runs in a thread, because it can be slow.
        """
        if isinstance(body, ChatRequest):
            tools = [tool.model_dump() for tool in body.callable]
            chat = with_tools(body.messages_of_template, tools, self._calls)
            shown = {"turn": body.turn, "tools": tools if self._calls.in_template else []}
            return [self._encode_chat(body, chat, **shown)], []
        prompts = [self._encode_one(each) for each in body.prompt]
        return prompts, self._echoes(body, prompts) if body.echo else []

    def _encode_one(self, prompt: str | Sequence[int]) -> Sequence[int]:
        if isinstance(prompt, str):
            tokenizer = self._served.tokenizer
            return self._encoded("prompt", lambda: encode_prompt(tokenizer, prompt, raw=True))
        require_known("prompt", prompt, self._served.vocabulary)
        return prompt

    def _echoes(self, body: CompletionRequest, prompts: Sequence[Sequence[int]]) -> list[str]:
        with self._encoding:
            return [
                each if isinstance(each, str) else self._served.tokenizer.decode(tokens)
                for each, tokens in zip(body.prompt, prompts, strict=True)
            ]

    def _encode_chat(self, body: ChatRequest, chat: _Messages, **shown: Any) -> Sequence[int]:
        tokenizer = self._served.tokenizer
        if taken := template_arguments(tokenizer) & body.variables.keys():
            name = "chat_template_kwargs"
            raise invalid(name, f"{name} must not have {min(taken)}, which has a meaning already")

        def in_template(messages: _Messages) -> str:
            return prompt_text(tokenizer, messages, variables=body.variables, **shown)

        def encode() -> Sequence[int]:
            text = render(chat, in_template)
            return encode_text(tokenizer, text, special=not tokenizer.chat_template)

        return self._encoded(body.name_of("messages"), encode)

    def _encoded(self, param: str, encode: Callable[[], Sequence[int]]) -> Sequence[int]:
        """Encode a text to at least one token; errors name the field ``param``."""
        try:
            with self._encoding:
                tokens = encode()
            if not tokens:
                raise CassandraError(f"{param} must have at least one token")
            return tokens
        except CassandraError as error:
            raise invalid(param, str(error)) from error

    def _plan(self, body: _Generation) -> Plan:
        """Return the grammars that a reply must match."""
        tools = body if isinstance(body, ChatRequest) else None
        name = body.name_of("response_format")
        return plan_reply(body.response_format, tools, self._calls, name)

    def _compile(self, body: _Generation, plan: Plan) -> Sequence[Grammar]:
        """Compile the grammar of a request, if it has one.

        Runs in a thread, because it can be slow.
        """
        if plan.grammar is None:
            return []
        tools = body if isinstance(body, ChatRequest) and body.callable else None
        param = "tools" if tools else body.name_of("response_format")
        try:
            return [self._grammars.compile(plan.grammar)]
        except CassandraError as error:
            unfit = why_unfit(body.response_format, tools, self._why_not)
            raise invalid(param, f"{param}: {': '.join(unfit) if unfit else error}") from error

    def _why_not(self, schema: Any) -> str:
        """Return why a schema does not compile, or an empty text."""
        try:
            self._grammars.compile(GrammarText(syntax="json_schema", text=schema_text(schema)))
        except CassandraError as error:
            return str(error)
        return ""

    def _settings(
        self, body: _Generation, prompt: int, number: int, grammars: Sequence[Grammar]
    ) -> Settings:
        """Return the settings of reply ``number`` to a prompt."""
        served = self._served
        require_known("logit_bias", map(int, body.logit_bias), served.vocabulary)
        require_known("stop_token_ids", body.stop_token_ids, served.vocabulary)
        settings = dataclasses.replace(
            served.settings,
            max_tokens=self._token_limit(body, prompt),
            stop_strings=tuple(body.stop),
            stop_tokens=served.settings.stop_tokens | set(body.stop_token_ids),
            processors=(*body.processors, *self._endless(body, grammars), *grammars),
            logprobs=body.scored,
            prompt_logprobs=body.echoed and body.scored is not None,
        )
        if body.plain:
            settings = dataclasses.replace(settings, gamma=0)
        temperature = served.temperature if body.temperature is None else body.temperature
        body.check_samplers(temperature)
        if not temperature:
            return settings
        top_k = body.top_k if body.top_k > 0 else None
        sampling = Sampling(
            temperature=temperature, top_k=top_k, top_p=body.top_p, min_p=body.min_p
        )
        seed = None if body.seed is None else (body.seed + number) % 2**64
        return dataclasses.replace(settings, sampling=sampling, seed=seed)

    def _endless(self, body: _Generation, grammars: Sequence[Grammar]) -> Iterator[NoEnd]:
        """Yield a processor that forbids an early end of a reply, if one is requested."""
        name = "ignore_eos" if body.ignore_eos else "min_tokens" if body.min_tokens else ""
        if not name:
            return
        if grammars or body.stop:
            other = "a format or tools" if grammars else "stop"
            raise invalid(name, f"{name} must not be given with {other}, which may end a reply")
        stops = self._served.settings.stop_tokens
        if not body.ignore_eos:
            stops |= set(body.stop_token_ids)
        yield NoEnd(tokens=stops, count=None if body.ignore_eos else body.min_tokens)

    def _token_limit(self, body: _Generation, prompt: int) -> int:
        """Return the token limit of a reply: at most what fits; for 0 tokens one is generated."""
        served, room = self._served, self._served.context - prompt
        if room < 1:
            message = (
                f"prompt must leave room for a reply within the model's {served.context} positions,"
                f" not have {prompt} tokens"
            )
            raise ApiError(400, message, code="context_length_exceeded")
        requested = body.default_tokens if body.token_limit is None else body.token_limit
        limit = max(min(requested, served.max_tokens, room), 1)
        if body.min_tokens > limit:
            message = f"min_tokens must be at most {limit} here, not {body.min_tokens}"
            raise invalid("min_tokens", message)
        return limit


class _Jobs:
    """The jobs of one request, for use in the event loop.

    Of ``silent`` jobs only the scores of the prompts are used, not the replies.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        body: Sequence[tuple[Sequence[int], Settings]],
        *,
        silent: bool,
        **ways: bool,
    ) -> None:
        loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[tuple[int, Event]] = asyncio.Queue()
        self._silent, self.count = silent, len(body)
        self.ended: list[Event] = []  # the last events of replies so far
        self._jobs: list[Job] = []

        def deliver(index: int, event: Event) -> None:
            loop.call_soon_threadsafe(self._events.put_nowait, (index, event))

        scheduler.require_room(len(body) - 1)
        try:
            for index, (prompt, settings) in enumerate(body):
                deliver_event = functools.partial(deliver, index)
                self._jobs.append(scheduler.submit(prompt, settings, deliver_event, **ways))
        except BaseException:
            self.cancel()
            raise

    def cancel(self) -> None:
        """End all replies."""
        for job in self._jobs:
            job.cancel()

    async def event(self) -> tuple[int, Event]:
        """Return the number of a reply and its next event. Raises the error of a failed reply."""
        index, event = await self._events.get()
        if event.finish_reason or event.error:
            self.ended.append(event)
        if event.error is not None:
            raise _as_api_error(event.error)
        if self._silent:
            scores = event.scores[:-1]
            end = dataclasses.replace(event, text="", tokens=0, scores=scores)
            event = dataclasses.replace(end, finish_reason="length")
        return index, event

    async def whole(self) -> list[Event]:
        """Return the single event of each reply, for replies that are not streamed."""
        events = dict([await self.event() for _ in range(self.count)])
        return [event for _, event in sorted(events.items())]


async def _pieces(
    replies: _Jobs,
    first: tuple[int, Event],
    answer: Answer | ResponseAnswer,
    line: Line,
    *,
    usage: bool,
) -> AsyncIterator[bytes]:
    """Stream replies, from the first event on."""
    yield answer.first(usage=usage)
    last, (index, event) = dict[int, Event](), first
    try:
        while True:
            yield answer.piece(index, event, usage=usage)
            if event.finish_reason:
                last[index] = event
            if len(last) == replies.count:
                break
            index, event = await replies.event()
    except ApiError as error:
        line.reason = error.message
        yield answer.failed(error.body)
    else:
        yield answer.end([event for _, event in sorted(last.items())], usage=usage)


class _Stream(StreamingResponse):
    """A stream of server-sent events; the jobs end with the connection."""

    def __init__(self, replies: _Jobs, pieces: AsyncIterator[bytes], line: Line) -> None:
        headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
        super().__init__(pieces, headers=headers, media_type="text/event-stream")
        self._replies, self._line = replies, line

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            if len(self._replies.ended) < self._replies.count and not self._line.reason:
                self._line.reason = _GONE
            self._replies.cancel()


async def _read_body(request: Request, most: int) -> bytes:
    """Read the body of a request, which must be JSON."""
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
    """Await ``work``; cancel it if the client disconnects (``ClientDisconnect``)."""
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
