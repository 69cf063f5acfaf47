"""Levels: the draft view's chain is its own, and the reply the target's, whatever is below."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cassandra_spec.drafting import (
    ALTERNATIVES,
    DRAFT_VIEW,
    LOW,
    ROOT,
    Choice,
    DraftPass,
    FixedPolicy,
    LevelDrafter,
    Levels,
    LowDrafter,
    Node,
    Outcome,
    Plan,
    Proposal,
    Sampling,
    Settings,
    accept_greedy,
)

quick = settings(derandomize=True, deadline=None, max_examples=200)
Next = Callable[[Sequence[int]], int]


def follows(salt: int, tokens: int = 5) -> Next:
    """Return a next token that is a function of the last three."""
    return lambda context: hash((salt, *context[-3:])) // 7 % tokens


def mostly(right: Next, salt: int) -> Next:
    """Another function, which agrees on some contexts: for most, or for few of them."""
    other = follows(salt)
    return lambda c: right(c) if hash((salt, *c[-2:])) % 4 < salt % 5 else other(c)


class ToyView:
    """A draft view by functions of the context. What it keeps is held to what it is asked."""

    def __init__(self, best: Next, context: Sequence[int]) -> None:
        self.best, self.kept = best, list(context[:-1])
        self.passes: list[tuple[int, int]] = []
        self.rows: list[list[int]] = []
        self.chosen: list[int] = []

    def run(self, pending: int, nodes: Sequence[Node], position: int) -> None:
        del self.kept[position:]
        assert len(self.kept) == position
        self.passes.append((position, 1 + len(nodes)))
        self.chosen = []
        self.rows = [[*self.kept, pending]]
        for node in nodes:
            self.rows.append([*self.rows[node.parent + 1], node.token])

    def choose(self, row: int, position: int) -> Choice:
        assert row not in self.chosen
        self.chosen.append(row)
        token = self.best(self.rows[row])
        return Choice(token, token + 1, margin(self.rows[row]))

    def keep(self, path: Sequence[int]) -> None:
        self.kept = self.rows[path[-1] if path else 0]
        at = 0
        for row in path:
            assert self.rows[row][:-1] == self.rows[at]
            at = row


def margin(context: Sequence[int]) -> float:
    return hash((3, *context[-3:])) % 16 / 4


class Table:
    """Candidates by a function: sometimes right."""

    def __init__(self, best: Next) -> None:
        self.best = best

    def candidates(self, tail: Sequence[int]) -> list[tuple[int, float]]:
        return [(self.best(tail), 0.6), (hash(tuple(tail[-2:])) % 5, 0.3)]


plans = st.builds(
    Plan,
    model=st.integers(0, 6),
    low=st.integers(0, 7),
    rows=st.integers(0, 9),
    tree=st.integers(0, 9),
    skip_draft_threshold=st.sampled_from((math.inf, 1.5, 2.5)),
    min_node_probability=st.sampled_from((0.0, 0.2)),
)
levels = st.builds(
    Levels,
    branches=st.integers(1, 4),
    alternatives=st.integers(0, 3),
    alternative_margin=st.sampled_from((0.0, 1.5, 9.0)),
)


@quick
@given(
    plan=plans,
    levels=levels,
    salts=st.tuples(*[st.integers(0, 50)] * 3),
    min_margin=st.sampled_from((0.0, 1.0)),
    stop=st.integers(0, 8),
    budget=st.integers(0, 9),
    with_low=st.booleans(),
    random=st.randoms(use_true_random=False),
)
def test_a_reply_is_the_targets_and_chains_are_the_draft_views(
    plan: Plan,
    levels: Levels,
    salts: tuple[int, int, int],
    min_margin: float,
    stop: int,
    budget: int,
    with_low: bool,
    random: object,
) -> None:
    target = follows(salts[0])
    draft, table = mostly(target, salts[1]), Table(mostly(target, salts[2]))
    asked = Settings(levels=levels, min_margin=min_margin, stop_tokens=frozenset({stop}))
    context = [0, 1, 2, 3, 0, 1]
    view = ToyView(draft, context)
    low = LowDrafter(table) if with_low else None
    drafter = LevelDrafter(low, view, FixedPolicy(plan), asked)
    for _ in range(4):
        view.passes = []
        found = drafter.propose(context, budget)
        expected = own_chain(draft, context, min(plan.model, budget), asked)
        check(found, expected, view, context, asked)
        limit = plan.rows if found.passes else plan.tree or plan.rows
        assert len(found.nodes) <= max(min(limit, budget), len(expected))
        places = range(ROOT, len(found.nodes))
        best = [target([*context, *path_of(found.nodes, at)]) for at in places]
        path = accept_greedy(found.nodes, best)
        emitted = [*(found.nodes[at].token for at in path), best[path[-1] + 1 if path else 0]]
        for token in emitted:
            assert token == target(context)
            context.append(token)
        view.kept = context[:-1]  # the target has seen them
        seen = tuple((token, (best[0],)) for token in context[-2:])
        drafter.observe(Outcome(proposal=found, path=path, seen=seen))


def path_of(nodes: Sequence[Node], at: int) -> list[int]:
    return [] if at == ROOT else [*path_of(nodes, nodes[at].parent), nodes[at].token]


def own_chain(draft: Next, context: Sequence[int], most: int, asked: Settings) -> list[int]:
    """Return the draft view's own chain, token by token."""
    chain: list[int] = []
    while len(chain) < most:
        before = [*context, *chain]
        chain.append(draft(before))
        if margin(before) < asked.min_margin or chain[-1] in asked.stop_tokens:
            break
    return chain


