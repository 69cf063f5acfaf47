"""Decode for all requests in one thread: a queue, the sequences of a backend, and events.

A reply does not depend on other requests: its tokens are those of a server without other requests,
as :class:`cassandra_spec.drafting.Sequences` promises.
"""

from __future__ import annotations

import contextlib
import dataclasses
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from cassandra_spec.drafting import (
    Counters,
    Emitted,
    Outcome,
    ReplyText,
    Score,
    Sequences,
    Settings,
    Trace,
    TraceText,
)
from cassandra_spec.golden import CassandraError


class BusyError(CassandraError):
    """Raised for a request while the queue is full or the server stops."""


@dataclasses.dataclass(kw_only=True)
class Figures:
    """Figures of one reply."""

    drafted: int = 0  # tokens
    accepted: int = 0
    begun: float = 0.0  # time of the first tokens, in seconds
    ended: float = 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Event:
    """One step of a reply: new text, and its end."""

    text: str = ""  # new text
    tokens: int = 0  # length of the reply so far
    cached: int = 0  # tokens of the prompt found in the cache
    finish_reason: str = ""  # "stop" or "length", in the last event
    figures: Figures | None = None  # in the last event
    scores: tuple[Score, ...] = ()  # if requested: prompt tokens first, then new ones
    trace: Mapping[str, Any] | None = None  # the step's round, if the reply is traced
    error: BaseException | None = None  # in the last event, if the reply failed


@dataclasses.dataclass(kw_only=True)
class Tally(Counters):
    """Counters of one reply; ``total`` counts the same rounds."""

    total: Counters

    def add_reply(self, prompt_tokens: int) -> None:
        """Count a reply."""
        super().add_reply(prompt_tokens)
        self.total.add_reply(prompt_tokens)

    def add_round(self, outcome: Outcome, **counted: Any) -> None:
        """Count a round."""
        super().add_round(outcome, **counted)
        self.total.add_round(outcome, **counted)


Deliver = Callable[[Event], object]


class Job:
    """A request from its submission to the end of its reply."""

    def __init__(
        self,
        prompt: Sequence[int],
        settings: Settings,
        tokenizer: Any,
        deliver: Deliver,
        trace: Trace | None,
        counters: Counters,
        *,
        streamed: bool,
    ) -> None:
        self.prompt, self.settings, self.trace = prompt, settings, trace
        self.streamed = streamed
        self.text = ReplyText(tokenizer, settings.stop_strings)
        self.traced: TraceText | None = None
        if trace is not None:
            self.traced = TraceText(trace, tokenizer, settings.stop_strings)
        self.scores: list[Score] = []
        self.error: BaseException | None = None  # an error of the text
        self.cancelled = False
        self.cached = 0
        self.figures = Figures()
        self.counters = Tally(total=counters) if trace is None else trace
        self._deliver = deliver
        self._told = 0  # scores

    def ends(self, token: int) -> bool:
        """Take the next token; return whether a stop string or an error ends the reply."""
        try:
            return self.text.add(token)
        except BaseException as error:  # a panic is no Exception
            self.error = error
            return True

    def new_scores(self) -> tuple[Score, ...]:
        """Return the scores that have not been delivered."""
        new = tuple(self.scores[self._told :])
        self._told += len(new)
        return new

    def cancel(self) -> None:
        """End the reply before the next step, without a further event. Any thread may call this."""
        self.cancelled = True

    def tell(self, **fields: Any) -> None:
        """Deliver an event; a job whose reader fails is cancelled."""
        if not self.cancelled:
            try:
                self._deliver(Event(tokens=len(self.text.tokens), cached=self.cached, **fields))
            except BaseException:  # an error of this reader; other jobs continue
                self.cancel()


