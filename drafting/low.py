"""Low drafters: trees of likely continuations, drafted without a model pass.

Three sources name candidates for the next token: n-gram copies from the context, an n-gram table
(:mod:`cassandra_spec.drafting.table`), and the target's recent top tokens after the same token. The
tree takes the most probable nodes first. The native engine implements the same in C++
(native/src/engine/low.cpp); tests compare both.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

from cassandra_spec.drafting.proposal import COPIES, LOW, RECYCLED, ROOT, TABLE, Node

BRANCHES = 4
"""Maximum candidates of one node from one source."""


class Candidates(Protocol):
    """A source of candidates, such as a table of n-grams."""

    def candidates(self, tail: Sequence[int]) -> list[tuple[int, float]]:
        """Return tokens that may follow ``tail`` and their probabilities, most probable first."""


class Copies:
    """Continuations of each n-gram of 1 to ``LONGEST`` tokens, latest first, each token once.

    The confidence of a token is that of the longest n-gram it followed. Adding and looking up a
    token take constant time.
    """

    LONGEST = 6
    PRECISION = (0.15, 0.40, 0.46, 0.65, 0.70, 0.75)  # by n-gram length, on development prompts

    def __init__(self) -> None:
        self._tokens: list[int] = []
        self._after: dict[tuple[int, ...], list[int]] = {}

    def __len__(self) -> int:
        return len(self._tokens)

    def extend(self, tokens: Iterable[int]) -> None:
        """Append the next tokens of the sequence."""
        for token in tokens:
            for length in range(1, min(self.LONGEST, len(self._tokens)) + 1):
                followers = self._after.setdefault(tuple(self._tokens[-length:]), [])
                if token in followers:
                    followers.remove(token)
                followers.insert(0, token)
                del followers[BRANCHES:]
            self._tokens.append(token)

    def candidates(self, tail: Sequence[int]) -> list[tuple[int, float]]:
        """Return tokens that followed the end of ``tail`` earlier, longer n-grams first."""
        confidences: dict[int, float] = {}
        for length in range(min(self.LONGEST, len(tail)), 0, -1):
            for token in self._after.get(tuple(tail[-length:]), ()):
                confidences.setdefault(token, self.PRECISION[length - 1])
        return list(confidences.items())


class Recycled:
    """The target's top tokens after each token, at its last occurrence."""

    PRECISION = (0.35, 0.12, 0.06, 0.04)  # by rank, on development prompts

    def __init__(self) -> None:
        self._after: dict[int, tuple[int, ...]] = {}

    def observe(self, token: int, best: Sequence[int]) -> None:
        """Store the target's top tokens after ``token``, best first."""
        self._after[token] = tuple(best)

    def candidates(self, tail: Sequence[int]) -> list[tuple[int, float]]:
        """Return the stored top tokens after the last token of ``tail``."""
        return list(zip(self._after.get(tail[-1], ()), self.PRECISION, strict=False))


@dataclasses.dataclass(frozen=True)
class _Candidate:
    """Candidate node of the tree, with the probability of its whole path."""

    probability: float
    token: int
    parent: int
    depth: int
    source: str


class LowDrafter:
    """Build trees of candidates, most probable first. An object serves one reply.

    ``sources`` lists the names of the sources to use. A candidate named by several sources gets the
    largest of their confidences. ``branches`` limits the children of one node; with 1 the tree is a
    chain.
    """

    REACH = Copies.LONGEST
    """Number of last context tokens that candidates depend on."""

    def __init__(self, table: Candidates | None = None, *, sources: Collection[str] = LOW) -> None:
        self.copies, self.recycled = Copies(), Recycled()
        every = {COPIES: self.copies, TABLE: table, RECYCLED: self.recycled}
        self._sources: list[tuple[str, Candidates]] = [
            (name, each) for name, each in every.items() if each is not None and name in sources
        ]

    def extend(self, context: Sequence[int]) -> None:
        """Append the tokens of ``context`` that were added since the last call."""
        self.copies.extend(context[len(self.copies) :])

    def tree(
        self,
        tail: Sequence[int],
        count: int,
        *,
        branches: int,
        depth: int,
        min_probability: float = 0.0,
        stop_tokens: frozenset[int] = frozenset(),
    ) -> list[Node]:
        """Return at most ``count`` nodes below the last token of ``tail``, at most ``depth`` deep.

        Nodes are taken by the product of confidences along their path, largest first; among equals
        the candidate found first wins. Nodes with a product below ``min_probability`` are left out.
        The product becomes the node's confidence. Stop tokens have no children. ``tail`` may have
        tokens that are not in the context.
        """
        recent = list(tail[-Copies.LONGEST :])
        nodes: list[Node] = []
        paths: list[list[int]] = []
        open_nodes = self._children(recent, ROOT, 1.0, 1, branches) if depth else []
        while open_nodes and len(nodes) < count:
            chosen = max(open_nodes, key=lambda node: node.probability)
            if chosen.probability < min_probability:
                break
            open_nodes.remove(chosen)
            before = paths[chosen.parent] if chosen.parent != ROOT else []
            nodes.append(Node(chosen.token, chosen.parent, chosen.probability, chosen.source))
            paths.append([*before, chosen.token])
            if chosen.depth < depth and chosen.token not in stop_tokens:
                path = [*recent, *paths[-1]]
                open_nodes += self._children(
                    path, len(nodes) - 1, chosen.probability, chosen.depth + 1, branches
                )
        return nodes

    def _children(
        self,
        tail: Sequence[int],
        parent: int,
        probability: float,
        depth: int,
        branches: int,
    ) -> list[_Candidate]:
        """Return the best candidates after ``tail``, by confidence, then by source and rank."""
        best: dict[int, tuple[float, str]] = {}
        for source, each in self._sources:
            for token, confidence in each.candidates(tail):
                if confidence > best.get(token, (-1.0, ""))[0]:
                    best[token] = (confidence, source)
        ranked = sorted(best.items(), key=lambda item: -item[1][0])[:branches]
        return [
            _Candidate(probability * confidence, token, parent, depth, source)
            for token, (confidence, source) in ranked
        ]
