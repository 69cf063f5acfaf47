"""What a round may draft: always the same, or what pays by costs and acceptances so far."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Protocol

from cassandra_spec.drafting.proposal import COPIES, DRAFT_VIEW, Drafter, Outcome, Proposal
from cassandra_spec.drafting.settings import ADAPTIVE, Settings


@dataclasses.dataclass(frozen=True)
class Plan:
    """The most tokens that a round drafts: copies if there are any, else by the draft view."""

    model: int = 0
    copied: int = 0

    def __str__(self) -> str:
        parts = ((COPIES, self.copied), (DRAFT_VIEW, self.model))
        return ", ".join(f"{source} {most}" for source, most in parts if most) or "plain"


class Policy(Protocol):
    """Plans rounds."""

    def plan(self, position: int) -> Plan:
        """What the next round may draft, whose context ends at ``position``."""

    def observe(self, outcome: Outcome) -> None:
        """Take what became of a round."""


class PassCosts(Protocol):
    """What passes cost, in one unit: bytes, or seconds."""

    def draft(self, position: int) -> float:
        """One pass of the draft view."""

    def verify(self, position: int, rows: int) -> float:
        """One pass of the target over ``rows`` tokens."""

    def observe(self, outcome: Outcome) -> None:
        """Take what became of a round."""


@dataclasses.dataclass(frozen=True)
class FixedPolicy:
    """The same plan for each round."""

    fixed: Plan

    def plan(self, position: int) -> Plan:
        """What the next round may draft."""
        return self.fixed

    def observe(self, outcome: Outcome) -> None:
        """Nothing depends on it."""


class _Share:
    """How often something happens, the last times weighing most.

    Each round multiplies the counts so far by ``DECAY``, whether or not it has cases of its own;
    ``WEIGHT`` cases of the share ``prior`` are always added. So an estimate that ends all drafting
    is forgotten after some dozens of rounds, and drafting is tried again.
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


class MeasuredSeconds:
    """Times of passes, as measured lately (:class:`PassCosts`).

    A verification of r rows takes as long as the last ones of r rows did. If there were none, it is
    estimated from the nearest number of rows: each row between them counts ``ROW`` of the time of
    one row.
    """

    ROW = 0.05
    DRAFT = 0.4  # of a verification of one row, as long as no draft was timed

    def __init__(self) -> None:
        self._draft = _Seconds()
        self._verify: dict[int, _Seconds] = {}

    def draft(self, position: int) -> float:
        """Seconds of one pass of the draft view, measured or estimated."""
        found = self._draft.value
        return self.DRAFT * self.verify(position, 1) if found is None else found

    def verify(self, position: int, rows: int) -> float:
        """Seconds of a verification, measured or estimated."""
        known = {at: time.value for at, time in self._verify.items() if time.value is not None}
        if not known:
            return 1 + self.ROW * (rows - 1)  # in units of one row: only quotients count
        near = min(known, key=lambda at: (abs(at - rows), at))
        one = known[near] / (1 + self.ROW * (near - 1))
        return known[near] + self.ROW * (rows - near) * one

    def observe(self, outcome: Outcome) -> None:
        """Take the times of a round."""
        rows = outcome.drafted + 1
        self._verify.setdefault(rows, _Seconds()).add(outcome.verify_seconds)
        if outcome.passes:
            self._draft.add(outcome.draft_seconds / outcome.passes)