def check(
    found: Proposal,
    expected: list[int],
    view: ToyView,
    context: Sequence[int],
    asked: Settings,
) -> None:
    """Check that the settings allow the nodes of a proposal."""
    by_source: dict[str, list[int]] = {}
    for at, node in enumerate(found.nodes):
        by_source.setdefault(node.source, []).append(at)
    chain = by_source.pop(DRAFT_VIEW, [])
    if not found.passes:  # plain, or the low drafter alone
        assert not chain
        assert set(by_source) <= set(LOW)
        return
    assert [found.nodes[at].token for at in chain] == expected
    assert [found.nodes[at].parent for at in chain] == [ROOT, *chain[:-1]]
    start = len(context) - 1
    assert [(start + each.start, each.rows) for each in found.passes] == view.passes
    assert len(found.passes) <= len(expected)
    ends = [each.start for each in found.passes[1:]] + [len(expected)]
    for each, end in zip(found.passes, ends, strict=True):
        assert each.start < end <= each.start + each.rows
    last = [*context, *expected[:-1]]
    assert found.stopped == (margin(last) < asked.min_margin)
    check_alternatives(found, by_source.pop(ALTERNATIVES, []), chain, context, asked)
    assert set(by_source) <= set(LOW)
    ended = expected[-1] in asked.stop_tokens
    for at in (at for places in by_source.values() for at in places):
        assert not ended
        assert (
            found.nodes[at].parent == chain[-1] or found.nodes[found.nodes[at].parent].source in LOW
        )


def check_alternatives(
    found: Proposal,
    places: list[int],
    chain: list[int],
    context: Sequence[int],
    asked: Settings,
) -> None:
    """Second-best tokens beside those of the smallest margins."""
    taken = [found.nodes[at] for at in places]
    assert len(taken) <= asked.levels.alternatives
    margins = [found.nodes[at].confidence for at in chain]
    below = sorted(m for m in margins if m < asked.levels.alternative_margin)
    assert [node.confidence for node in taken] == below[: len(taken)]
    for node in taken:
        beside = found.nodes[chain[node.parent + 1]]
        assert (node.token, node.confidence) == (beside.token + 1, beside.confidence)
        assert node.parent == beside.parent


# --- rounds by hand -------------------------------------------------------------------------------


class Count:
    """A table that counts on modulo 10."""

    def candidates(self, tail: Sequence[int]) -> list[tuple[int, float]]:
        return [((tail[-1] + 1) % 10, 0.5), (99, 0.25)]


def counting(context: Sequence[int]) -> int:
    return (context[-1] + 1) % 10 if context[-1] != 7 else 0


def propose(
    plan: Plan, asked: Settings | None = None, *, context: Sequence[int] = (5,), budget: int = 20
) -> Proposal:
    view = ToyView(counting, context)
    policy = FixedPolicy(plan)
    drafter = LevelDrafter(LowDrafter(Count()), view, policy, asked or Settings(levels=CHAINS))
    return drafter.propose(context, budget)


