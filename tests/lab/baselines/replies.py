"""Replies by a method beside those of plain decoding."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

from cassandra_spec.drafting import Candidates, Counters, Drafter, Outcome, Proposal, Settings
from cassandra_spec.lab.baselines import Prepared, parse_method
from cassandra_spec.model.speculative import CassandraForCausalLM, ModelSession

PROMPTS = ([5, 9, 17, 3], [3, 4] * 6)


class Observed:
    """A drafter that keeps the outcomes of its rounds."""

    def __init__(self, inner: Drafter, outcomes: list[Outcome]) -> None:
        self._inner, self._outcomes = inner, outcomes

    def propose(self, context: Sequence[int], budget: int) -> Proposal:
        return self._inner.propose(context, budget)

    def observe(self, outcome: Outcome) -> None:
        self._outcomes.append(outcome)
        self._inner.observe(outcome)


def reply(
    lm: CassandraForCausalLM,
    prompt: Sequence[int],
    asked: Settings,
    prepared: Prepared | None = None,
) -> tuple[list[int], list[Outcome]]:
    """Return a reply by a method (None: plain decoding), and its rounds."""
    outcomes: list[Outcome] = []

    def make(
        session: ModelSession,
        settings: Settings,
        seed: int,
        table: Candidates | None,
    ) -> Drafter:
        assert prepared is not None
        return Observed(prepared.drafter(session, settings, seed, table), outcomes)

    if prepared is None:
        rounds = lm.rounds(prompt, dataclasses.replace(asked, gamma=0), Counters())
    else:
        rounds = lm.rounds(prompt, asked, Counters(), make=make)
    return list(itertools.chain.from_iterable(rounds)), outcomes


def check_lossless(lm: CassandraForCausalLM, method: str, **settings: object) -> list[Outcome]:
    """Hold the replies of a method to those of plain decoding; its rounds."""
    asked = Settings(**{"gamma": 4, "max_tokens": 16, **settings})  # type: ignore[arg-type]
    prepared, found = parse_method(method).prepare(lm), list[Outcome]()
    for prompt in PROMPTS:
        tokens, outcomes = reply(lm, prompt, asked, prepared)
        assert tokens == reply(lm, prompt, asked)[0]
        found += outcomes
    return found
