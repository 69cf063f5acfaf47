"""Rounds with levels in the engine against the reference on plain passes."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from cassandra_spec.drafting import (
    Choice,
    Counters,
    Gains,
    LevelDrafter,
    Levels,
    LowDrafter,
    NgramTable,
    Node,
    Others,
    Outcome,
    Plan,
    Sampling,
    Settings,
    accept_greedy,
    pick,
)
from cassandra_spec.drafting.low import BRANCHES
from cassandra_spec.native.engine import Engine
from cassandra_spec.native.limits import MAX_GAMMA
from tests.native.models import packed, small

VOCABULARY = 97
PROMPTS = [
    tuple(int(token) for token in np.random.default_rng(seed).integers(0, 12, 21))
    for seed in range(4)
]
TOKENS = 30


class Scripted:
    """A policy of random plans, the same for the same seed; it keeps what was observed."""

    def __init__(self, seed: int, settings: Settings) -> None:
        self._rng, self._settings = np.random.default_rng(seed), settings
        self.outcomes: list[Outcome] = []

    def plan(self, position: int) -> Plan:
        model, low, rows = (int(most) for most in self._rng.integers(0, MAX_GAMMA + 1, 3))
        tree = int(self._rng.integers(0, MAX_GAMMA + 1))
        direct = float(self._rng.choice([np.inf, 1.2, 1.6]))
        return Plan(
            model=model * self._settings.uses_draft_view,
            low=low,
            rows=rows,
            tree=tree,
            skip_draft_threshold=direct,
            min_node_probability=float(self._rng.choice([0.0, 0.1])),
        )

    def observe(self, outcome: Outcome) -> None:
        passes = tuple(dataclasses.replace(p, seconds=0.0) for p in outcome.proposal.passes)
        nodes = (
            dataclasses.replace(node, confidence=round(float(node.confidence), 5))
            for node in outcome.proposal.nodes
        )
        proposal = dataclasses.replace(outcome.proposal, passes=passes, nodes=tuple(nodes))
        self.outcomes.append(Outcome(proposal=proposal, path=outcome.path))


class Planned:
    """A policy as the planner of a single sequence, without costs."""

    def __init__(self, policy: Scripted) -> None:
        self.costs, self._policy = self, policy

    def plan(self, gains: Sequence[Gains], positions: Sequence[int], others: Others) -> list[Plan]:
        assert (len(gains), others) == (1, Others())
        return [self._policy.plan(positions[0])]

    def learn(self, settings: Settings, gains: Gains, outcome: Outcome, plan: Plan) -> None:
        self._policy.observe(outcome)

    def observe(
        self, positions: Sequence[int], outcomes: Sequence[Outcome], counts: Sequence[int]
    ) -> None: ...


class Plain:
    """Trees on plain passes of an engine: each row by the path that leads to it."""

    def __init__(self, engine: Engine, settings: Settings, *, draft: bool) -> None:
        self._engine, self._settings, self._draft = engine, settings, draft

    def run(self, pending: int, nodes: Sequence[Node], position: int) -> None:
        self._position = position
        self._paths = [[pending]]
        for node in nodes:
            self._paths.append([*self._paths[node.parent + 1], node.token])
        self.logits = np.concatenate([self._forward(path) for path in self._paths])

    def choose(self, row: int, position: int) -> Choice:
        found = pick(self.logits[row], self._settings.sampling, self._settings.seed or 0, position)
        return Choice(found.token, found.second, float(np.float32(found.margin)))

    def keep(self, path: Sequence[int]) -> None:
        self._forward(self._paths[path[-1] if path else 0])

    def _forward(self, tokens: list[int]) -> NDArray[np.float32]:
        return self._engine.forward(tokens, self._position, draft=self._draft, last=1)


def best(logits: NDArray[np.float32]) -> list[int]:
    return np.argsort(-logits, kind="stable")[:BRANCHES].tolist()


def reference(
    engine: Engine,
    prompt: Sequence[int],
    policy: Scripted,
    settings: Settings,
    table: NgramTable | None,
) -> list[int]:
    """Return a reply of the reference, round by round."""
    view, target = (Plain(engine, settings, draft=draft) for draft in (True, False))
    low = LowDrafter(table) if settings.uses_low_drafter else None
    drafter = LevelDrafter(low, view if settings.uses_draft_view else None, policy, settings)
    target.logits = engine.forward(prompt, last=1)
    reply = [target.choose(0, len(prompt)).token]
    while len(reply) < settings.max_tokens:
        context = [*prompt, *reply]
        proposal = drafter.propose(context, settings.max_tokens - len(reply) - 1)
        target.run(context[-1], proposal.nodes, len(context) - 1)
        depths = [0]
        for node in proposal.nodes:
            depths.append(depths[node.parent + 1] + 1)
        chosen = [
            target.choose(row, len(context) + depth).token for row, depth in enumerate(depths)
        ]
        path = accept_greedy(proposal.nodes, chosen)
        target.keep([at + 1 for at in path])
        likely = [tuple(best(row)) for row in target.logits]
        seen = zip([context[-1], *proposal.tokens], likely, strict=True)
        drafter.observe(Outcome(proposal=proposal, path=path, seen=tuple(seen)))
        last = chosen[path[-1] + 1 if path else 0]
        reply += [*(proposal.nodes[at].token for at in path), last]
    return reply


def native_reply(engine: Engine, prompt: Sequence[int], settings: Settings) -> list[int]:
    return list(itertools.chain.from_iterable(engine.rounds(prompt, settings, Counters())))


def make(**options: Any) -> Engine:
    config, tensors = small()
    return Engine.from_tensors(config, packed(tensors), pin=False, **options)


def the_table() -> NgramTable:
    rng = np.random.default_rng(1)
    return NgramTable.count([rng.integers(0, 12, 400).tolist()], vocabulary=VOCABULARY)


SAMPLINGS = (Sampling(), Sampling(temperature=0.7), Sampling(temperature=1.5, top_k=9, top_p=0.9))
LEVELS = [
    Levels(),
    Levels(branches=1, alternatives=0),
    Levels(branches=2, alternatives=7, alternative_margin=1e9),
]


@pytest.mark.parametrize("draft", ["model", "lookup", "hybrid"])
@pytest.mark.parametrize("threads", [1, 2])
def test_rounds_are_those_of_the_reference(
    draft: Any, threads: int, monkeypatch: pytest.MonkeyPatch, every_isa: str
) -> None:
    accepted = 0
    with make(threads=threads) as engine, make(threads=1) as oracle:
        every = itertools.product(LEVELS, (0.0, 0.3), SAMPLINGS)
        for seed, (levels, margin, sampling) in enumerate(every):
            prompt = PROMPTS[seed % 4]
            table = the_table() if seed % 3 else None
            engine.use_table(table)
            settings = Settings(
                gamma="adaptive",
                draft=draft,
                levels=levels,
                min_margin=margin,
                max_tokens=TOKENS,
                sampling=sampling,
                seed=seed,
            )
            own, other = Scripted(seed, settings), Scripted(seed, settings)
            expected = native_reply(engine, prompt, dataclasses.replace(settings, gamma=0))
            monkeypatch.setattr(engine.planning, "planner", lambda _, own=own: Planned(own))
            monkeypatch.setattr(engine.planning, "observe", Planned(own).learn)
            assert native_reply(engine, prompt, settings) == expected
            assert reference(oracle, prompt, other, settings, table) == expected
            assert own.outcomes == other.outcomes
            accepted += sum(outcome.accepted for outcome in own.outcomes)
    assert accepted


def test_a_row_of_a_tree_has_the_logits_of_the_plain_path(every_isa: str) -> None:
    """Long contexts, branches of all shapes: after each round the cache is that of plain passes."""
    config, tensors = small(max_position_embeddings=700, num_hidden_layers=2)
    prompt = np.random.default_rng(7).integers(0, 30, 500).tolist()
    levels = Levels(branches=4, low=7, alternatives=3, alternative_margin=1e9)
    settings = Settings(gamma=5, draft="hybrid", levels=levels, max_tokens=150)
    with Engine.from_tensors(config, packed(tensors), pin=False) as engine:
        plain = native_reply(engine, prompt, dataclasses.replace(settings, gamma=0))
        assert native_reply(engine, prompt, settings) == plain
        logits = engine.forward([plain[-1]], len(prompt) + len(plain) - 1)
        engine.forward(prompt)
        whole = engine.forward(plain, len(prompt), rows=1)
    assert (logits[-1] == whole[-1]).all()
