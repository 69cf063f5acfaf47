"""Low drafters: tokens that cost no pass, as a tree of the likeliest continuations.

Three sources name candidates for the next token: copies of what followed the last tokens before, a
table of n-grams (:mod:`cassandra_spec.drafting.table`), and what the target itself held likely
after the same token lately. The tree takes the likeliest nodes first. The native engine has the
same in C++ (native/src/engine/low.cpp); tests hold both together.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

from cassandra_spec.drafting.proposal import COPIES, LOW, RECYCLED, ROOT, TABLE, Node

BRANCHES = 4
"""Candidates of one place that a source names at most."""


class Candidates(Protocol):
    """A source of candidates, such as a table of n-grams."""

    def candidates(self, tail: Sequence[int]) -> list[tuple[int, float]]:
        """Tokens that may follow ``tail`` and the probability of each, the likeliest first."""


class Copies:
    """What followed each run of 1 to ``LONGEST`` tokens, the latest first, each token once.

    The confidence is that of the longest run that a token followed. A token costs a constant number
    of steps to add and to look up.
    """

    LONGEST = 6
    PRECISION = (0.15, 0.40, 0.46, 0.65, 0.70, 0.75)  # by length of the run, on development prompts

    def __init__(self) -> None:
        self._tokens: list[int] = []
        self._after: dict[tuple[int, ...], list[int]] = {}

    def __len__(self) -> int:
        return len(self._tokens)

    def extend(self, tokens: Iterable[int]) -> None:
        """Take the next tokens of the sequence."""
        for token in tokens:
            for length in range(1, min(self.LONGEST, len(self._tokens)) + 1):
                found = self._after.setdefault(tuple(self._tokens[-length:]), [])
                if token in found:
                    found.remove(token)
                found.insert(0, token)
                del found[BRANCHES:]
            self._tokens.append(token)

    def candidates(self, tail: Sequence[int]) -> list[tuple[int, float]]:
        """Tokens that followed the end of ``tail`` before, those of longer runs first."""
        found: dict[int, float] = {}
        for length in range(min(self.LONGEST, len(tail)), 0, -1):
            for token in self._after.get(tuple(tail[-length:]), ()):
                found.setdefault(token, self.PRECISION[length - 1])
        return list(found.items())


class Recycled:
    """What the target held likely after each token, the last time that it saw it."""

    PRECISION = (0.35, 0.12, 0.06, 0.04)  # by rank, on development prompts

    def __init__(self) -> None:
        self._after: dict[int, tuple[int, ...]] = {}

    def observe(self, token: int, best: Sequence[int]) -> None:
        """Take the target's best tokens after ``token``, the best first."""
        self._after[token] = tuple(best)

    def candidates(self, tail: Sequence[int]) -> list[tuple[int, float]]:
        """The best tokens after the last one of ``tail``."""
        return list(zip(self._after.get(tail[-1], ()), self.PRECISION, strict=False))


@dataclasses.dataclass(frozen=True)
class _Open:
    """A node that the tree may take, with the probability of its whole path."""

    probability: float
    token: int
    parent: int
    depth: int
    source: str


class LowDrafter:
    """Trees of candidates, the likeliest first. An object serves one reply.

    ``sources`` are names of those that are asked. A candidate that several of them name has the
    largest of their confidences. ``branches`` is the most candidates of one place; with 1 the tree
    is a chain.
    """

    REACH = Copies.LONGEST
    """Last tokens of a context that candidates depend on."""

    def __init__(self, table: Candidates | None = None, *, sources: Collection[str] = LOW) -> None:
        self.copies, self.recycled = Copies(), Recycled()
        every = {COPIES: self.copies, TABLE: table, RECYCLED: self.recycled}
        self._sources: list[tuple[str, Candidates]] = [
            (name, each) for name, each in every.items() if each is not None and name in sources
        ]

    def extend(self, context: Sequence[int]) -> None:
        """Take the tokens of ``context`` that are new since the last call."""
        self.copies.extend(context[len(self.copies) :])

    def tree(
        self,
        tail: Sequence[int],
        count: int,
        *,
        branches: int,
        depth: int,
        least: float = 0.0,
        stop_tokens: frozenset[int] = frozenset(),
    ) -> list[Node]:
        """At most ``count`` nodes below the last token of ``tail``, at most ``depth`` deep.

        The node whose path has the largest product of confidences comes next, the one found first
        among equals; none whose product is below ``least``. The product is the confidence of the
        node. Nothing follows a stop token. ``tail`` may have tokens that are not in the context.
        """
        recent = list(tail[-Copies.LONGEST :])
        nodes: list[Node] = []
        paths: list[list[int]] = []
        open_nodes = self._below(recent, ROOT, 1.0, 1, branches) if depth else []
        while open_nodes and len(nodes) < count:
            chosen = max(open_nodes, key=lambda node: node.probability)
            if chosen.probability < least:
                break
            open_nodes.remove(chosen)
            before = paths[chosen.parent] if chosen.parent != ROOT else []
            nodes.append(Node(chosen.token, chosen.parent, chosen.probability, chosen.source))
            paths.append([*before, chosen.token])
            if chosen.depth < depth and chosen.token not in stop_tokens:
                path = [*recent, *paths[-1]]
                open_nodes += self._below(
                    path, len(nodes) - 1, chosen.probability, chosen.depth + 1, branches
                )
        return nodes

    def _below(
        self,
        tail: Sequence[int],
        parent: int,
        probability: float,
        depth: int,
        branches: int,
    ) -> list[_Open]:
        """The best candidates after ``tail``, sorted by confidence, then by source and rank."""
        best: dict[int, tuple[float, str]] = {}
        for source, each in self._sources:
            for token, confidence in each.candidates(tail):
                if confidence > best.get(token, (-1.0, ""))[0]:
                    best[token] = (confidence, source)
        ranked = sorted(best.items(), key=lambda item: -item[1][0])[:branches]
        return [
            _Open(probability * confidence, token, parent, depth, source)
            for token, (confidence, source) in ranked
        ]
