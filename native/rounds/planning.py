"""Plans of rounds on one engine: what passes cost here, and what drafts have gained so far."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

from cassandra_spec.drafting import (
    DraftCache,
    Gains,
    MeasuredSeconds,
    Outcome,
    Plan,
    Planner,
    Settings,
)
from cassandra_spec.native.library import isa
from cassandra_spec.native.limits import MAX_GAMMA
from cassandra_spec.native.rounds.hints import hint_path, read_hint, write_hint

ADAPTIVE_NODES = 7
"""Maximum nodes planned by an adaptive gamma, unless verifications are filled with more."""

_SLOPES = {"avx2": 0.15, "avx512": 0.1, "neon": 0.15, "avx512bf16": 0.05, "neonbf16": 0.1}
"""Assumed cost of a row more, in passes of one row, by instruction set, until it is measured."""


class Planning:
    """Planners by what drafts read, and the gains that new sequences begin with.

    A sequence has estimates of its own. They begin as those of all sequences so far with the same
    draft settings. ``machine`` returns what times depend on; they are kept for later processes
    (:mod:`.hints`) unless it is empty.
    """

    def __init__(self, machine: Callable[[], list[object]]) -> None:
        self._machine = machine
        self._planners: dict[DraftCache, tuple[Planner, Path | None]] = {}
        self._gains: dict[object, Gains] = {}

    def planner(self, settings: Settings) -> Planner:
        """Return the planner for drafts that read the same part of the KV cache."""
        cache = settings.draft_cache
        if cache not in self._planners:
            costs, machine = MeasuredSeconds(cache, slope=_SLOPES.get(isa(), 1.0)), self._machine()
            path = hint_path(*machine, cache) if machine else None
            hint = read_hint(path) if path else None
            if hint:
                costs.begin(hint)
            self._planners[cache] = Planner(costs), path
        return self._planners[cache][0]

    def gains(self, settings: Settings, *, max_nodes: int = ADAPTIVE_NODES) -> Gains:
        """Return the estimates of a new sequence."""
        return copy.deepcopy(self._known(settings, max_nodes))

    def _known(self, settings: Settings, max_nodes: int) -> Gains:
        nodes = min(max(max_nodes, settings.levels.rows), MAX_GAMMA)
        key = settings.draft, settings.min_margin, settings.levels, settings.draft_cache, nodes
        if key not in self._gains:
            self._gains[key] = Gains(settings, max_nodes=nodes)
        return self._gains[key]

    def observe(self, settings: Settings, gains: Gains, outcome: Outcome, plan: Plan) -> None:
        """Update the estimates of a sequence, and those that later ones begin with."""
        gains.observe(outcome, plan)
        self._known(settings, gains.max_nodes).observe(outcome, plan)

    def save_hints(self) -> None:
        """Save the times of adaptive rounds for the next process."""
        for planner, path in self._planners.values():
            state = planner.costs.state() if isinstance(planner.costs, MeasuredSeconds) else None
            if path and state and state["verify"]["times"]:
                write_hint(path, state)
