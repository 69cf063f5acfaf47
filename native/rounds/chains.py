"""Sampled replies of the native engine by Eq. 1 (:mod:`cassandra_spec.drafting.sessions`).

The engine runs passes over chains; Python draws the tokens and accepts drafted ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.drafting import (
    ROOT,
    Counters,
    DraftCache,
    Node,
    ReadBytes,
    Score,
    Settings,
    decode,
    never,
)
from cassandra_spec.golden import CassandraError
from cassandra_spec.native.engine import Engine


class _Chains:
    """Passes of an engine over chains (:class:`cassandra_spec.drafting.Session`)."""

    def __init__(self, engine: Engine, draft_cache: DraftCache) -> None:
        self._engine, self._draft_cache = engine, draft_cache
        self._position = engine.memory()["position"]
        self._committed = 0
        self.weights = engine.costs.weights if engine.costs else ReadBytes()
        self.seconds = {"prompt": 0.0, "draft": 0.0, "verify": 0.0}

    def prompt(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        return self._run("prompt", tokens, 0, last=1)

    def target(self, pending: int, nodes: Sequence[Node], position: int) -> NDArray[np.float32]:
        return self._run("verify", _tokens(pending, nodes), position)

    def draft(self, pending: int, nodes: Sequence[Node], position: int) -> NDArray[np.float32]:
        return self._run("draft", _tokens(pending, nodes), position)

    def keep(self, path: Sequence[int]) -> None:
        """Do nothing: the next pass overwrites the positions after a chain's accepted part."""

    def commit(self, position: int) -> None:
        self._committed = position

    def reads(self, position: int) -> ReadBytes:
        runs = self._draft_cache.runs(self._committed, 0, position + 1)
        size = (position + 1) * self._position
        draft = sum(stop - first for first, stop in runs) * self._position
        return ReadBytes(draft=draft, target=size, bf16=size)

    def stored(self) -> ReadBytes:
        return self.reads(self._committed - 1)

    def _run(
        self, kind: str, tokens: Sequence[int], position: int, last: int | None = None
    ) -> NDArray[np.float32]:
        begun = time.perf_counter()
        draft = kind == "draft"
        logits = self._engine.forward(
            tokens, position, draft=draft, draft_cache=self._draft_cache, last=last
        )
        self.seconds[kind] += time.perf_counter() - begun
        return logits


def _tokens(pending: int, nodes: Sequence[Node]) -> list[int]:
    if any(node.parent != place for place, node in enumerate(nodes, start=ROOT)):
        raise CassandraError("levels must draft chains (branches 1, alternatives 0), not trees")
    return [pending, *(node.token for node in nodes)]


def rejecting_rounds(
    engine: Engine,
    prompt: Sequence[int],
    settings: Settings,
    counters: Counters,
    *,
    ends: Callable[[int], bool] = never,
    scores: list[Score] | None = None,
) -> Iterator[list[int]]:
    """Yield the tokens of a sampled reply, like :meth:`Engine.rounds`, by Eq. 1.

    Drafts are chains. An adaptive gamma counts bytes, not seconds. Raises :class:`CassandraError`
    like :meth:`Engine.rounds`.
    """
    engine.require_room(prompt, settings)
    engine.require_drafts(settings)
    passes = _Chains(engine, settings.draft_cache)
    options: dict[str, Any] = {"ends": ends, "table": engine.table, "scores": scores}
    for emitted in decode(passes, prompt, settings, counters, **options):
        for kind, seconds in passes.seconds.items():
            name = f"{kind}_seconds"
            setattr(counters, name, getattr(counters, name) + seconds)
            passes.seconds[kind] = 0.0
        yield emitted
