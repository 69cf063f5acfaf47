"""Put contenders under load in turns, and keep what they did in a journal."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from cassandra_spec.bench.answers import Answers
from cassandra_spec.golden import CassandraError
from cassandra_spec.lab.serving.client import Answer, assemble, content, parts
from cassandra_spec.lab.serving.contenders import Contender
from cassandra_spec.lab.serving.servers import LocalServer

CODE = ("lab/serving", "drafting", "model", "native", "serve")
"""Rooms of the code that replies and their times depend on."""

_WARM_UP = 16  # tokens of each reply before the first load
_DRAFTED = "spec_decode_num_draft_tokens_total"
_ACCEPTED = "spec_decode_num_accepted_tokens_total"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cell:
    """One load: prompts that some clients send, each client one after another."""

    round: int
    temperature: float
    clients: int
    prompts: tuple[str, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Streamed:
    """A reply under load."""

    text: str
    finish_reason: str
    tokens: int
    prompt_tokens: int
    times: tuple[float, ...]  # seconds from the request to each part that has text

    @property
    def first(self) -> float:
        """Seconds to the first text."""
        return self.times[0]

    @property
    def per_token(self) -> float | None:
        """Seconds per token after the first text; None for a reply of one token."""
        return (self.times[-1] - self.first) / (self.tokens - 1) if self.tokens > 1 else None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Load:
    """Record what one contender did under one load."""

    contender: str
    round: int
    temperature: float
    clients: int
    seconds: float  # from the first request to the end of the last reply
    replies: tuple[Streamed, ...]  # in the order of the prompts
    drafted: int
    accepted: int
    resident: int  # bytes of memory of the server afterwards

    @property
    def rate(self) -> float:
        """Tokens per second of all replies."""
        return sum(each.tokens for each in self.replies) / self.seconds

    @classmethod
    def of(cls, body: dict[str, Any]) -> Load:
        """Invert ``dataclasses.asdict``, also after JSON."""
        replies = [Streamed(**{**each, "times": tuple(each["times"])}) for each in body["replies"]]
        return cls(**{**body, "replies": tuple(replies)})


def make_cells(
    prompts: Sequence[str],
    *,
    rounds: int,
    temperatures: Sequence[float],
    clients: Sequence[int],
    replies: int,
) -> list[Cell]:
    """Return all loads, each with at least ``replies`` replies and one for each client.

    Prompts follow one another from load to load, so no server has just answered the same ones. Both
    temperatures of a round have different prompts.
    """
    cells, used = list[Cell](), 0
    for number in range(rounds):
        for temperature in temperatures:
            for count in clients:
                size = max(count, replies)
                some = tuple(prompts[(used + at) % len(prompts)] for at in range(size))
                used += size
                cells.append(
                    Cell(round=number, temperature=temperature, clients=count, prompts=some)
                )
    return cells


class Bench:
    """Loads of all contenders; use it as a context manager, which ends the servers."""

    def __init__(
        self,
        contenders: Sequence[Contender],
        cells: Sequence[Cell],
        *,
        max_tokens: int,
        answers: Answers,
        say: Callable[[str], object],
    ) -> None:
        self._contenders, self._cells, self._max_tokens = contenders, cells, max_tokens
        self._answers, self._say = answers, say
        self._servers: dict[str, LocalServer] = {}
        self._stack = contextlib.ExitStack()
        self.loads: list[Load] = []

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(self) -> bool:
        """Run all loads, each on all contenders in turn. Ctrl-C ends early, with False.

        A load that not all contenders have had is left out. Raises :class:`CassandraError` if a
        server fails.
        """
        begin = time.monotonic()
        for number, cell in enumerate(self._cells, start=1):
            try:
                self.loads += list(self._turns(number, cell))
            except KeyboardInterrupt:
                return False
            each = (time.monotonic() - begin) / number
            left = each * (len(self._cells) - number) / 60
            self._say(f"{number} of {len(self._cells)} loads ({left:.0f} min left)")
        return True

    def _turns(self, number: int, cell: Cell) -> Iterator[Load]:
        first = number % len(self._contenders)  # each load begins with another one
        for each in [*self._contenders[first:], *self._contenders[:first]]:
            key = [each.name, each.command, each.about, each.fields, self._max_tokens]
            asked = [*key, dataclasses.asdict(cell)]
            load = Load.of(self._answers.get(asked, functools.partial(self._measure, each, cell)))
            self._say(
                f"  {each.name}: {cell.clients} clients, temperature {cell.temperature:g},"
                f" round {cell.round + 1}: {load.rate:.1f} tokens/s"
            )
            yield load

    def _measure(self, contender: Contender, cell: Cell) -> dict[str, Any]:
        server = self._servers.get(contender.name) or self._open(contender)
        server.resume()
        try:
            before = server.metrics()
            replies, seconds = self._load(server, contender, cell, self._max_tokens)
            after = server.metrics()
        finally:
            server.pause()
        drafted, accepted = (
            int(after[name] - before[name])
            if name in after
            else sum(getattr(each, field) for each, _ in replies)
            for name, field in ((_DRAFTED, "drafted"), (_ACCEPTED, "accepted"))
        )
        load = Load(
            contender=contender.name,
            round=cell.round,
            temperature=cell.temperature,
            clients=cell.clients,
            seconds=seconds,
            replies=tuple(_streamed(*each) for each in replies),
            drafted=drafted,
            accepted=accepted,
            resident=server.resident,
        )
        return dataclasses.asdict(load)

    def _open(self, contender: Contender) -> LocalServer:
        """Start a server and let it answer each kind of request a little, untimed."""
        server = LocalServer(contender.name, contender.command)
        self._servers[contender.name] = self._stack.enter_context(server)
        for temperature in dict.fromkeys(each.temperature for each in self._cells):
            for clients in (1, max(each.clients for each in self._cells)):
                prompts = tuple(f"Count from {at} on." for at in range(clients))
                cell = Cell(round=0, temperature=temperature, clients=clients, prompts=prompts)
                self._load(server, contender, cell, min(_WARM_UP, self._max_tokens))
        self._say(f"{contender.name} is ready")
        return server

    def _load(
        self, server: LocalServer, contender: Contender, cell: Cell, max_tokens: int
    ) -> tuple[list[tuple[Answer, tuple[float, ...]]], float]:
        """Return the replies with their times, and the seconds of all together."""

        def ask(prompt: str) -> tuple[list[tuple[float, bytes]], float]:
            body = request(server.model, prompt, cell.temperature, max_tokens)
            sent = time.perf_counter()
            pieces = parts(server.place, "/v1/chat/completions", {**body, **contender.fields})
            return [(time.perf_counter() - sent, each) for each in pieces], sent

        begin = time.perf_counter()
        try:
            with ThreadPoolExecutor(cell.clients) as pool:
                found = list(pool.map(ask, cell.prompts))
        except CassandraError as error:
            server.require_running()
            error.add_note(f"server: {contender.name}")
            raise
        seconds = max(sent + some[-1][0] for some, sent in found) - begin
        return [(assemble(part for _, part in some), _times(some)) for some, _ in found], seconds


def request(model: str, prompt: str, temperature: float, max_tokens: int) -> dict[str, Any]:
    """Return the body of a request; the prompt determines the seed."""
    return {
        "model": model,
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": max_tokens,
        "temperature": temperature,
        "seed": zlib.crc32(prompt.encode()) % 2**31,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def _times(found: Sequence[tuple[float, bytes]]) -> tuple[float, ...]:
    """Return the times of the parts that have text; of the last part if none has."""
    times = [
        seconds
        for seconds, part in found
        if any(content(choice) for choice in json.loads(part)["choices"])
    ]
    return tuple(times or [found[-1][0]])


def _streamed(answer: Answer, times: tuple[float, ...]) -> Streamed:
    [choice] = answer.choices
    return Streamed(
        text=choice.text,
        finish_reason=choice.finish_reason,
        tokens=answer.tokens,
        prompt_tokens=answer.prompt_tokens,
        times=times,
    )