class AdaptivePolicy:
    """The plan with the most tokens per cost, if things go on as they were.

    Let ``a`` be the conditional acceptance rate, and ``s`` the probability that drafting goes on
    after a token (its margin was large enough). A round that drafts with the draft view emits
    ``1 + a + s a^2 + s^2 a^3 ...`` tokens on average; ``costs`` says what its passes cost. Copies
    cost nothing but rows, and have an acceptance rate of their own. The plan with the largest
    quotient is taken, the smaller one of equals. ``settings`` says which drafts may be made,
    ``most`` how many tokens at most.

    ``plans`` counts what was chosen.
    """

    def __init__(self, settings: Settings, costs: PassCosts, *, most: int) -> None:
        self._most_model = most if settings.uses_draft_view else 0
        self._most_copied = most if settings.uses_copies else 0
        self._costs = costs
        self._accepted = {DRAFT_VIEW: _Share(0.8), COPIES: _Share(0.6)}
        self._going_on = _Share(0.9)
        self.plans: dict[str, int] = {}

    def rate(self, source: str) -> float:
        """The estimate of the conditional acceptance rate of the drafts of a source."""
        return self._accepted[source].value

    def plan(self, position: int) -> Plan:
        """What the next round may draft."""
        worths = [self._model_worth(position, most) for most in range(self._most_model + 1)]
        copies = [self._copy_worth(position, most) for most in range(self._most_copied + 1)]
        chosen = Plan(worths.index(max(worths)))
        if max(copies) > max(worths):
            chosen = Plan(chosen.model, copies.index(max(copies)))
        self.plans[str(chosen)] = self.plans.get(str(chosen), 0) + 1
        return chosen

    def observe(self, outcome: Outcome) -> None:
        """Take what became of a round."""
        self._costs.observe(outcome)
        for source, share in self._accepted.items():
            own = source == outcome.source
            share.count(own * outcome.accepted, own * outcome.tested)
        by_view = outcome.drafted > 0 and outcome.source == DRAFT_VIEW
        cases = by_view * (outcome.drafted - 1 + outcome.stopped)
        self._going_on.count(cases - by_view * outcome.stopped, cases)

    def _model_worth(self, position: int, most: int) -> float:
        """Tokens per cost of rounds that draft up to ``most`` tokens with the draft view."""
        accepted, going_on = self.rate(DRAFT_VIEW), self._going_on.value
        draft = self._costs.draft(position)
        tokens, cost, place, reach = 1.0, 0.0, 1.0, 1.0
        for drafted in range(1, most + 1):
            place *= accepted
            tokens += reach * place
            cost += reach * draft
            ends = reach if drafted == most else reach * (1 - going_on)
            cost += ends * self._costs.verify(position, drafted + 1)
            reach *= going_on
        return tokens / cost if most else 1 / self._costs.verify(position, 1)

    def _copy_worth(self, position: int, most: int) -> float:
        """Tokens per cost of rounds that verify ``most`` copied tokens."""
        share = self.rate(COPIES)
        tokens = sum(share**place for place in range(most + 1))
        return tokens / self._costs.verify(position, most + 1)


def make_policy(settings: Settings, costs: PassCosts, *, most: int) -> Policy:
    """The policy of such settings; an adaptive one plans up to ``most`` tokens."""
    if settings.gamma == ADAPTIVE:
        return AdaptivePolicy(settings, costs, most=most)
    gamma = int(settings.gamma)
    return FixedPolicy(Plan(settings.uses_draft_view * gamma, settings.uses_copies * gamma))


class PolicyDrafter:
    """Copies if the policy plans them and there are any, else the draft view (:class:`Drafter`).

    A round has one source: the draft view would lack its own keys and values of a copied token.
    """

    def __init__(self, copies: Drafter, view: Drafter, policy: Policy) -> None:
        self._copies, self._view, self._policy = copies, view, policy

    def propose(self, context: Sequence[int], budget: int) -> Proposal:
        """The proposal of one of both drafters."""
        plan = self._policy.plan(len(context) - 1)
        found = self._copies.propose(context, min(plan.copied, budget))
        return found if found.nodes else self._view.propose(context, min(plan.model, budget))

    def observe(self, outcome: Outcome) -> None:
        """Take what became of the last proposal."""
        for each in (self._policy, self._copies, self._view):
            each.observe(outcome)

    def cost(self, position: int) -> float:
        """That of the draft view."""
        return self._view.cost(position)
