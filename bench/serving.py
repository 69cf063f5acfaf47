"""Measure a server with several concurrent clients: tokens per second, relative to one client."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from cassandra_spec.bench.conform.address import Server
from cassandra_spec.bench.decode.results import Spread
from cassandra_spec.toolkit.tables import text_table


@dataclasses.dataclass(frozen=True, kw_only=True)
class Load:
    """A round at one server: the same prompts one after another and all at once."""

    address: str
    model: str
    round: int
    clients: int
    tokens: int  # of all replies together
    alone_seconds: float
    together_seconds: float
    differing: int  # replies that are not the same in both

    @property
    def ratio(self) -> float:
        """Return the speed-up of concurrent over sequential requests."""
        return self.alone_seconds / self.together_seconds


def measure_load(
    addresses: Sequence[str],
    prompts: Sequence[str],
    *,
    rounds: int,
    max_tokens: int,
    say: Callable[[str], object],
) -> list[Load]:
    """Run rounds at OpenAI-compatible servers, with one client per prompt.

    Replies are greedy and not streamed. The two orders alternate between rounds; the first round is
    not counted. Raises :class:`CassandraError` if a server cannot be reached.
    """
    found = []
    for number in range(rounds + 1):
        for address in addresses:
            load = _round(address, prompts, number, max_tokens)
            if number:
                found.append(load)
                say(f"{address}: round {number}: {load.ratio:.2f}")
    return found


def load_table(found: Sequence[Load]) -> str:
    """Format tokens per second and ratios by server: medians with quartiles."""
    rows = []
    for address in dict.fromkeys(each.address for each in found):
        some = [each for each in found if each.address == address]
        alone = Spread.of([each.tokens / each.alone_seconds for each in some])
        together = Spread.of([each.tokens / each.together_seconds for each in some])
        rows.append(
            (
                some[0].model,
                str(some[0].clients),
                _cell(alone, ".0f"),
                _cell(together, ".0f"),
                _cell(Spread.of([each.ratio for each in some]), ".2f"),
                str(sum(each.differing for each in some)),
            )
        )
    header = ("model", "clients", "one after another", "all at once", "ratio", "differing")
    return text_table(header, rows)


def _cell(spread: Spread, form: str) -> str:
    return f"{spread.median:{form}} [{spread.low:{form}}, {spread.high:{form}}]"


def _round(address: str, prompts: Sequence[str], number: int, max_tokens: int) -> Load:
    server = Server(address)
    model = server.model()

    def reply(prompt: str) -> tuple[str, int]:
        messages = [{"role": "user", "content": prompt}]
        body = {"model": model, "messages": messages, "max_tokens": max_tokens, "temperature": 0}
        answer = server.ask("/chat/completions", body)
        return answer["choices"][0]["message"]["content"], answer["usage"]["completion_tokens"]

    def timed(clients: int) -> tuple[list[tuple[str, int]], float]:
        begun = time.perf_counter()
        with ThreadPoolExecutor(clients) as pool:
            replies = list(pool.map(reply, prompts))
        return replies, time.perf_counter() - begun

    ways = (1, len(prompts)) if number % 2 else (len(prompts), 1)
    done = {clients: timed(clients) for clients in ways}
    (alone, alone_seconds), (together, together_seconds) = done[1], done[len(prompts)]
    return Load(
        address=address,
        model=model,
        round=number,
        clients=len(prompts),
        tokens=sum(tokens for _, tokens in together),
        alone_seconds=alone_seconds,
        together_seconds=together_seconds,
        differing=sum(one != other for one, other in zip(alone, together, strict=True)),
    )