CHAINS = Levels(branches=1, alternatives=0)


def test_a_pass_drafts_the_path_that_agrees_and_one_token_more() -> None:
    found = propose(Plan(model=5, low=3, rows=5))
    # 6, 7 agree with the low drafter's 6, 7, 8; then 0 1 2.
    assert found.tokens == [6, 7, 0, 1, 2]
    assert found.passes == (DraftPass(0, 4), DraftPass(3, 2))
    assert found.is_chain


def test_the_tail_follows_the_chain() -> None:
    found = propose(Plan(model=2, low=0, rows=5))
    assert found.tokens == [6, 7, 8, 9, 0]
    assert [node.source for node in found.nodes] == [DRAFT_VIEW] * 2 + ["table"] * 3
    assert [node.confidence for node in found.nodes[2:]] == [0.5, 0.25, 0.125]
    assert found.passes == (DraftPass(0, 1), DraftPass(1, 1))


def test_alternatives_have_rows_of_their_own() -> None:
    asked = Settings(levels=Levels(branches=2, alternatives=1, alternative_margin=9.0))
    found = propose(Plan(model=2, low=0, rows=5), asked)
    assert [node.source for node in found.nodes] == [DRAFT_VIEW] * 2 + [ALTERNATIVES] + [
        "table"
    ] * 2
    assert found.nodes[2].token in (7, 8)
    assert found.nodes[3] == Node(8, 1, 0.5, "table")
    assert found.nodes[4].parent in (1, 3)


def test_a_tree_that_promises_enough_goes_to_the_target_alone() -> None:
    for direct, passes in ((1.9, 0), (2.0, 1)):  # 1 + .5 + .25 + .125 + .0625 are promised
        found = propose(Plan(model=1, low=0, rows=4, skip_draft_threshold=direct))
        assert len(found.passes) == passes
    assert propose(Plan(rows=4)).tokens == [6, 7, 8, 9]
    assert propose(Plan(rows=4, min_node_probability=0.2)).tokens == [6, 7]
    assert propose(Plan()) == Proposal()


def test_no_more_nodes_than_the_budget() -> None:
    for budget in range(5):
        found = propose(Plan(model=3, low=3, rows=7), budget=budget)
        assert found.tokens == [6, 7, 0, 1][:budget]
        assert propose(Plan(model=3, low=3, rows=7), budget=0).passes == ()


def test_for_acceptance_by_eq_1_there_are_chains_alone() -> None:
    asked = Settings(sampling=Sampling(temperature=1.0), acceptance="rejection")
    found = propose(Plan(model=2, low=3, rows=6), asked)
    assert found.is_chain
    assert len(found.nodes) == 6


def test_the_tail_of_a_sampled_chain_is_certain() -> None:
    class Drawing(ToyView):
        def choose(self, row: int, position: int) -> Choice:
            half = [0.0] * 10
            half[1] = half[2] = 0.5
            return dataclasses.replace(super().choose(row, position), distribution=np.array(half))

    asked = Settings(sampling=Sampling(temperature=1.0), acceptance="rejection")
    drafter = LevelDrafter(
        LowDrafter(Count()), Drawing(counting, [5]), FixedPolicy(Plan(2, 0, 4)), asked
    )
    q = drafter.propose([5], 9).q(10)
    assert q.shape == (4, 10)
    assert q[:2].tolist() == [[0, 0.5, 0.5, *[0] * 7]] * 2
    assert [row.nonzero()[0].tolist() for row in q[2:]] == [[8], [9]]


@pytest.mark.parametrize(
    ("best", "path"),
    [
        ([1, 3, 9, 9, 9], (0, 2)),
        ([2, 9, 4, 9, 9], (1, 3)),
        ([2, 9, 9, 9, 9], (1,)),
        ([3, 3, 4, 9, 9], ()),
    ],
)
def test_the_path_of_the_targets_choices_is_accepted(
    best: list[int], path: tuple[int, ...]
) -> None:
    tree = ((1, ROOT), (2, ROOT), (3, 0), (4, 1))
    nodes = [Node(token, parent, 0.5, "x") for token, parent in tree]
    assert accept_greedy(nodes, best) == path
