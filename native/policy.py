"""What a round may draft: always the same, or what pays by the times and acceptances so far."""

from __future__ import annotations

import dataclasses
from typing import Protocol

from cassandra_spec.native.engine_binding import MAX_ROWS

__all__ = ["MOST", "AdaptivePolicy", "FixedPolicy", "Outcome", "Plan", "Policy"]

MOST = MAX_ROWS - 1
"""The largest gamma: a round is verified in one pass."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """The most tokens that a round drafts: by copying where there is something to copy, else by the
    model.
    """

    model: int = 0
    copied: int = 0

    def __str__(self) -> str:
        parts = [
            f"{source} {most}"
            for source, most in (("lookup", self.copied), ("model", self.model))
            if most
        ]
        return ", ".join(parts) or "plain"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of a round."""

    drafted: int
    accepted: int
    copied: bool  # the draft was
    stopped: bool  # by a small margin
    draft_seconds: float
    verify_seconds: float


class Policy(Protocol):
    """Plans the rounds of an engine."""

    def plan(self) -> Plan:
        """What the next round may draft."""
        ...

    def count(self, outcome: Outcome) -> None:
        """Take what became of a round."""
        ...


@dataclasses.dataclass(frozen=True)
class FixedPolicy:
    """The same plan for each round."""

    fixed: Plan

    def plan(self) -> Plan:
        """What the next round may draft."""
        return self.fixed

    def count(self, outcome: Outcome) -> None:
        """Nothing depends on it."""


class _Share:
    """How often something happens, the last times weighing most.

    Each round takes ``DECAY`` off what was counted, whether or not there is something to count;
    ``WEIGHT`` cases of the share ``prior`` are always added. So an estimate that ends all counting
    is forgotten after some dozens of rounds, and a new one made.
    """

    DECAY = 0.97
    WEIGHT = 3.0

    def __init__(self, prior: float) -> None:
        self._prior = prior
        self._happened = self._cases = 0.0

    @property
    def value(self) -> float:
        return (self._happened + self._prior * self.WEIGHT) / (self._cases + self.WEIGHT)

    def count(self, happened: int, cases: int) -> None:
        self._happened = self._happened * self.DECAY + happened
        self._cases = self._cases * self.DECAY + cases


class _Seconds:
    """A time that drifts; single slow measurements count little."""

    RATE = 0.1
    OUTLIER = 2.0

    def __init__(self) -> None:
        self.value: float | None = None

    def add(self, seconds: float) -> None:
        if self.value is None:
            self.value = seconds
        bounded = min(seconds, self.OUTLIER * self.value)
        self.value += self.RATE * (bounded - self.value)


class AdaptivePolicy:
    """The plan that gives most tokens a second if things go on as they were.

    A verification of r rows takes as long as those did lately; where there were none, as long as
    one of a near number of rows, and ``ROW`` of the time of one row more for each row between.
    With ``a`` the share of accepted tokens among drafted ones whose predecessors were accepted, and
    ``s`` the probability that a draft goes on (its margin was large enough), the model's rounds put
    out ``1 + a + s a^2 + s^2 a^3 ...`` tokens on average. Copies take no time, and have shares of
    their own. ``model`` and ``lookup`` say which drafts may be made.

    One object serves an engine, over all of its replies; ``plans`` counts what was chosen.
    """

    ROW = 0.05
    DRAFT = 0.4  # of a verification of one row, as long as no draft was timed

    def __init__(self, *, model: bool, lookup: bool) -> None:
        self._model = model
        self._lookup = lookup
        self._draft = _Seconds()
        self._verify = {rows: _Seconds() for rows in range(1, MAX_ROWS + 1)}
        self._modelled, self._copied = _Share(0.8), _Share(0.6)
        self._going_on = _Share(0.9)
        self.plans: dict[str, int] = {}

    def plan(self) -> Plan:
        """What the next round may draft."""
        worths = {most: self._model_worth(most) for most in range(MOST + 1 if self._model else 1)}
        model = max(worths, key=lambda most: worths[most])
        copied = 0
        if self._lookup:
            copies = {most: self._copy_worth(most) for most in range(1, MOST + 1)}
            best = max(copies, key=lambda most: copies[most])
            copied = best if copies[best] > worths[model] else 0
        chosen = Plan(model, copied)
        self.plans[str(chosen)] = self.plans.get(str(chosen), 0) + 1
        return chosen

    def count(self, outcome: Outcome) -> None:
        """Take what became of a round."""
        self._verify[outcome.drafted + 1].add(outcome.verify_seconds)
        tested = outcome.accepted + (outcome.accepted < outcome.drafted)
        modelled = outcome.drafted > 0 and not outcome.copied
        own, other = self._modelled, self._copied
        if outcome.copied:
            own, other = other, own
        own.count(outcome.accepted, tested)
        other.count(0, 0)
        cases = outcome.drafted - 1 + outcome.stopped if modelled else 0
        self._going_on.count(cases - outcome.stopped if modelled else 0, cases)
        if modelled:
            self._draft.add(outcome.draft_seconds / outcome.drafted)

    def verify_seconds(self, rows: int) -> float:
        """Time of a verification, measured or estimated."""
        known = {at: time.value for at, time in self._verify.items() if time.value is not None}
        if not known:
            return 1 + self.ROW * (rows - 1)  # in units of one row: only quotients count
        near = min(known, key=lambda at: (abs(at - rows), at))
        one = known[near] / (1 + self.ROW * (near - 1))
        return known[near] + self.ROW * (rows - near) * one

    def draft_seconds(self) -> float:
        """Time of one pass of the draft, measured or estimated."""
        found = self._draft.value
        return self.DRAFT * self.verify_seconds(1) if found is None else found

    def _model_worth(self, most: int) -> float:
        """Tokens a second of rounds that draft up to ``most`` tokens with the model."""
        accepted, going_on = self._modelled.value, self._going_on.value
        tokens, seconds, place, reach = 1.0, 0.0, 1.0, 1.0
        for drafted in range(1, most + 1):
            place *= accepted
            tokens += reach * place
            seconds += reach * self.draft_seconds()
            ends = reach if drafted == most else reach * (1 - going_on)
            seconds += ends * self.verify_seconds(drafted + 1)
            reach *= going_on
        return tokens / seconds if most else 1 / self.verify_seconds(1)

    def _copy_worth(self, most: int) -> float:
        """Tokens a second of rounds that verify ``most`` copied tokens."""
        share = self._copied.value
        tokens = sum(share**place for place in range(most + 1))
        return tokens / self.verify_seconds(most + 1)
