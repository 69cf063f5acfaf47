"""Levels of drafting: a low drafter below the draft view, and the draft view below the target.

One pass of the draft view runs over its last token and a tree of the low drafter below it: it
drafts all tokens on the path that agrees with its own choices, and one more. Its chain is the same
as without the tree, in fewer passes. The target then verifies the chain and, in rows that are free,
the draft view's second-best tokens where it was unsure, and the low drafter's tree below the end of
the chain. Without a chain the target verifies the low drafter's tree alone.

Nothing here knows how passes are computed: see :class:`View`. The native engine has the same rounds
in C++ (native/src/engine/round.cpp).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

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
)
from cassandra_spec.drafting.sampling import Probabilities
from cassandra_spec.drafting.settings import GREEDY, Settings


@dataclasses.dataclass(frozen=True)
class Choice:
    """What a row of the draft view says about the next token."""

    token: int  # drawn, or the best
    second: int  # the second best
    margin: float  # by how much the best logit exceeds the second best
    distribution: Probabilities | None = None  # that the token was drawn from [vocabulary]


class View(Protocol):
    """Passes of the draft view over trees."""

    def run(self, pending: int, nodes: Sequence[Node], position: int) -> None:
        """One pass over a token at ``position`` (row 0) and nodes below it (rows from 1 on)."""

    def choose(self, row: int) -> Choice:
        """The token after a row of the last pass. Called once for each row at most."""

    def keep(self, path: Sequence[int]) -> None:
        """Keep the keys and values of row 0 and these rows, one below the other, and no others."""


class LevelDrafter:
    """Chains of the draft view, drafted in fewer passes, within trees (:class:`Drafter`).

    Without ``low`` a pass of the draft view drafts one token; without ``view`` the target verifies
    trees of the low drafter. Under sampling there are no branches: Eq. 1 is for chains.
    """

    def __init__(
        self, low: LowDrafter | None, view: View | None, policy: Policy, settings: Settings
    ) -> None:
        self._low = low
        self._view, self._policy, self._settings = view, policy, settings
        greedy = settings.sampling == GREEDY
        self._branches = settings.levels.branches if greedy else 1
        self._alternatives = settings.levels.alternatives if greedy and low else 0

    def propose(self, context: Sequence[int], budget: int) -> Proposal:
        """A tree of at most ``budget`` nodes: the chain, second-best tokens, the tail."""
        if not budget:
            return Proposal()
        plan = self._policy.plan(len(context) - 1)
        if self._low is not None:
            self._low.extend(context)
        recent = list(context[-LowDrafter.REACH :])
        rows = min(plan.rows, budget)
        chain = _Chain(self._settings, min(plan.model, budget), budget, len(context) - 1)
        if not chain.room or plan.direct < math.inf:
            direct = self._tail(chain, recent, rows, plan.least)
            if not chain.room or 1 + sum(node.confidence for node in direct) >= plan.direct:
                return Proposal(nodes=tuple(direct))
        while self._view is not None and chain.goes_on:
            self._extend(self._view, chain, recent, plan)
        nodes = chain.nodes(self._alternatives, rows)
        if not chain.ended:
            nodes += self._tail(chain, recent, rows - len(nodes), plan.least)
        return Proposal(
            nodes=tuple(nodes),
            distributions=self._distributions(chain, nodes),
            passes=tuple(chain.passes),
            stopped=chain.stopped,
        )

    def observe(self, outcome: Outcome) -> None:
        """Take what became of the last proposal."""
        self._policy.observe(outcome)
        if self._low is not None:
            for token, best in outcome.seen:
                self._low.recycled.observe(token, best)

    def _extend(self, view: View, chain: _Chain, recent: list[int], plan: Plan) -> None:
        """One pass of the draft view, and the tokens that it drafts."""
        count = min(plan.low, chain.budget - len(chain.tokens))
        tree = self._tree(chain, recent, count, depth=chain.room - 1)
        pending = chain.tokens[-1] if chain.tokens else recent[-1]
        chain.passes.append(DraftPass(len(chain.tokens), len(tree) + 1))
        view.run(pending, tree, chain.position + len(chain.tokens))
        row, path = 0, list[int]()
        while True:
            chain.add(view.choose(row))
            below = [n for n, node in enumerate(tree) if node.parent == row - 1]
            found = [n for n in below if tree[n].token == chain.tokens[-1]]
            if not (chain.goes_on and found):
                return view.keep(path)
            row = found[0] + 1
            path.append(row)

    def _tree(
        self, chain: _Chain, recent: list[int], count: int, *, depth: int, least: float = 0.0
    ) -> list[Node]:
        """The low drafter's tree below the chain so far."""
        if self._low is None:
            return []
        return self._low.tree(
            [*recent, *chain.tokens],
            count,
            branches=self._branches,
            depth=depth,
            least=least,
            stop_tokens=self._settings.stop_tokens,
        )

    def _tail(self, chain: _Chain, recent: list[int], count: int, least: float) -> list[Node]:
        """The low drafter's tree below the end of the chain, as nodes of the proposal."""
        end, shift = len(chain.tokens) - 1, chain.added
        return [
            dataclasses.replace(node, parent=end if node.parent == ROOT else node.parent + shift)
            for node in self._tree(chain, recent, count, depth=count, least=least)
        ]

    def _distributions(self, chain: _Chain, nodes: Sequence[Node]) -> Probabilities | None:
        """What each node was drawn from [nodes, vocabulary]: tokens of the tail are certain."""
        drawn = [choice.distribution for choice in chain.choices]
        if not drawn or drawn[0] is None:
            return None
        q = np.zeros((len(nodes), len(drawn[0])))
        q[: len(drawn)] = drawn
        for at, node in enumerate(nodes[len(drawn) :], start=len(drawn)):
            q[at, node.token] = 1.0
        return q


