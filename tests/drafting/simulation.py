"""Rounds along recorded kinds of text, with the costs of recorded machines: no model, no clock.

The token at place ``n`` of a reply is ``n``, so that no run of tokens comes again. For each place a
record says whether the draft view and the low drafter, after the right tokens, name the right one.
A wrong token is negative, and so is everything that follows it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.drafting import (
    Choice,
    LevelDrafter,
    LowDrafter,
    Node,
    Outcome,
    Policy,
    Settings,
    accept_greedy,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of text, by the probabilities of its records.

    The low drafter has stretches in which it is sure, such as copies, and others.
    """

    draft: float  # that the draft view is right, after right tokens
    sure: float  # share of the text in which the low drafter is sure
    right: tuple[float, float]  # that it is right where it is sure, and elsewhere
    says: tuple[float, float] = (0.65, 0.2)  # its confidences there
    stretch: float = 12.0  # tokens of a sure stretch, on average
    second: float = 0.4  # that the draft view's second-best token is right where the best is not


@dataclasses.dataclass(frozen=True)
class Machine:
    """Seconds of passes by rows, from one row on; linear between those that are named.

    ``slope`` is added for each row and thousand positions that a pass sees; drafts see at most
    ``window`` positions.
    """

    draft: Mapping[int, float]
    verify: Mapping[int, float]
    slope: float = 0.0
    window: int = 1024

    def seconds(self, *, draft: bool, rows: int, position: int) -> float:
        """Return seconds of one pass."""
        named = self.draft if draft else self.verify
        seen = min(position, self.window) if draft else position
        base = float(np.interp(rows, list(named), list(named.values())))
        return base + self.slope * rows * seen / 1000

    def timed(self, outcome: Outcome, position: int = 0) -> Outcome:
        """Return an outcome with the times of its passes."""
        passes = (
            dataclasses.replace(
                each, seconds=self.seconds(draft=True, rows=each.rows, position=position)
            )
            for each in outcome.proposal.passes
        )
        return dataclasses.replace(
            outcome,
            proposal=dataclasses.replace(outcome.proposal, passes=tuple(passes)),
            verify_seconds=self.seconds(draft=False, rows=1 + outcome.drafted, position=position),
        )


class Record:
    """Right tokens at each place of a text, with a :class:`View` and a table along it."""

    STRANGE = -1_000_000  # tokens below this are second-best ones

    def __init__(self, kind: Kind, places: int, seed: int) -> None:
        random = np.random.default_rng(seed)
        self.kind = kind
        self.drafts: NDArray[np.bool_] = random.random(places) < kind.draft
        self.margins = np.where(self.drafts, random.gamma(2.0, 2.0, places), 0.0)
        self.margins += random.gamma(1.0, 1.0, places)
        self.seconds = random.random(places) < kind.second
        self.sure = self._stretches(random, places)
        self.lows: NDArray[np.bool_] = random.random(places) < np.where(self.sure, *kind.right)
        self.rows: list[int] = []

    def _stretches(self, random: np.random.Generator, places: int) -> NDArray[np.bool_]:
        kind, found = self.kind, np.zeros(places, bool)
        ends = 1 / kind.stretch
        begins = ends * kind.sure / max(1 - kind.sure, 1e-9)
        state = random.random() < kind.sure
        for place, drawn in enumerate(random.random(places)):
            state = drawn >= ends if state else drawn < begins
            found[place] = state
        return found

    def candidates(self, tail: Sequence[int]) -> list[tuple[int, float]]:
        """Return the low drafter's one candidate after the last token."""
        place = tail[-1] + 1
        if not 0 < place < len(self.lows):
            return []
        says = self.kind.says[0 if self.sure[place] else 1]
        return [(place if self.lows[place] else -place, says)]

    def run(self, pending: int, nodes: Sequence[Node], position: int) -> None:
        self.rows = [pending, *(node.token for node in nodes)]

    def choose(self, row: int, position: int) -> Choice:
        place = self.rows[row] + 1
        if not 0 < place < len(self.drafts):
            return Choice(-1, self.STRANGE, 9.0)
        right = self.drafts[place]
        token = place if right else -place - 1
        second = place if self.seconds[place] and not right else self.STRANGE
        return Choice(token, second, float(self.margins[place]))

    def keep(self, path: Sequence[int]) -> None: ...


@dataclasses.dataclass(frozen=True)
class Played:
    """Totals of rounds along a record."""

    seconds: float
    tokens: int

    @property
    def rate(self) -> float:
        """Tokens per second."""
        return self.tokens / self.seconds


class Round(NamedTuple):
    """An outcome, the position that it began at, and the tokens that it brought."""

    outcome: Outcome
    position: int
    tokens: int


def rounds(
    record: Record,
    settings: Settings,
    policy: Policy,
    *,
    places: int,
    prompt: int = 1,
    machine: Machine | None = None,
) -> Iterator[Round]:
    """Yield rounds that decode ``places`` tokens after a prompt, with a machine's times if given.

    A policy that observes no times has the same rounds with every machine.
    """
    view = record if settings.uses_draft_view else None
    low = LowDrafter(record) if settings.uses_low_drafter else None
    drafter = LevelDrafter(low, view, policy, settings)
    context = [0] * prompt
    while len(context) < prompt - 1 + places:
        position = len(context) - 1
        proposal = drafter.propose(context, 99)
        best = [node.token + 1 if node.token > 0 else 0 for node in proposal.nodes]
        path = accept_greedy(proposal.nodes, [context[-1] + 1, *best])
        outcome = Outcome(proposal=proposal, path=path)
        outcome = machine.timed(outcome, position) if machine else outcome
        drafter.observe(outcome)
        yield Round(outcome, position, len(path) + 1)
        start = context[-1] + 1
        context.extend(range(start, start + len(path) + 1))


def play(
    record: Record,
    machine: Machine,
    settings: Settings,
    policy: Policy,
    *,
    skip: int,
    places: int,
    prompt: int = 1,
) -> Played:
    """Play rounds; what the first ``skip`` tokens cost is not counted."""
    played = rounds(record, settings, policy, places=places, prompt=prompt, machine=machine)
    counted = [each for each in played if each.position + 1 > prompt - 1 + skip]
    seconds = sum(each.outcome.draft_seconds + each.outcome.verify_seconds for each in counted)
    return Played(seconds, sum(each.tokens for each in counted))


MACHINES = {
    # a server with matrix units: rows are nearly free
    "matrix units": Machine(draft={1: 0.36, 4: 0.40, 8: 0.46}, verify={1: 1.0, 4: 1.05, 9: 1.15}),
    # a desktop without: docs/results/kernels.md
    "vectors": Machine(draft={1: 0.36, 4: 0.43, 8: 0.70}, verify={1: 1.0, 4: 1.2, 9: 1.9}),
    # such a machine behind 4,096 tokens; drafts read 1,040 of them
    "long context": Machine(draft={1: 0.25, 4: 0.32, 8: 0.47}, verify={1: 1.0, 4: 1.35, 8: 2.05}),
}
KINDS = {
    "prose": Kind(draft=0.85, sure=0.15, right=(0.65, 0.2)),
    "copies": Kind(draft=0.92, sure=0.6, right=(0.9, 0.3), stretch=25),
    "verse": Kind(draft=0.6, sure=0.05, right=(0.5, 0.1)),
    "misleading": Kind(draft=0.85, sure=0.6, right=(0.1, 0.05)),
    "lists": Kind(draft=0.35, sure=0.7, right=(0.85, 0.3)),
    "noise": Kind(draft=0.03, sure=0.1, right=(0.02, 0.02), second=0.03),
}
