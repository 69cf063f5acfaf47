"""Passes over trees of tokens, as chains from the root to the leaves.

Each node is computed where a chain of the nodes above it would have it: at the position of its
depth, in that position's row of a tile. So its logits are those of plain decoding along its path,
bit for bit. Branches share positions: a branch overwrites the keys and values of the ones before
it, and those that are needed again are put back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from cassandra_spec.drafting import Node
from cassandra_spec.model.speculative.key_values import KeyValueCache, Pair
from cassandra_spec.model.speculative.passes import run_pass


class TreePass:
    """One pass over a token at ``position`` (row 0) and nodes below it (rows from 1 on).

    ``logits`` are float32 [1 + nodes, vocabulary]. The other arguments are those of
    :func:`cassandra_spec.model.speculative.passes.run_pass`.
    """

    def __init__(
        self,
        network: Any,
        cache: KeyValueCache,
        pending: int,
        nodes: Sequence[Node],
        position: int,
        *,
        rows: int,
        draft: bool = False,
    ) -> None:
        self._cache, self._position = cache, position
        self._above = [None, *(node.parent + 1 for node in nodes)]
        self._saved: list[list[Pair]] = []  # keys and values of each row, by layer
        self._held: list[int] = []  # rows in the cache, by depth
        tokens = [pending, *(node.token for node in nodes)]
        logits = []
        for run in self._runs():
            above = self._path(run[0])[:-1]
            self.hold(above)
            start = position + len(above)
            chain = tokens[run.start : run.stop]
            logits.append(run_pass(network, cache, chain, start, rows=rows, draft=draft))
            self._held[len(above) :] = run
            self._saved += [cache.rows(start + depth) for depth in range(len(run))]
        self.logits = torch.cat(logits)

    def hold(self, path: Sequence[int]) -> None:
        """Write the keys and values of consecutive rows from row 0 to the cache."""
        same = 0
        while same < len(path) and self._held[same : same + 1] == [path[same]]:
            same += 1
        for depth, row in enumerate(path[same:], start=same):
            self._cache.restore(self._position + depth, self._saved[row])
        self._held = list(path)

    def _runs(self) -> Iterator[range]:
        """Yield maximal runs of rows in which each row is the child of the row before."""
        start = 0
        for row in range(1, len(self._above) + 1):
            if row == len(self._above) or self._above[row] != row - 1:
                yield range(start, row)
                start = row

    def _path(self, row: int) -> list[int]:
        """Return the rows on the path from row 0 to a row."""
        above = self._above[row]
        return [row] if above is None else [*self._path(above), row]


class TreePasses:
    """Passes of a network over trees of one sequence; ``rows`` is the size of tiles."""

    def __init__(self, network: Any, cache: KeyValueCache, rows: int) -> None:
        self.network, self.cache, self.rows = network, cache, rows
        self._last: TreePass | None = None

    def run(
        self, pending: int, nodes: Sequence[Node], position: int, *, draft: bool = False
    ) -> torch.Tensor:
        """Compute the logits, float32 [1 + nodes, vocabulary], of a token and nodes below it."""
        self._last = TreePass(
            self.network, self.cache, pending, nodes, position, rows=self.rows, draft=draft
        )
        return self._last.logits

    def keep(self, path: Sequence[int]) -> None:
        """Keep the keys and values of row 0 and of these nodes of the last pass, consecutively."""
        assert self._last is not None, "a pass comes first"
        self._last.hold([0, *(node + 1 for node in path)])
