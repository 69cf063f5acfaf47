"""Drafts of the baked table (OneDecode): OTT-OD verifies a chain of it, OTT-SWARM more of each slot
(HyperTensor, "Three drafter modes").
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cassandra_spec.drafting import (
    COPIES,
    ROOT,
    TABLE,
    Candidates,
    Drafter,
    LowDrafter,
    Node,
    Outcome,
    Proposal,
    Settings,
)
from cassandra_spec.golden import CassandraError
from cassandra_spec.lab.baselines.low import PreparedLow
from cassandra_spec.lab.baselines.method import Method, Prepared, Speaker
from cassandra_spec.lab.geodesic.one_decode import generate
from cassandra_spec.model.baking import open_table
from cassandra_spec.model.speculative import CassandraForCausalLM, ModelSession

_MOST = 8  # candidates of a slot
_REACH = 3  # last tokens that a table looks at


@dataclasses.dataclass(frozen=True, kw_only=True)
class _OfTable(Method):
    """A method that needs a table."""

    table: Path | None = None  # of `casspec bake-table`; None: the model's

    def check_model(self, lm: CassandraForCausalLM) -> None:
        """There must be a table, of the model."""
        self._table(lm)

    def _table(self, lm: CassandraForCausalLM) -> Candidates:
        """Open the table and check that it belongs to the model."""
        if self.table is not None:
            return open_table(self.table, lm.folder)
        if lm.table is None:
            raise CassandraError(f"table must be given with {self.name}, and is not")
        return lm.table


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableChain(_OfTable, name="ott-od"):
    """A chain of the table, the likeliest token at each place; it ends where no path is likely."""

    claim = "5 of 13 emitted tokens, 1.53 times as fast (section 5.5)"

    threshold: float = 0.0  # least probability of a node's path
    copies: bool = False  # copies of the context, too: at each place the likelier token

    def __post_init__(self) -> None:
        if not 0 <= self.threshold <= 1:
            raise CassandraError(f"threshold must be from 0 to 1, not {self.threshold}")

    def prepare(self, lm: CassandraForCausalLM) -> PreparedChain:
        """Prepare the table; drafting takes no pass."""
        return PreparedChain(lm, self._table(lm), self)


class PreparedChain(PreparedLow):
    """Chains of a table (:class:`cassandra_spec.lab.baselines.Prepared`)."""

    def __init__(self, lm: CassandraForCausalLM, table: Candidates, method: TableChain) -> None:
        sources = (COPIES, TABLE) if method.copies else (TABLE,)
        super().__init__(lm, sources=sources, table=table, min_probability=method.threshold)
        self._lm, self._known, self._method = lm, table, method
        # copies are of the context that a round begins with, a threshold of the path from there
        self.prefix_only = not (method.copies or method.threshold)

    def predictions(self, tokens: Sequence[int], last: int) -> list[int]:
        """Return the table's token after each of the last ones, -1 if it has no entry."""
        ends = range(len(tokens) - last + 1, len(tokens) + 1)
        chains = [self._chain(tokens[:end], 1) for end in ends]
        return [chain[0].token if chain else -1 for chain in chains]

    def chain_length(self, tokens: Sequence[int], most: int) -> int:
        """Return the length of the table's chain."""
        return len(self._chain(tokens, most))

    def _chain(self, tokens: Sequence[int], most: int) -> list[Node]:
        low = LowDrafter(self._known, sources=(TABLE,))
        return low.tree(
            list(tokens[-low.REACH :]),
            most,
            branches=1,
            depth=most,
            stop_tokens=self._lm.stop_tokens(),
        )

    def alone(self) -> Speaker | None:
        """OneDecode, with the method's threshold."""
        if self._method.copies:
            return None
        if not self._method.threshold:
            raise CassandraError("threshold of ott-od must be above 0 without a verifier, not 0.0")
        return self._speak

    def _speak(
        self, prompt: Sequence[int], most: int, stop_tokens: frozenset[int]
    ) -> tuple[list[int], int]:
        limits: dict[str, Any] = {"max_tokens": most, "stop_tokens": stop_tokens}
        threshold = self._method.threshold
        made = list(generate(self._lm, self._known, prompt, threshold=threshold, **limits))
        return [token for token, _ in made], sum(not hit for _, hit in made)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableSwarm(_OfTable, name="ott-swarm"):
    """The chain of the table, and the next likeliest tokens beside each of its nodes."""

    greedy_only = True
    claim = "crashes; acceptance .6 to .8 expected (section 8)"

    branches: int = 4  # K, candidates of a slot

    def __post_init__(self) -> None:
        if not 1 <= self.branches <= _MOST:
            raise CassandraError(f"branches must be from 1 to {_MOST}, not {self.branches}")

    def prepare(self, lm: CassandraForCausalLM) -> PreparedSwarm:
        """Prepare the table; drafting takes no pass."""
        return PreparedSwarm(lm, self._table(lm), self.branches)


class PreparedSwarm(Prepared):
    """Combs of a table (:class:`cassandra_spec.lab.baselines.Prepared`)."""

    def __init__(self, lm: CassandraForCausalLM, table: Candidates, branches: int) -> None:
        super().__init__(lm)
        self._table, self._branches = table, branches

    def drafter(
        self,
        session: ModelSession,
        settings: Settings,
        seed: int,
        table: Candidates | None = None,
    ) -> Drafter:
        """Make a drafter of chains of at most gamma slots."""
        length = settings.levels.rows if settings.gamma == "adaptive" else int(settings.gamma)
        return SwarmDrafter(self._table, length, self._branches, settings.stop_tokens)


class SwarmDrafter:
    """The likeliest chain, and up to ``branches`` - 1 leaves beside each node of it
    (:class:`cassandra_spec.drafting.Drafter`).

    A proposal has all nodes of one with fewer branches, so from the same context it is never
    accepted less. With one branch it is the chain.
    """

    def __init__(
        self, table: Candidates, length: int, branches: int, stop_tokens: frozenset[int]
    ) -> None:
        self._table, self._length, self._branches = table, length, branches
        self._stops = stop_tokens

    def propose(self, context: Sequence[int], budget: int) -> Proposal:
        """Propose the chain, then the leaves by rank, at most ``budget`` nodes."""
        tail, chain, sure = list(context[-_REACH:]), list[Node](), 1.0
        beside: list[list[Node]] = [[] for _ in range(self._branches - 1)]  # by rank
        while len(chain) < min(self._length, budget):
            ranked = sorted(self._table.candidates(tail), key=lambda found: -found[1])
            if not ranked or (chain and chain[-1].token in self._stops):
                break
            parent = len(chain) - 1 if chain else ROOT
            for rank, (token, share) in zip(beside, ranked[1:], strict=False):
                rank.append(Node(token, parent, sure * share, TABLE))
            sure *= ranked[0][1]
            chain.append(Node(ranked[0][0], parent, sure, TABLE))
            tail.append(chain[-1].token)
        leaves = itertools.chain.from_iterable(beside)
        return Proposal(nodes=tuple([*chain, *leaves][:budget]))

    def observe(self, outcome: Outcome) -> None:
        """Ignore the outcome; a table does not change."""
