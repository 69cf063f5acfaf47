"""Measure how often sampled replies accept drafted tokens, by temperature and rule."""

from __future__ import annotations

import dataclasses
import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from cassandra_spec.bench.questions import Question
from cassandra_spec.drafting import (
    Acceptance,
    Counters,
    Levels,
    Sampling,
    Settings,
    encode_prompt,
    stop_tokens,
)
from cassandra_spec.model.pretrained import load_tokenizer
from cassandra_spec.native.engine import Engine
from cassandra_spec.native.rounds.chains import rejecting_rounds
from cassandra_spec.toolkit.tables import text_table

RULES: tuple[Acceptance, ...] = ("noise", "rejection")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Accepted:
    """Drafted tokens of one rule and temperature whose predecessors were all accepted."""

    rule: str
    temperature: float
    accepted: int
    tested: int

    @property
    def rate(self) -> float:
        """Conditional acceptance rate."""
        return self.accepted / self.tested if self.tested else math.nan

    @property
    def error(self) -> float:
        """Standard error of the rate, if tokens were independent."""
        return math.sqrt(self.rate * (1 - self.rate) / self.tested) if self.tested else math.nan


def measure(
    source: Path,
    questions: Sequence[Question],
    *,
    temperatures: Sequence[float],
    tokens: int,
    gamma: int,
    threads: int,
    say: Callable[[str], object],
) -> list[Accepted]:
    """Sample a reply of ``tokens`` to the first turn of each question, by each rule.

    The draft view drafts chains of ``gamma`` tokens. A reply's seed is a checksum of its question.
    """
    tokenizer = load_tokenizer(source)
    stops = stop_tokens(tokenizer, source)
    found = []
    with Engine.from_packed(source, threads=threads) as engine:
        prompts = [(encode_prompt(tokenizer, each.turns[0]), _seed(each)) for each in questions]
        room = [pair for pair in prompts if len(pair[0]) + tokens <= engine.context]
        for temperature in temperatures:
            for rule in RULES:
                settings = Settings(
                    gamma=gamma,
                    levels=Levels(branches=1, alternatives=0),
                    max_tokens=tokens,
                    stop_tokens=stops,
                    sampling=Sampling(temperature=temperature),
                    acceptance=rule,
                )
                counters = Counters()
                for _ in _rounds(engine, room, settings, counters):
                    pass
                made = Accepted(
                    rule=rule,
                    temperature=temperature,
                    accepted=counters.accepted,
                    tested=counters.tested,
                )
                found.append(made)
                say(f"{rule} at {temperature}: {made.rate:.3f}")
    return found


def _seed(question: Question) -> int:
    return zlib.crc32(question.turns[0].encode())


def _rounds(
    engine: Engine,
    prompts: Sequence[tuple[Sequence[int], int]],
    settings: Settings,
    counters: Counters,
) -> Iterator[list[int]]:
    for prompt, seed in prompts:
        seeded = dataclasses.replace(settings, seed=seed)
        if settings.rejects:
            yield from rejecting_rounds(engine, prompt, seeded, counters)
        else:
            yield from engine.rounds(prompt, seeded, counters)


def lines(found: Sequence[Accepted]) -> str:
    """Return a table: a row for each temperature, a column for each rule."""
    rows = []
    for temperature in dict.fromkeys(each.temperature for each in found):
        cells = [f"{temperature:g}"]
        for rule in RULES:
            [one] = [e for e in found if (e.temperature, e.rule) == (temperature, rule)]
            cells.append(f"{one.rate:.3f} ± {one.error:.3f} ({one.accepted:,} of {one.tested:,})")
        rows.append(cells)
    return text_table(["temperature", *(f"accepted, by {rule}" for rule in RULES)], rows)