@dataclasses.dataclass
class Totals:
    """Counters since the start; the scheduler's thread writes them, any thread may read them."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    tokens: int = 0  # generated tokens
    ended: dict[str, int] = dataclasses.field(
        default_factory=lambda: dict.fromkeys(("stop", "length", "abort", "error"), 0)
    )


class Scheduler:
    """Decodes for requests in its own thread, one request per sequence at a time.

    ``sequences`` and ``tokenizer`` belong to that thread until the scheduler is closed. Up to
    ``waiting`` further requests wait for a sequence, in order. ``make_trace`` makes the trace of a
    request that asks for one; ``counters`` are those of the sequences. Use it as a context manager,
    or :meth:`close` it.
    """

    def __init__(
        self,
        sequences: Sequences,
        tokenizer: Any,
        *,
        waiting: int,
        make_trace: Callable[[], Trace] = lambda: Trace(costs=None),
        counters: Counters | None = None,
    ) -> None:
        self.totals = Totals()
        self._counters = Counters() if counters is None else counters
        self._make_trace = make_trace
        self.slots = int(sequences.free)
        self._sequences, self._tokenizer = sequences, tokenizer
        self._room = self.slots + waiting
        self._open = 0  # jobs that have not ended
        self._inbox: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._lock = (
            threading.Lock()
        )  # guards _open; held while putting a job in before the thread ends
        self._waiting: deque[Job] = deque()
        self._running: dict[int, Job] = {}  # by slot
        self._draining = self._aborting = False
        self._thread = threading.Thread(target=self._run, name="scheduler", daemon=True)
        self._thread.start()

    # --- any thread -----------------------------------------------------------------------------

    def submit(
        self,
        prompt: Sequence[int],
        settings: Settings,
        deliver: Deliver,
        *,
        streamed: bool = True,
        traced: bool = False,
    ) -> Job:
        """Queue a request; its reply begins as soon as a sequence is free.

        The scheduler's thread calls ``deliver`` with each event, so it must return quickly. A
        reply that is not ``streamed`` has one event, at its end. Events of a ``traced`` reply have
        its rounds. Raises :class:`BusyError`.
        """
        trace = self._make_trace() if traced else None
        job = Job(
            prompt, settings, self._tokenizer, deliver, trace, self._counters, streamed=streamed
        )
        with self._lock:
            self.require_room()
            self._open += 1
            self._inbox.put(job)
        return job

    def require_room(self, more: int = 0) -> None:
        """Raise :class:`BusyError` unless the queue has room for ``more`` requests and one."""
        if not self.ready:
            raise BusyError("the server is shutting down")
        if self._open + more >= self._room:
            raise BusyError(f"the server has {self._room} requests, and takes no more")

    @property
    def room(self) -> int:
        """Capacity in requests, running and waiting."""
        return self._room

    @property
    def ready(self) -> bool:
        """Return whether requests are accepted while there is room."""
        return self._thread.is_alive() and not self._draining

    @property
    def running(self) -> int:
        """Number of requests being decoded."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Number of requests waiting for a sequence."""
        return max(self._open - len(self._running), 0)

    def drain(self, *, abort: bool = False) -> None:
        """Refuse waiting and new requests; finish running ones, or with ``abort`` end them.

        Returns at once. Takes no lock, so a signal handler may call it.
        """
        self._draining = True
        self._aborting = self._aborting or abort
        self._inbox.put(None)

    def close(self) -> None:
        """Drain, and wait until no request runs."""
        self.drain()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if error[0] is not None:
            self.drain(abort=True)
        self.close()

    # --- the scheduler's thread -----------------------------------------------------------------

    def _run(self) -> None:
        while self._receive():
            try:
                self._drop_cancelled()
                self._begin()
                self._hand_out(self._sequences.step() if self._running else [])
            except BaseException as error:  # an error of a pass ends its sequences
                self._end_running(error)

    def _receive(self) -> bool:
        """Take new requests, waiting while idle; return False at the end."""
        while True:
            idle = not self._running and not self._waiting
            if idle and self._draining:
                with self._lock:
                    if self._inbox.empty():
                        return False
            try:
                job = self._inbox.get(block=idle)
            except queue.Empty:
                return True
            if job is not None:
                self._waiting.append(job)

    def _drop_cancelled(self) -> None:
        if self._aborting:
            self._end_running(BusyError("the server is shutting down"))
        for slot, job in list(self._running.items()):
            if job.cancelled:
                self._release(slot)
                self._close(job, "abort")
        for job in [each for each in self._waiting if each.cancelled]:
            self._waiting.remove(job)
            self._close(job, "abort")

    def _begin(self) -> None:
        """Give sequences to waiting jobs, or refuse the jobs while draining."""
        while self._waiting and (self._draining or self._sequences.free):
            job = self._waiting.popleft()
            try:
                if self._draining:
                    raise BusyError("the server is shutting down")
                options: dict[str, Any] = {"ends": job.ends, "scores": job.scores}
                slot = self._sequences.claim(job.prompt, job.settings, job.counters, **options)
            except BaseException as error:  # an error of this job only
                self._close(job, "error", error=error)
            else:
                self._running[slot] = job
                job.cached = self._sequences.cached(slot)
                self.totals.prompt_tokens += len(job.prompt)
                self.totals.cached_tokens += job.cached

    def _hand_out(self, emitted: Sequence[Emitted]) -> None:
        """Give tokens to their jobs, and deliver new text."""
        tokens: dict[int, list[Emitted]] = {}
        for each in emitted:
            tokens.setdefault(each.slot, []).append(each)
        for slot, new_tokens in tokens.items():
            job = self._running[slot]
            try:
                fields = self._take(job, new_tokens)
            except BaseException as error:  # the tokenizer's panic is not an Exception
                fields = {"error": error}
            if fields.keys() & {"finish_reason", "error"}:
                self._release(slot, over=new_tokens[-1].ended)
                self._close(job, fields.get("finish_reason", "error"), **fields)
            elif any(fields.values()):
                job.tell(**fields)

    def _take(self, job: Job, emitted: Sequence[Emitted]) -> dict[str, Any]:
        """Count the new tokens of a reply; return the fields of their event."""
        told, last = dict[str, Any](), emitted[-1]
        if failure := job.error or last.error:
            raise failure
        self.totals.tokens += len(emitted)
        job.figures.ended = time.monotonic()
        job.figures.begun = job.figures.begun or job.figures.ended
        if last.ended:
            job.figures.drafted = job.counters.drafted
            job.figures.accepted = job.counters.accepted
            told["figures"] = job.figures
            stopped = job.text.stopped or last.token in job.settings.stop_tokens
            told["finish_reason"] = "stop" if stopped else "length"
        if job.streamed or last.ended:
            told["text"] = job.text.new(last=last.ended)
            told["scores"] = job.new_scores()
        if job.traced:
            job.traced.add([each.token for each in emitted])
            if last.ended:
                job.traced.end()
            told["trace"] = job.traced.rounds[-1]
        return told

    def _release(self, slot: int, *, over: bool = False) -> None:
        """Take a job from its slot; ``over``: its sequence has ended."""
        del self._running[slot]
        if not over:
            self._sequences.release(slot)

    def _end_running(self, error: BaseException) -> None:
        for slot, job in list(self._running.items()):
            with contextlib.suppress(CassandraError):  # it was over in the step that failed
                self._release(slot)
            self._close(job, "error", error=error)

    def _close(self, job: Job, reason: str, **last: Any) -> None:
        self.totals.ended["abort" if job.cancelled else reason] += 1
        with self._lock:
            self._open -= 1
        if last:
            job.tell(**last)
