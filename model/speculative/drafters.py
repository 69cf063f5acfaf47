"""The drafters of a reply, on the passes of a session."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch

from cassandra_spec.drafting import (
    DRAFT_VIEW,
    CopyDrafter,
    Drafter,
    Outcome,
    PolicyDrafter,
    Proposal,
    ReadBytes,
    Settings,
    draw,
    make_policy,
    probabilities,
)

MOST = 8
"""The largest gamma that the adaptive policy takes."""


class Session(Protocol):
    """Draft and target of one sequence, with the keys and values of what they have seen.

    Both write the keys and values of their own positions and read those of all earlier ones.
    ``weights`` is what a pass reads beside keys and values.
    """

    weights: ReadBytes

    def target(self, tokens: Sequence[int], position: int, *, last: int) -> torch.Tensor:
        """The target's logits, float32 [last, vocabulary], of the last of ``tokens``."""

    def draft(self, tokens: Sequence[int], position: int) -> torch.Tensor:
        """The draft's logits, float32 [1, vocabulary], of the last of ``tokens``."""

    def commit(self, position: int) -> None:
        """Say that the tokens before ``position`` are final."""

    def reads(self, position: int) -> ReadBytes:
        """Keys and values that a pass reads whose last token is at ``position``."""

    def stored(self) -> ReadBytes:
        """Memory of the keys and values of all committed positions."""


class DraftView:
    """Drafts a chain with the draft view, one pass for each token (:class:`Drafter`).

    The confidence of a node is its margin: by how much the top logit exceeds the second. Drafting
    stops after a stop token, and after a token with a margin below the minimum.
    """

    def __init__(self, session: Session, settings: Settings, random: np.random.Generator) -> None:
        self._session, self._settings, self._random = session, settings, random

    def propose(self, context: Sequence[int], budget: int) -> Proposal:
        """A chain of at most ``budget`` tokens."""
        tokens, margins = [context[-1]], list[float]()
        q = []
        ends = stopped = False
        while len(margins) < budget and not ends:
            logits = self._session.draft([tokens[-1]], len(context) - 1 + len(margins))
            q.append(probabilities(logits, self._settings.sampling)[0])
            tokens.append(draw(q[-1], self._random))
            first, second = logits[0].topk(2).values.tolist()
            margins.append(first - second)
            stopped = not margins[-1] >= self._settings.min_margin
            ends = stopped or tokens[-1] in self._settings.stop_tokens
        return dataclasses.replace(
            Proposal.chain(tokens[1:], margins, DRAFT_VIEW),
            distributions=np.array(q),
            passes=len(margins),
            stopped=stopped,
        )

    def observe(self, outcome: Outcome) -> None:
        """Nothing depends on it: a pass overwrites the keys and values of rejected positions."""

    def cost(self, position: int) -> float:
        """Bytes that one pass reads."""
        return (self._session.reads(position) + self._session.weights).draft


class _ReadCosts:
    """Bytes that passes read (:class:`cassandra_spec.drafting.PassCosts`)."""

    def __init__(self, session: Session, view: DraftView) -> None:
        self._session = session
        self.draft = view.cost

    def verify(self, position: int, rows: int) -> float:
        """The weights, and the keys and values of the first row: the others add little."""
        return (self._session.reads(position) + self._session.weights).target

    def observe(self, outcome: Outcome) -> None:
        """Bytes are known, not measured."""


def make_drafter(session: Session, settings: Settings, random: np.random.Generator) -> Drafter:
    """The drafter of one reply: copies and the draft view, as settings and policy say."""
    view = DraftView(session, settings, random)
    policy = make_policy(settings, _ReadCosts(session, view), most=MOST)
    return PolicyDrafter(CopyDrafter(settings), view, policy)
