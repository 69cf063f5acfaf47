"""Low drafters alone: tokens that cost no pass go to the target directly."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Any

from cassandra_spec.drafting import LOW, Candidates, Drafter, LevelDrafter, LowDrafter, Settings
from cassandra_spec.drafting.policy import FixedPolicy, Plan
from cassandra_spec.lab.baselines.method import Prepared
from cassandra_spec.model.speculative import CassandraForCausalLM


class PreparedLow(Prepared):
    """Trees of some sources, verified directly.

    ``sources`` are names of low drafters, ``nodes`` those of a round (None: gamma), ``branches``
    candidates of one place; with 1 the tree is a chain. ``table`` is of n-grams, instead of the
    loop's; ``min_probability`` is the probability of a path from which a node is worth its row.
    """

    def __init__(
        self,
        lm: CassandraForCausalLM,
        *,
        sources: Collection[str] = LOW,
        nodes: int | None = None,
        branches: int = 1,
        table: Candidates | None = None,
        min_probability: float = 0.0,
        memory: int = 0,
        training_seconds: float = 0.0,
    ) -> None:
        super().__init__(lm, memory=memory, training_seconds=training_seconds)
        self._sources, self._nodes, self._branches = sources, nodes, branches
        self._table, self._min_probability = table, min_probability

    def drafter(
        self,
        session: Any,
        settings: Settings,
        seed: int,
        table: Candidates | None = None,
    ) -> Drafter:
        """Make a drafter with a fixed tree size; under sampling it drafts chains."""
        levels = dataclasses.replace(settings.levels, branches=self._branches)
        asked = dataclasses.replace(settings, draft="lookup", levels=levels)
        nodes = self._nodes or (asked.levels.rows if asked.gamma == "adaptive" else asked.gamma)
        low = LowDrafter(self._table or table, sources=self._sources)
        plan = Plan(rows=int(nodes), min_node_probability=self._min_probability)
        return LevelDrafter(low, None, FixedPolicy(plan), asked)
