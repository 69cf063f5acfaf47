"""The scheduler, without a server: every reply is the one that a request gets alone."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from cassandra_spec.drafting import (
    Counters,
    Emitted,
    Ends,
    Score,
    Settings,
    never,
)
from cassandra_spec.golden import CassandraError
from cassandra_spec.model.backends import BACKENDS, Opening
from cassandra_spec.native.models import loaded, streaming
from cassandra_spec.serve.scheduler import BusyError, Event, Scheduler
from tests.serve.conftest import SLOTS, SPECULATION, Alone, reply_alone, requests

LONG = Settings(gamma=0, max_tokens=10_000)


class Reader:
    """The client of a reply."""

    def __init__(
        self,
        scheduler: Scheduler,
        prompt: Sequence[int],
        settings: Settings,
        *,
        traced: bool = False,
    ) -> None:
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self.texts: list[str] = []
        self.rounds: list[Any] = []  # if traced
        self.job = scheduler.submit(prompt, settings, self._events.put, traced=traced)

    def event(self) -> Event:
        found = self._events.get(timeout=300)
        self.texts.append(found.text)
        self.rounds += [found.trace] if found.trace else []
        return found

    def last(self) -> Event:
        while not ((event := self.event()).finish_reason or event.error):
            pass
        return event

    def reply(self) -> tuple[str, int]:
        last = self.last()
        assert last.error is None
        return "".join(self.texts), last.tokens


def test_every_reply_is_the_one_that_a_request_gets_alone(packed: Path, alone: Alone) -> None:
    asked, counters = requests(32), Counters()
    with BACKENDS["native"](packed, Opening(threads=1, sequences=SLOTS), SPECULATION) as backend:
        sequences = backend.sequences(counters, keep=True)
        asked_for: dict[str, Any] = {"waiting": 32, "counters": counters}
        with Scheduler(sequences, backend.tokenizer, **asked_for) as scheduler:
            found = [Reader(scheduler, *each).reply() for each in asked[:8]]
            assert counters.accepted > 0
            before = Reader(scheduler, *asked[8])
            before.event()  # it runs, alone so far
            readers = [before, *(Reader(scheduler, *each) for each in asked[9:])]
            found += [each.reply() for each in readers]
    assert counters.tokens + counters.replies == sum(tokens for _, tokens in found)
    assert found == [alone(*each) for each in asked]


def test_a_model_that_is_read_from_its_file_is_served(
    packed: Path, alone: Alone, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = requests(6)
    monkeypatch.setattr(streaming.Needs, "whole", property(lambda self: 1 << 60))  # never fits
    opening = Opening(threads=1, sequences=2, context=256, memory_limit=1 << 30)
    counters = Counters()
    with BACKENDS["native"](packed, opening, SPECULATION) as backend:
        sequences = backend.sequences(counters)
        with Scheduler(sequences, backend.tokenizer, waiting=8) as scheduler:
            readers = [Reader(scheduler, *each) for each in asked]
            found = [each.reply() for each in readers]
        report = backend.make_report(counters, SPECULATION)
    assert found == [alone(*each) for each in asked]
    assert report.native is not None
    assert set(report.native.forms["target"]) == {loaded.STREAMED}


def test_a_backend_that_runs_one_at_a_time_is_served_too(packed: Path) -> None:
    asked = requests(2)
    with BACKENDS["torch"](packed, Opening(), SPECULATION) as backend:
        with Scheduler(backend.sequences(), backend.tokenizer, waiting=4) as scheduler:
            assert scheduler.slots == 1
            gone = Reader(scheduler, [5], LONG)
            readers = [Reader(scheduler, *each) for each in asked]
            gone.event()
            gone.job.cancel()
            found = [each.reply() for each in readers]
        assert found == [reply_alone(backend, *each) for each in asked]


# --- sequences that a test steps ------------------------------------------------------------------


class Steps:
    """Sequences that emit 1, 2, 3 and so on, one token of each in a step that a test allows."""

    def __init__(self, free: int) -> None:
        self.free = free
        self.allowed = threading.Semaphore(0)
        self.error: Exception | None = None
        self.width = 1  # tokens in a step
        self._left: dict[int, list[int]] = {}
        self._ends: dict[int, Ends] = {}
        self._slots = iter(range(1000))

    def claim(
        self,
        prompt: Sequence[int],
        settings: Settings,
        trace: Counters | None = None,
        *,
        ends: Ends = never,
        scores: list[Score] | None = None,
    ) -> int:
        if not prompt:
            raise CassandraError("tokens must be at least one")
        self.free -= 1
        slot = next(self._slots)
        self._left[slot] = list(range(1, settings.max_tokens + 1))
        self._ends[slot] = ends
        return slot

    def cached(self, slot: int) -> int:
        return len(self._left) - 1

    def release(self, slot: int) -> None:
        self.free += 1
        del self._left[slot]

    def _emitted(self, slot: int, left: list[int]) -> Iterator[Emitted]:
        for _ in range(min(self.width, len(left))):
            token = left.pop(0)
            over = self._ends[slot](token) or not left
            yield Emitted(slot, token, over)
            if over:
                return

    def step(self) -> list[Emitted]:
        assert self.allowed.acquire(timeout=300)
        if self.error:
            error, self.error = self.error, None
            raise error
        emitted = [each for slot in self._left for each in self._emitted(slot, self._left[slot])]
        for each in emitted:
            if each.ended:
                self.release(each.slot)
        return emitted


class Numbers:
    """A tokenizer whose tokens are numbers; 13 has no text."""

    def decode(self, tokens: Sequence[int], **_: Any) -> str:
        if 13 in tokens:
            raise ValueError("13")
        return "".join(f"{token}," for token in tokens)


@pytest.fixture
def steps() -> Steps:
    return Steps(2)


@pytest.fixture
def scheduler(steps: Steps) -> Iterator[Scheduler]:
    with Scheduler(steps, Numbers(), waiting=2) as made:
        yield made
        steps.allowed.release(10_000)


def of(tokens: int, **fields: Any) -> Settings:
    return Settings(gamma=0, max_tokens=tokens, **fields)


def test_requests_wait_in_order_and_are_refused_beyond_that(
    scheduler: Scheduler, steps: Steps
) -> None:
    readers = [Reader(scheduler, [1], of(count)) for count in (3, 2, 1, 1)]
    with pytest.raises(BusyError, match="the server has 4 requests, and takes no more"):
        Reader(scheduler, [1], of(1))
    assert scheduler.running + scheduler.waiting == 4
    steps.allowed.release(2)
    assert readers[1].reply() == ("1,2,", 2)
    steps.allowed.release(1)
    assert readers[0].reply() == ("1,2,3,", 3)
    assert readers[2].reply() == ("1,", 1)
    last = Reader(scheduler, [1], of(1))  # there is room again
    steps.allowed.release(2)
    assert (readers[3].reply(), last.reply()) == (("1,", 1), ("1,", 1))
    assert scheduler.totals.ended == {"stop": 0, "length": 5, "abort": 0, "error": 0}
    assert (scheduler.totals.prompt_tokens, scheduler.totals.tokens) == (5, 8)


def test_a_request_that_is_cancelled_makes_room_within_a_step(
    scheduler: Scheduler, steps: Steps
) -> None:
    gone, other, waits = (Reader(scheduler, [1], of(n)) for n in (100, 6, 1))
    never = Reader(scheduler, [1], of(1))
    steps.allowed.release(1)
    gone.event()
    never.job.cancel()
    gone.job.cancel()
    steps.allowed.release(2)  # one step may have begun before
    assert waits.reply() == ("1,", 1)
    steps.allowed.release(4)
    assert other.reply() == ("1,2,3,4,5,6,", 6)
    assert scheduler.totals.ended["abort"] == 2
    assert gone._events.qsize() <= 1
    assert never._events.empty()


def test_what_fails_ends_its_own_request_alone(scheduler: Scheduler, steps: Steps) -> None:
    refused = Reader(scheduler, [], of(1)).last()
    assert isinstance(refused.error, CassandraError)
    good, bad = Reader(scheduler, [1], of(20, stop_strings=("12",))), Reader(scheduler, [1], of(20))
    scheduler.submit([1], of(3), lambda event: 1 / 0)
    steps.allowed.release(40)
    assert isinstance(bad.last().error, ValueError)
    assert good.reply() == ("1,2,3,4,5,6,7,8,9,10,11,", 12)
    assert Reader(scheduler, [1], of(2)).reply() == ("1,2,", 2)
    assert scheduler.totals.ended == {"stop": 1, "length": 1, "abort": 1, "error": 2}


def test_tokens_of_a_round_behind_the_end_of_a_reply_are_dropped(
    scheduler: Scheduler, steps: Steps
) -> None:
    steps.width = 4
    for settings, reply in (
        (of(4, stop_strings=("2,",)), ("1,", 2)),  # the sequence ends in the same round
        (of(40, stop_strings=("6,",)), ("1,2,3,4,5,", 6)),
        (of(6), ("1,2,3,4,5,6,", 6)),
    ):
        reader = Reader(scheduler, [1], settings)
        steps.allowed.release(2)
        assert reader.reply() == reply
        steps.allowed.acquire(blocking=False)
    assert steps.free == 2
    reader = Reader(scheduler, [1], of(16))
    steps.allowed.release(4)
    last = reader.last()
    assert isinstance(last.error, ValueError)  # of token 13; the sequence ends in that round
    assert scheduler.ready


def test_a_pass_that_fails_ends_what_runs_and_not_the_server(
    scheduler: Scheduler, steps: Steps
) -> None:
    readers = [Reader(scheduler, [1], of(5)) for _ in range(3)]
    steps.allowed.release(1)
    readers[0].event()
    steps.error = CassandraError("logits must be finite")
    steps.allowed.release(1)
    assert [str(each.last().error) for each in readers[:2]] == ["logits must be finite"] * 2
    steps.allowed.release(5)
    assert readers[2].reply() == ("1,2,3,4,5,", 5)
    assert scheduler.ready


def test_the_end_finishes_what_runs_and_refuses_what_waits(
    scheduler: Scheduler, steps: Steps
) -> None:
    run, wait = [Reader(scheduler, [1], of(3)) for _ in range(2)], Reader(scheduler, [1], of(3))
    steps.allowed.release(1)
    run[0].event()
    scheduler.drain()
    steps.allowed.release(1)
    assert str(wait.last().error) == "the server is shutting down"
    with pytest.raises(BusyError, match="shutting down"):
        Reader(scheduler, [1], of(3))
    assert not scheduler.ready
    steps.allowed.release(1)
    assert [each.reply() for each in run] == [("1,2,3,", 3)] * 2
    scheduler.close()


def test_an_abort_ends_what_runs(scheduler: Scheduler, steps: Steps) -> None:
    reader = Reader(scheduler, [1], of(100))
    steps.allowed.release(1)
    reader.event()
    scheduler.drain(abort=True)
    steps.allowed.release(1)
    assert isinstance(reader.last().error, BusyError)
    scheduler.close()
