"""Levels of drafting: a low drafter below the draft view, and the draft view below the target.

One pass of the draft view runs over its last token and a tree of the low drafter below it. It
drafts all tokens on the path that agrees with its own choices, plus one. The chain is the same as
without the tree, in fewer passes. The target then verifies the chain and, in unused rows, the draft
view's second-best tokens where the margin is small and the low drafter's tree below the end of the
chain. Without a chain the target verifies the low drafter's tree alone.

This module does not depend on how passes are computed: see :class:`View`. The native engine
implements the same rounds in C++ (native/src/engine/round.cpp).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from cassandra_spec.drafting.choice.sampling import Probabilities
from cassandra_spec.drafting.low import LowDrafter
from cassandra_spec.drafting.policy import Plan, Policy
from cassandra_spec.drafting.proposal import (
    ALTERNATIVES,
    DRAFT_VIEW,
    ROOT,
    DraftPass,
    Node,
    Outcome,
    Proposal,
    child,
)
from cassandra_spec.drafting.settings import Settings


@dataclasses.dataclass(frozen=True)
class Choice:
    """Next-token choice from one row of the draft view."""

    token: int
    second: int  # second-best token; none if the margin is infinite
    margin: float  # by which the best exceeds the second-best, in logits
    distribution: Probabilities | None = None  # distribution the token was drawn from [vocabulary]


class View(Protocol):
    """Run passes of the draft view over trees."""

    def run(self, pending: int, nodes: Sequence[Node], position: int) -> None:
        """Run one pass over a token at ``position`` (row 0) and nodes below it (rows 1 and up)."""

    def choose(self, row: int, position: int) -> Choice:
        """Choose the token after a row of the last pass, which will be at ``position``.

        Called at most once per row.
        """

    def keep(self, path: Sequence[int]) -> None:
        """Keep the keys and values of row 0 and of the rows on ``path``; drop all others."""


class LevelDrafter:
    """Draft chains with the draft view, in fewer passes, inside trees (:class:`Drafter`).

    Without ``low`` a pass of the draft view drafts one token; without ``view`` the target verifies
    trees of the low drafter. Acceptance by Eq. 1 uses chains only, for which it is defined.
    """

    def __init__(
        self, low: LowDrafter | None, view: View | None, policy: Policy, settings: Settings
    ) -> None:
        self._low = low
        self._view, self._policy, self._settings = view, policy, settings
        trees = not settings.rejects
        self._branches = settings.levels.branches if trees else 1
        self._alternatives = settings.levels.alternatives if trees and low else 0

    def propose(self, context: Sequence[int], budget: int) -> Proposal:
        """Return a tree of at most ``budget`` nodes: the chain, second-best tokens, the tail."""
        if not budget:
            return Proposal()
        plan = self._policy.plan(len(context) - 1)
        if self._low is not None:
            self._low.extend(context)
        recent = list(context[-LowDrafter.REACH :])
        rows = min(plan.rows, budget)
        chain = _Chain(self._settings, min(plan.model, budget), budget, len(context) - 1)
        if not chain.room or plan.skip_draft_threshold < math.inf:
            tree = min(plan.tree or plan.rows, budget)
            direct = self._tail(chain, recent, tree, plan.min_node_probability)
            promised = 1 + sum(node.confidence for node in direct)
            if not chain.room or promised >= plan.skip_draft_threshold:
                return Proposal(nodes=tuple(direct))
        while self._view is not None and chain.goes_on:
            self._extend(self._view, chain, recent, plan)
        nodes = chain.nodes(self._alternatives, rows)
        if not chain.ended:
            nodes += self._tail(chain, recent, rows - len(nodes), plan.min_node_probability)
        return Proposal(
            nodes=tuple(nodes),
            distributions=self._distributions(chain, nodes),
            passes=tuple(chain.passes),
            stopped=chain.stopped,
        )

    def observe(self, outcome: Outcome) -> None:
        """Update the policy and the low drafter from a verified proposal."""
        self._policy.observe(outcome)
        if self._low is not None:
            for token, best in outcome.seen:
                self._low.recycled.observe(token, best)

    def _extend(self, view: View, chain: _Chain, recent: list[int], plan: Plan) -> None:
        """Run one pass of the draft view and append the tokens that it drafts."""
        count = min(plan.low, chain.budget - len(chain.tokens))
        tree = self._tree(chain, recent, count, depth=chain.room - 1)
        pending = chain.tokens[-1] if chain.tokens else recent[-1]
        chain.passes.append(DraftPass(len(chain.tokens), len(tree) + 1))
        view.run(pending, tree, chain.position + len(chain.tokens))
        row, path = 0, list[int]()
        while True:
            chain.add(view.choose(row, chain.position + len(chain.tokens) + 1))
            below = child(tree, row, chain.tokens[-1])
            if below is None or not chain.goes_on:
                return view.keep(path)
            row = below + 1
            path.append(row)

    def _tree(
        self,
        chain: _Chain,
        recent: list[int],
        count: int,
        *,
        depth: int,
        min_probability: float = 0.0,
    ) -> list[Node]:
        """Return the low drafter's tree below the current end of the chain."""
        if self._low is None:
            return []
        return self._low.tree(
            [*recent, *chain.tokens],
            count,
            branches=self._branches,
            depth=depth,
            min_probability=min_probability,
            stop_tokens=self._settings.stop_tokens,
        )

    def _tail(
        self, chain: _Chain, recent: list[int], count: int, min_probability: float
    ) -> list[Node]:
        """Return the low drafter's tree below the end of the chain, as nodes of the proposal."""
        end, shift = len(chain.tokens) - 1, chain.added
        return [
            dataclasses.replace(node, parent=end if node.parent == ROOT else node.parent + shift)
            for node in self._tree(
                chain, recent, count, depth=count, min_probability=min_probability
            )
        ]

    def _distributions(self, chain: _Chain, nodes: Sequence[Node]) -> Probabilities | None:
        """Return the draft distributions [nodes, vocabulary]; tail tokens have probability 1."""
        drawn = [choice.distribution for choice in chain.choices]
        if not drawn or drawn[0] is None:
            return None
        q = np.zeros((len(nodes), len(drawn[0])))
        q[: len(drawn)] = drawn
        for at, node in enumerate(nodes[len(drawn) :], start=len(drawn)):
            q[at, node.token] = 1.0
        return q