class _Chain:
    """The draft view's chain of a round, while it grows."""

    def __init__(self, settings: Settings, most: int, budget: int, position: int) -> None:
        self._settings, self._most = settings, most
        self.budget = budget  # positions after the first that passes may write
        self.position = position
        self.choices: list[Choice] = []
        self.tokens: list[int] = []
        self.passes: list[DraftPass] = []
        self.ended = False  # by a stop token
        self.stopped = False  # by a margin below the minimum
        self.added = 0  # nodes that the chain and its alternatives have made

    @property
    def room(self) -> int:
        """Tokens that the chain may still get."""
        return self._most - len(self.tokens)

    @property
    def goes_on(self) -> bool:
        return self.room > 0 and not (self.ended or self.stopped)

    def add(self, choice: Choice) -> None:
        self.choices.append(choice)
        self.tokens.append(choice.token)
        self.ended = choice.token in self._settings.stop_tokens
        self.stopped = not choice.margin >= self._settings.min_margin

    def nodes(self, alternatives: int, rows: int) -> list[Node]:
        """The chain, and the second-best tokens of the smallest margins."""
        made = [
            Node(choice.token, at - 1, choice.margin, DRAFT_VIEW)
            for at, choice in enumerate(self.choices)
        ]
        limit = self._settings.levels.alternative_margin
        unsure = sorted(
            (choice.margin, at) for at, choice in enumerate(self.choices) if choice.margin < limit
        )
        for margin, at in unsure[: max(min(alternatives, rows - len(made)), 0)]:
            made.append(Node(self.choices[at].second, at - 1, margin, ALTERNATIVES))
        self.added = len(made)
        return made


def accept_greedy(
    nodes: Sequence[Node], best: Sequence[int] | Mapping[int, int]
) -> tuple[int, ...]:
    """Nodes on the path of the target's own choices, ``best`` [1 + nodes] after each row.

    Rows off the path are not asked for.
    """
    path, row = list[int](), 0
    while True:
        below = (at for at, node in enumerate(nodes) if node.parent == row - 1)
        found = next((at for at in below if nodes[at].token == best[row]), None)
        if found is None:
            return tuple(path)
        path.append(found)
        row = found + 1
