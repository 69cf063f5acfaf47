"""Replies of the native engine: both forms of the target, every kind of draft, chains and trees."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cassandra_spec.drafting import Batch, Counters, DraftKind, Gamma, Levels
from cassandra_spec.lab.soak.cases import CHAINS, Answer, Case, Prompts, Run
from cassandra_spec.model.baking import open_table
from cassandra_spec.native.engine import Engine
from cassandra_spec.native.limits import MAX_GAMMA

POSITIONS = 8192
"""Length limit of prompt and reply together."""

CONTEXTS: tuple[int | None, ...] = (
    *(None, None, 600, None, None, 1900),
    *(None, None, 4000, None, None, 7900),
)
"""Tokens of the prompts in turn; None: as it is."""

DRAFTS: tuple[DraftKind, ...] = ("model", "hybrid", "lookup")
LEVELS = (
    CHAINS,
    Levels(),
    Levels(low=7),
    Levels(low=MAX_GAMMA, rows=MAX_GAMMA),
)
"""Chains, and trees of three sizes."""

TEMPERATURES = (0.0, 0.0, 0.7, 0.0, 1.0)
COMPANY = (0, 3, 0, 0, 1, 0, 3)
"""Temperatures, and numbers of other replies beside each, in turn; plain ones are alone."""

TARGETS = ("bf16", "packed12", "planes")
_GAMMAS: tuple[Gamma, ...] = (*range(1, MAX_GAMMA + 1), "adaptive")


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
                    levels=LEVELS[(number % len(CONTEXTS) + number // len(CONTEXTS)) % len(LEVELS)],
                    temperature=TEMPERATURES[number % len(TEMPERATURES)],
                    beside=COMPANY[number % len(COMPANY)],
                )
                yield case, case.plain(target)


_open: dict[tuple[Run, str, str], Engine] = {}
"""The engine of the latest reply; a process has room for one."""


def _engine(run: Run, scheme: str, target: str) -> Engine:
    key = run, scheme, target
    if key not in _open:
        for engine in _open.values():
            engine.close()
        _open.clear()
        place = run.folder / scheme
        engine = Engine.from_packed(
            place,
            target=target,
            threads=run.threads,
            context=POSITIONS,
            slots=1 + max(COMPANY),
        )
        engine.use_table(None if run.table is None else open_table(run.table, place))
        _open[key] = engine
    return _open[key]


def answer(run: Run, case: Case) -> Answer:
    """Decode one reply, on all cores unless another number of threads is asked for."""
    engine = _engine(run, case.scheme, case.variant)
    return reply(engine, Prompts.of(run.folder / case.scheme), case, run.max_tokens)


def reply(engine: Engine, prompts: Prompts, case: Case, max_tokens: int) -> Answer:
    """Decode one reply by an engine, beside those of its company."""
    counters, settings = Counters(), case.settings(max_tokens, prompts.stops)
    if not case.beside:
        return Answer.of(engine.rounds(prompts(case), settings, counters), counters)
    with engine.sequences() as batch:
        slot = batch.claim(prompts(case), settings, counters)
        for other in case.company():
            batch.claim(prompts(other), other.settings(max_tokens, prompts.stops))
        return Answer.of(_rounds_of(slot, batch), counters)


def _rounds_of(slot: int, batch: Batch) -> Iterator[list[int]]:
    """Yield the tokens of one sequence of a batch, in each step, until it ends."""
    ended = False
    while not ended:
        found = [each for each in batch.step() if each.slot == slot]
        ended = any(each.ended for each in found)
        yield [each.token for each in found]