class _Chain:
    """The draft view's chain of a round, under construction."""

    def __init__(self, settings: Settings, max_tokens: int, budget: int, position: int) -> None:
        self._settings, self._max_tokens = settings, max_tokens
        self.budget = budget  # positions after the first that passes may write
        self.position = position
        self.choices: list[Choice] = []
        self.tokens: list[int] = []
        self.passes: list[DraftPass] = []
        self.ended = False  # at a stop token
        self.stopped = False  # at a margin below the minimum
        self.added = 0  # nodes of the chain and its alternatives

    @property
    def room(self) -> int:
        """Number of tokens that the chain may still grow by."""
        return self._max_tokens - len(self.tokens)

    @property
    def goes_on(self) -> bool:
        return self.room > 0 and not (self.ended or self.stopped)

    def add(self, choice: Choice) -> None:
        self.choices.append(choice)
        self.tokens.append(choice.token)
        self.ended = choice.token in self._settings.stop_tokens
        self.stopped = not choice.margin >= self._settings.min_margin

    def nodes(self, alternatives: int, rows: int) -> list[Node]:
        """Return the chain and the second-best tokens with the smallest margins."""
        nodes = [
            Node(choice.token, at - 1, choice.margin, DRAFT_VIEW)
            for at, choice in enumerate(self.choices)
        ]
        limit = self._settings.levels.alternative_margin
        unsure = sorted(
            (choice.margin, at) for at, choice in enumerate(self.choices) if choice.margin < limit
        )
        for margin, at in unsure[: max(min(alternatives, rows - len(nodes)), 0)]:
            nodes.append(Node(self.choices[at].second, at - 1, margin, ALTERNATIVES))
        self.added = len(nodes)
        return nodes


def accept_greedy(
    nodes: Sequence[Node], best: Sequence[int] | Mapping[int, int]
) -> tuple[int, ...]:
    """Return the nodes on the target's own path; ``best`` [1 + nodes] holds its choice per row.

    Rows off the path are not read.
    """
    path, row = list[int](), 0
    while (below := child(nodes, row, best[row])) is not None:
        path.append(below)
        row = below + 1
    return tuple(path)
