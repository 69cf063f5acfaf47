"""Soak a server: random clients, whose finished replies must be those of the requests alone."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

from cassandra_spec.bench.equal import first_difference
from cassandra_spec.lab.serving.client import Answer, RequestError, assemble, parts
from cassandra_spec.lab.serving.requests import SoakRequest
from cassandra_spec.lab.serving.servers import LocalServer
from cassandra_spec.toolkit.tables import text_table

PATH = "/v1/chat/completions"
SHARES = (0.1, 0.5, 1.0)
"""Parts of the time after which the memory is reported."""

_PAUSES = (0.0, 0.0, 0.0, 0.05, 0.3, 1.0)  # seconds between two requests of a client
_WAITS = (0.0, 0.01, 0.1, 0.5)  # seconds until the client of a whole reply disconnects
_MAX_PARTS = 12  # of a stream, before its client disconnects
_TICK = 0.25  # seconds between two looks at the memory
_SAID = 10.0  # seconds between two lines of progress
_IDLE = 60.0
"""Time limit in seconds for the server to have no request after its clients have ended."""
_KEPT = 20  # differences in the report
RUNNING, WAITING = "num_requests_running", "num_requests_waiting"
_ERRORS = 'request_success_total{finished_reason="error"}'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Difference:
    """A reply that is not the one of its request alone, or a request that failed."""

    request: int
    name: str
    streamed: bool
    body: Mapping[str, Any]
    alone: Any
    found: Any

    def line(self) -> str:
        """Describe the first difference in one line."""
        if isinstance(self.found, str):
            return f"{self.name}: {self.found}"
        choices = zip(self.alone["choices"], self.found["choices"], strict=False)
        for at, (one, two) in enumerate(choices):
            for field in ("text", "finish_reason", "logprobs"):
                place = first_difference(one[field], two[field])
                if place is not None:
                    shown = f"{two[field][place:][:30]!r}, alone {one[field][place:][:30]!r}"
                    return f"{self.name}: reply {at}: {field} from {place} on: {shown}"
        return f"{self.name}: other numbers of replies or tokens"


@dataclasses.dataclass(kw_only=True)
class Counts:
    """The requests of one kind."""

    asked: int = 0
    compared: int = 0
    differing: int = 0  # failed ones included
    left: int = 0  # clients that disconnected early


@dataclasses.dataclass(kw_only=True)
class Soaked:
    """The counts of a soak; memory in bytes by share of the time."""

    kinds: dict[str, Counts]
    seconds: float = 0.0
    differences: list[Difference] = dataclasses.field(default_factory=list)
    most_running: int = 0  # requests that were decoded together
    slots_lost: int = 0
    unfinished: int = 0  # requests that the server still had after its clients had ended
    errors: int = 0  # replies that ended with an error, as the server counts
    drafted: int = 0
    accepted: int = 0
    memory: dict[float, int] = dataclasses.field(default_factory=dict)

    @property
    def all(self) -> Counts:
        """The counts of all kinds together."""
        some = map(dataclasses.astuple, self.kinds.values())
        names = [field.name for field in dataclasses.fields(Counts)]
        return Counts(**dict(zip(names, map(sum, zip(*some, strict=True)), strict=True)))

    @property
    def passed(self) -> bool:
        """Return whether every reply was right and every slot came back."""
        faults = self.all.differing + self.slots_lost + self.unfinished + self.errors
        return not faults and self.all.compared > 0


def replies_alone(
    server: LocalServer, requests: Sequence[SoakRequest], say: Callable[[str], object]
) -> list[Answer]:
    """Return the reply to each request, asked one at a time."""
    found = []
    for request in requests:
        found.append(assemble(parts(server.place, PATH, _body(server, request, stream=False))))
        if len(found) % 20 == 0:
            say(f"{len(found)} of {len(requests)} replies alone")
    return found


def _body(server: LocalServer, request: SoakRequest, *, stream: bool) -> dict[str, Any]:
    more = {"stream_options": {"include_usage": True}} if stream else {}
    return {**request.body, "model": server.model, "stream": stream, **more}


class Soak:
    """Clients of one server, each a thread with random numbers of its own."""

    def __init__(
        self,
        server: LocalServer,
        requests: Sequence[SoakRequest],
        alone: Sequence[Answer],
        *,
        clients: int,
        slots: int,
        seed: int,
        say: Callable[[str], object],
    ) -> None:
        kinds = dict.fromkeys(each.kind for each in requests)
        self.found = Soaked(kinds={kind: Counts() for kind in kinds})
        self._server, self._requests, self._alone = server, requests, alone
        self._clients, self._slots, self._seed, self._say = clients, slots, seed, say
        self._over = threading.Event()
        self._lock = threading.Lock()  # guards found

    def run(self, seconds: float) -> bool:
        """Run clients for some time, then look for lost slots. Ctrl-C ends early, with False."""
        begin, whole = time.monotonic(), True
        threads = [
            threading.Thread(target=self._client, args=(Random(f"{self._seed} {number}"),))
            for number in range(self._clients)
        ]
        for thread in threads:
            thread.start()
        try:
            self._watch(seconds)
        except KeyboardInterrupt:
            whole = False
        finally:
            self._over.set()
            for thread in threads:
                thread.join()
        self.found.seconds = time.monotonic() - begin
        self._count_slots()
        self._read_metrics()
        return whole

    # --- the main thread ------------------------------------------------------------------------

    def _watch(self, seconds: float) -> None:
        """Look at memory and metrics until the time is over; tell the progress."""
        begin = said = time.monotonic()
        while (spent := time.monotonic() - begin) < seconds:
            self._look(spent / seconds)
            if time.monotonic() - said >= _SAID:
                said = time.monotonic()
                self._tell(spent, seconds)
            time.sleep(min(_TICK, seconds / 20))
        self._look(1.0)

    def _look(self, share: float) -> None:
        self._server.require_running()
        resident, running = self._server.resident, self._server.metrics().get(RUNNING, 0)
        with self._lock:
            self.found.most_running = max(self.found.most_running, int(running))
            for each in SHARES:
                if share >= each:
                    self.found.memory.setdefault(each, resident)

    def _tell(self, spent: float, seconds: float) -> None:
        with self._lock:
            counts = self.found.all
        self._say(
            f"{spent / 60:.1f} of {seconds / 60:.1f} min: {counts.compared} replies compared,"
            f" {counts.differing} differ, {counts.left} clients left early,"
            f" {self._server.resident / 1e6:.0f} MB"
        )

    def _count_slots(self) -> None:
        """Fill all slots at once, after every request has ended."""
        until = time.monotonic() + _IDLE
        while (had := self._requests_in_server()) and time.monotonic() < until:
            time.sleep(_TICK)
        self.found.unfinished = had
        if not had:
            self.found.slots_lost = self._slots - self._together()

    def _requests_in_server(self) -> int:
        metrics = self._server.metrics()
        return int(metrics.get(RUNNING, 0) + metrics.get(WAITING, 0))

    def _together(self) -> int:
        """Return how many streams run at once of as many as there are slots."""
        with contextlib.ExitStack() as stack, ThreadPoolExecutor(self._slots) as pool:
            streams = [
                stack.enter_context(contextlib.closing(self._long_stream(number)))
                for number in range(self._slots)
            ]
            first = [pool.submit(next, stream) for stream in streams]
            most, until = 0, time.monotonic() + _IDLE
            while most < self._slots and time.monotonic() < until:
                most = max(most, int(self._server.metrics().get(RUNNING, 0)))
                if all(each.done() for each in first) and not self._requests_in_server():
                    break
            for each in first:
                each.result()
            return most

    def _long_stream(self, number: int) -> Generator[bytes, None, None]:
        text = f"{number}: count from 1 to 1000, in words."
        body = {
            "model": self._server.model,
            "messages": [{"role": "user", "content": text}],
            "max_tokens": 1000,
            "temperature": 0,
            "stream": True,
        }
        return parts(self._server.place, PATH, body)

    def _read_metrics(self) -> None:
        metrics = self._server.metrics()
        self.found.errors = int(metrics.get(_ERRORS, 0))
        self.found.drafted = int(metrics.get("spec_decode_num_draft_tokens_total", 0))
        self.found.accepted = int(metrics.get("spec_decode_num_accepted_tokens_total", 0))

    # --- the clients' threads -------------------------------------------------------------------

    def _client(self, random: Random) -> None:
        while not self._over.wait(random.choice(_PAUSES)):
            request = random.choice(self._requests)
            streamed, leaves = random.random() < 0.7, random.random() < 0.3
            with self._lock:
                self.found.kinds[request.kind].asked += 1
            body = _body(self._server, request, stream=streamed)
            try:
                answer = self._leave(body, random) if leaves else self._finish(body)
            except RequestError as error:
                self._differs(request, str(error), streamed=streamed)
                continue
            if answer is None:
                with self._lock:
                    self.found.kinds[request.kind].left += 1
            else:
                self._compare(request, answer, streamed=streamed)

    def _finish(self, body: Mapping[str, Any]) -> Answer:
        return assemble(parts(self._server.place, PATH, body))

    def _leave(self, body: Mapping[str, Any], random: Random) -> Answer | None:
        """Send a request and disconnect early; return the answer if it has come before."""
        if not body["stream"]:
            wait = random.choice(_WAITS)
            return self._finish_within(body, wait)
        count = random.randrange(1, _MAX_PARTS)
        with contextlib.closing(parts(self._server.place, PATH, body)) as stream:
            found = list(itertools.islice(stream, count))
        return None if len(found) == count else assemble(found)

    def _finish_within(self, body: Mapping[str, Any], seconds: float) -> Answer | None:
        try:
            return assemble(parts(self._server.place, PATH, body, max(seconds, 1e-3)))
        except RequestError as error:
            if isinstance(error.__cause__, TimeoutError):
                return None
            raise

    def _compare(self, request: SoakRequest, answer: Answer, *, streamed: bool) -> None:
        alone = self._alone[request.number]
        with self._lock:
            self.found.kinds[request.kind].compared += 1
        if (answer.choices, answer.tokens) != (alone.choices, alone.tokens):
            self._differs(request, dataclasses.asdict(answer), streamed=streamed)

    def _differs(self, request: SoakRequest, found: Any, *, streamed: bool) -> None:
        difference = Difference(
            request=request.number,
            name=request.name,
            streamed=streamed,
            body=request.body,
            alone=dataclasses.asdict(self._alone[request.number]),
            found=found,
        )
        with self._lock:
            self.found.kinds[request.kind].differing += 1
            if len(self.found.differences) < _KEPT:
                self.found.differences.append(difference)


def lines(found: Soaked) -> str:
    """Format the counts by kind of request, and those of the server."""
    kinds = {**found.kinds, "all": found.all}
    rows = [[name, *map(str, dataclasses.astuple(each))] for name, each in kinds.items()]
    memory = ", ".join(f"{share:.0%}: {held / 1e6:.0f} MB" for share, held in found.memory.items())
    rate = f" ({found.accepted / found.drafted:.3f} accepted)" if found.drafted else ""
    return "\n".join(
        [
            text_table(("requests", "asked", "compared", "differing", "left early"), rows),
            "",
            f"{found.seconds / 60:.1f} min; up to {found.most_running} decoded together;"
            f" {found.drafted} tokens drafted{rate}",
            f"slots lost: {found.slots_lost}; requests without an end: {found.unfinished};"
            f" errors: {found.errors}",
            f"memory of the server: {memory}",
        ]
    )
