"""The drafter of a reply, on the passes of a session."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import torch

from cassandra_spec.drafting import (
    Candidates,
    Choice,
    Drafter,
    LevelDrafter,
    LowDrafter,
    Node,
    Outcome,
    PassCosts,
    ReadBytes,
    Settings,
    draw,
    make_policy,
    probabilities,
)

MOST = 8
"""The most nodes that the adaptive policy plans."""


class DraftPasses(Protocol):
    """Draft passes over trees of one sequence.

    A pass over a tree has row 0 for a token at ``position`` and a row for each node below it, which
    sees the positions before and the nodes above it; :meth:`keep` says which of them stay.
    """

    def draft(self, pending: int, nodes: Sequence[Node], position: int) -> torch.Tensor:
        """The draft's logits, float32 [1 + nodes, vocabulary], of a tree."""

    def keep(self, path: Sequence[int]) -> None:
        """Of the last pass keep the keys and values of row 0 and of these nodes, in a row."""


class Session(DraftPasses, Protocol):
    """Draft and target of one sequence, with the keys and values of what they have seen.

    Both write the keys and values of their own positions and read those of all earlier ones.
    ``weights`` is what a pass reads beside keys and values.
    """

    weights: ReadBytes

    def prompt(self, tokens: Sequence[int]) -> torch.Tensor:
        """The target's logits, float32 [1, vocabulary], of the last token of a prompt."""

    def target(self, pending: int, nodes: Sequence[Node], position: int) -> torch.Tensor:
        """The target's logits, float32 [1 + nodes, vocabulary], of a tree."""

    def commit(self, position: int) -> None:
        """Say that the tokens before ``position`` are final."""

    def reads(self, position: int) -> ReadBytes:
        """Keys and values that a pass reads whose last token is at ``position``."""

    def stored(self) -> ReadBytes:
        """Memory of the keys and values of all committed positions."""


class PassView:
    """What a session's or another network's draft passes say
    (:class:`cassandra_spec.drafting.View`).
    """

    def __init__(
        self, passes: DraftPasses, settings: Settings, random: np.random.Generator
    ) -> None:
        self._passes, self._settings, self._random = passes, settings, random

    def run(self, pending: int, nodes: Sequence[Node], position: int) -> None:
        """One pass over a token at ``position`` (row 0) and nodes below it."""
        self._logits = self._passes.draft(pending, nodes, position)

    def choose(self, row: int) -> Choice:
        """The token after a row of the last pass."""
        logits = self._logits[row : row + 1]
        q = probabilities(logits, self._settings.sampling)[0]
        top = logits[0].topk(2)
        first, second = top.values.tolist()
        token, margin = draw(q, self._random), self.margin(row, first - second)
        return Choice(token, _second(top.indices.tolist(), token), margin, q)

    def margin(self, row: int, apart: float) -> float:
        """How sure the draft is of the token after a row, whose two best logits differ so much."""
        return apart

    def keep(self, path: Sequence[int]) -> None:
        """Keep the keys and values of row 0 and these rows, and no others."""
        self._passes.keep([row - 1 for row in path])


def _second(best: list[int], token: int) -> int:
    return best[1] if best[0] == token else best[0]


class _ReadCosts:
    """Bytes that passes read (:class:`cassandra_spec.drafting.PassCosts`)."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def draft(self, position: int, rows: int) -> float:
        """The weights, and the keys and values of the first row: the others add little."""
        return (self._session.reads(position) + self._session.weights).draft

    def verify(self, position: int, rows: int) -> float:
        """The same of the target."""
        return (self._session.reads(position) + self._session.weights).target

    def observe(self, outcome: Outcome) -> None:
        """Bytes are known, not measured."""


DrafterFactory = Callable[
    [Any, Settings, np.random.Generator, Candidates | None],
    Drafter,
]
"""Makes the drafter of one reply, of a session, settings, randomness and a table or None."""


def make_drafter(
    session: Session,
    settings: Settings,
    random: np.random.Generator,
    table: Candidates | None = None,
    *,
    passes: DraftPasses | None = None,
    costs: PassCosts | None = None,
) -> Drafter:
    """The drafter of one reply, as settings and policy say; ``table`` is for its low drafter.

    ``passes`` are those of another draft than the session's, and ``costs`` what they cost.
    """
    view = PassView(passes or session, settings, random) if settings.uses_draft_view else None
    policy = make_policy(settings, costs or _ReadCosts(session), most=MOST)
    low = LowDrafter(table) if settings.uses_low_drafter else None
    return LevelDrafter(low, view, policy, settings)
