"""Lookahead decoding: a Jacobi window, a pool of n-grams, and its own branch of verification.

The window has ``ngram`` - 1 levels of ``window`` tokens. Token i of level j follows token i of
level j - 1, and level 0 is a chain: as a tree below the last token, window and n-grams of the pool
are verified in one pass. The target's best token after each node of the deepest level is a level
more; the first level drops out, and each column is an n-gram for the pool.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from cassandra_spec.drafting import ROOT, Candidates, Drafter, Node, Outcome, Proposal, Settings
from cassandra_spec.golden import CassandraError
from cassandra_spec.lab.baselines import Method, Prepared
from cassandra_spec.model.speculative import CassandraForCausalLM

WINDOW, POOL = "window", "pool"
"""Sources of nodes."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lookahead(Method, name="lookahead"):
    """W, N and G of the paper."""

    greedy_only = True
    compared = ("lookahead",)
    claim = "1.40 and 1.46 times as fast on two benchmarks (Cassandra, section VII.B)"

    window: int = 5
    ngram: int = 4
    pool: int = 5  # n-grams verified at once, and kept for each first token

    def __post_init__(self) -> None:
        for name, least in {"window": 1, "ngram": 2, "pool": 1}.items():
            if getattr(self, name) < least:
                raise CassandraError(f"{name} must be at least {least}, not {getattr(self, name)}")

    def check_model(self, lm: CassandraForCausalLM) -> None:
        """Check that the window fits the context."""
        most = lm.network.config.max_position_embeddings
        if self.window + self.ngram > most:
            raise CassandraError(
                f"window and ngram must fit the model's {most} positions, not be"
                f" {self.window + self.ngram}"
            )

    def prepare(self, lm: CassandraForCausalLM) -> Prepared:
        """Return the method, which needs no preparation."""
        self.check_model(lm)
        return _Prepared(lm, self)


class _Prepared(Prepared):
    def __init__(self, lm: CassandraForCausalLM, method: Lookahead) -> None:
        super().__init__(lm)
        self._method = method

    def drafter(
        self,
        session: Any,
        settings: Settings,
        seed: int,
        table: Candidates | None = None,
    ) -> Drafter:
        return LookaheadDrafter(self._method, settings)


class LookaheadDrafter:
    """Window and pool of one reply (:class:`cassandra_spec.drafting.Drafter`)."""

    def __init__(self, method: Lookahead, settings: Settings) -> None:
        self._method, self._stops = method, settings.stop_tokens
        self._random = np.random.default_rng(settings.seed)
        self._levels: list[list[int]] = []
        self._pool: dict[int, list[tuple[int, ...]]] = {}
        self._deepest: list[int] = []  # nodes of the last level in the last proposal

    def propose(self, context: Sequence[int], budget: int) -> Proposal:
        """N-grams of the pool that begin with the last token, and the window."""
        if not self._levels:  # any tokens do to begin with
            drawn = self._random.choice(np.asarray(context), self._method.window)
            self._levels = [[int(token) for token in drawn]]
        nodes: list[Node] = []
        for ngram in self._pool.get(context[-1], ()):
            _add_path(nodes, ngram, POOL)
        self._deepest = []
        if len(nodes) + self._method.window * len(self._levels) <= budget:
            for column in range(self._method.window):
                deeper = [level[column] for level in self._levels[1:]]
                path = [*self._levels[0][: column + 1], *deeper]
                self._deepest.append(_add_path(nodes, path, WINDOW))
        return Proposal(nodes=tuple(nodes[:budget]))

    def observe(self, outcome: Outcome) -> None:
        """Take the target's best tokens after the deepest level."""
        if not self._deepest:
            return
        best = [outcome.seen[node + 1][1][0] for node in self._deepest]
        self._levels.append(best)
        if len(self._levels) == self._method.ngram:
            for first, *rest in zip(*self._levels, strict=True):
                self._keep(first, tuple(rest))
            del self._levels[0]

    def _keep(self, first: int, rest: tuple[int, ...]) -> None:
        """Put an n-gram into the pool, before older ones."""
        ngrams = self._pool.setdefault(first, [])
        if rest in ngrams:
            ngrams.remove(rest)
        ngrams.insert(0, rest)
        del ngrams[self._method.pool :]


def _add_path(nodes: list[Node], tokens: Sequence[int], source: str) -> int:
    """Add tokens that follow one another below the root, where they are not there; the last one."""
    at = ROOT
    for token in tokens:
        below = (n for n, node in enumerate(nodes) if (node.parent, node.token) == (at, token))
        found = next(below, None)
        if found is None:
            nodes.append(Node(token, at, 0.0, source))
            found = len(nodes) - 1
        at = found
    return at
