"""Replies of the native engine, with both forms of the target and every kind of draft."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from cassandra_spec.bench.soak.cases import Answer, Case, Prompts
from cassandra_spec.drafting import Counters, DraftKind, Gamma
from cassandra_spec.native.engine import Engine
from cassandra_spec.native.engine_binding import MOST

POSITIONS = 2048
"""Most positions of prompt and reply."""

CONTEXTS: tuple[int | None, ...] = (None, None, 600, None, None, 1900)
"""Tokens of the prompts in turn; None: as it is."""

DRAFTS: tuple[DraftKind, ...] = ("model", "hybrid", "lookup")
TARGETS = ("bf16", "packed12")
_GAMMAS: tuple[Gamma, ...] = (*range(1, MOST + 1), "adaptive")


def pairs(schemes: Sequence[str], prompts: int) -> Iterator[tuple[Case, Case]]:
    """Speculative and plain cases; settings, drafts and contexts go round, out of step."""
    for scheme in schemes:
        for target in TARGETS:
            for number in range(prompts):
                case = Case(
                    scheme=scheme,
                    variant=target,
                    prompt=number,
                    context=CONTEXTS[number % len(CONTEXTS)],
                    draft=DRAFTS[(number + number // len(CONTEXTS)) % len(DRAFTS)],
                    gamma=_GAMMAS[number % len(_GAMMAS)],
                    min_margin=0.75 if number % 5 < 2 else 0.0,
                )
                yield case, case.plain(target)


_open: dict[tuple[Path, str, int | None], Engine] = {}
"""The engine of the latest reply; a process has room for one."""


def _engine(folder: Path, target: str, threads: int | None) -> Engine:
    key = folder, target, threads
    if key not in _open:
        for engine in _open.values():
            engine.close()
        _open.clear()
        _open[key] = Engine.from_packed(folder, target=target, threads=threads, context=POSITIONS)
    return _open[key]


def answer(folder: Path, max_tokens: int, threads: int | None, case: Case) -> Answer:
    """Decode one reply, on all cores unless another number of threads is asked for."""
    place = folder / case.scheme
    return reply(_engine(place, case.variant, threads), Prompts.of(place), case, max_tokens)


def reply(engine: Engine, prompts: Prompts, case: Case, max_tokens: int) -> Answer:
    """Decode one reply by an engine."""
    counters = Counters()
    rounds = engine.rounds(prompts(case), case.settings(max_tokens, prompts.stops), counters)
    return Answer.of(rounds, counters)
