"""Proposals and their outcomes: the contract between drafters and the decode loop.

In each round a :class:`Drafter` proposes nodes below the last token, the target verifies them in
one pass, and the drafter observes the :class:`Outcome`. The reply does not depend on the drafter.

A drafter may wrap another drafter and check its proposal as the target does. Levels compose by
nesting, and the loop sees only the outermost drafter.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from cassandra_spec.drafting.choice.sampling import Probabilities
from cassandra_spec.golden import CassandraError

ROOT = -1
"""Parent of nodes that follow the last token of the context."""

DRAFT_VIEW = "model"
COPIES = "lookup"
TABLE = "table"
RECYCLED = "recycled"
ALTERNATIVES = "second best"
GRAMMAR = "grammar"
"""Sources of nodes, as reports name them."""

LOW = (COPIES, TABLE, RECYCLED)
"""Low drafters: their nodes cost no pass, and their confidence is a probability."""


@dataclasses.dataclass(frozen=True)
class Node:
    """One drafted token."""

    token: int
    parent: int  # index of the parent node, smaller than this node's; or ROOT
    confidence: float  # higher is more certain; comparable only within one kind of source
    source: str  # draft source of the token


@dataclasses.dataclass(frozen=True)
class DraftPass:
    """One pass of the draft view in a round."""

    start: int  # position of the first row, relative to the round's first
    rows: int
    seconds: float = 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Proposal:
    """The drafted tokens of a round: a tree, usually a chain. Empty means plain decoding.

    Raises :class:`CassandraError` if a node comes before its parent.
    """

    nodes: tuple[Node, ...] = ()
    distributions: Probabilities | None = None  # drafts' distributions [nodes, vocabulary]
    passes: tuple[DraftPass, ...] = ()
    stopped: bool = False  # drafting stopped at a node with a margin below the minimum

    def __post_init__(self) -> None:
        for index, node in enumerate(self.nodes):
            if not ROOT <= node.parent < index:
                raise CassandraError(
                    f"parent of node {index} must be from {ROOT} to {index - 1}, not {node.parent}"
                )

    @classmethod
    def chain(cls, tokens: Sequence[int], confidences: Sequence[float], source: str) -> Proposal:
        """Build a chain: each token follows the one before it."""
        drafted = enumerate(zip(tokens, confidences, strict=True))
        return cls(nodes=tuple(Node(token, at - 1, sure, source) for at, (token, sure) in drafted))

    @property
    def tokens(self) -> list[int]:
        """Tokens of the nodes, in order."""
        return [node.token for node in self.nodes]

    @property
    def is_chain(self) -> bool:
        """True if each node follows the one before it."""
        return all(node.parent == index - 1 for index, node in enumerate(self.nodes))

    @property
    def source(self) -> str:
        """Draft source of the first node; empty for an empty proposal."""
        return self.nodes[0].source if self.nodes else ""

    def q(self, vocabulary: int) -> Probabilities:
        """Return the distribution that each token was drawn from, float64 [nodes, vocabulary].

        Without stored distributions each token has probability 1. Eq. 1 then accepts it with the
        target's probability, and otherwise draws from the target's distribution without it.
        """
        if self.distributions is not None:
            return self.distributions
        q = np.zeros((len(self.nodes), vocabulary))
        q[np.arange(len(self.nodes)), self.tokens] = 1.0
        return q


@dataclasses.dataclass(frozen=True)
class Count:
    """Nodes of one source in a round."""

    drafted: int = 0
    tested: int = 0  # nodes whose predecessors were all accepted
    accepted: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """Result of verifying the proposal of a round."""

    proposal: Proposal = Proposal()
    path: tuple[int, ...] = ()  # accepted nodes, each the child of the one before
    seen: tuple[tuple[int, tuple[int, ...]], ...] = ()  # tokens, each with the target's top ones
    verify_seconds: float = 0.0

    @property
    def drafted(self) -> int:
        """Number of nodes in the proposal."""
        return len(self.proposal.nodes)

    @property
    def accepted(self) -> int:
        """Number of accepted nodes."""
        return len(self.path)

    @property
    def passes(self) -> int:
        """Number of draft view passes."""
        return len(self.proposal.passes)

    @property
    def draft_seconds(self) -> float:
        """Time of all draft view passes."""
        return sum(each.seconds for each in self.proposal.passes)

    def counts(self) -> dict[str, Count]:
        """Return the node counts by source."""
        nodes, won = self.proposal.nodes, {ROOT, *self.path}
        counts: dict[str, list[int]] = {}
        for at, node in enumerate(nodes):
            count = counts.setdefault(node.source, [0, 0, 0])
            for kind, happened in enumerate((True, node.parent in won, at in won)):
                count[kind] += happened
        return {source: Count(*count) for source, count in counts.items()}

    def promised(self) -> tuple[float, int]:
        """Return the low drafters' promised nodes (the sum of confidences) and the number accepted.

        Nodes below the end of a chain count if the whole chain was accepted.
        """
        total, kept = 0.0, 0
        won = {ROOT, *self.path}
        reached: dict[int, bool] = {}
        for at, node in enumerate(self.proposal.nodes):
            if node.source in LOW:
                reached[at] = reached.get(node.parent, node.parent in won)
                total += reached[at] * node.confidence
                kept += at in won
        return total, kept


def child(nodes: Sequence[Node], row: int, token: int) -> int | None:
    """Return the node with a token below a row (0: the root, n + 1: node n), if there is one."""
    below = (at for at, node in enumerate(nodes) if node.parent == row - 1)
    return next((at for at in below if nodes[at].token == token), None)


class Drafter(Protocol):
    """Propose tokens. An object serves one reply.

    A proposal lists its passes; :class:`cassandra_spec.drafting.PassCosts` prices them.
    """

    def propose(self, context: Sequence[int], budget: int) -> Proposal:
        """Return at most ``budget`` nodes below the last token of ``context``; may be empty.

        ``context`` is the prompt and all tokens emitted so far. It only grows from call to call.
        """

    def observe(self, outcome: Outcome) -> None:
        """Update from the outcome of the last proposal, or of one that replaced it."""
