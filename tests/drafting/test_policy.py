"""What the adaptive policy chooses, against costs and acceptances that are known."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np
import pytest

from cassandra_spec.drafting import (
    COPIES,
    DRAFT_VIEW,
    AdaptivePolicy,
    CopyDrafter,
    DraftKind,
    FixedPolicy,
    MeasuredSeconds,
    Outcome,
    Plan,
    PolicyDrafter,
    Proposal,
    Settings,
    make_policy,
)

MOST = 7


def measured(draft: DraftKind) -> AdaptivePolicy:
    """A policy by measured seconds."""
    return AdaptivePolicy(Settings(gamma="adaptive", draft=draft), MeasuredSeconds(), most=MOST)


def run(
    policy: AdaptivePolicy,
    *,
    accepted: float,
    draft: float,
    row: float = 0.05,
    rounds: int = 400,
    copies: float = 0.0,
    found: float = 0.0,
) -> list[Plan]:
    """Plans of rounds in which shares of drafts are accepted: evenly, without randomness."""
    plans, credit, copy_credit, find_credit = [], 0.0, 0.0, 0.0
    for _ in range(rounds):
        plan = policy.plan(0)
        plans.append(plan)
        find_credit += found
        copied = plan.copied > 0 and find_credit >= 1
        find_credit -= find_credit >= 1
        most = plan.copied if copied else plan.model
        count = 0
        while count < most:
            if copied:
                copy_credit += copies
                taken, copy_credit = copy_credit >= 1, copy_credit - (copy_credit >= 1)
            else:
                credit += accepted
                taken, credit = credit >= 1, credit - (credit >= 1)
            if not taken:
                break
            count += 1
        policy.observe(
            Outcome(
                drafted=most,
                accepted=count,
                source=COPIES if copied else DRAFT_VIEW,
                passes=0 if copied else most,
                draft_seconds=0.0 if copied else draft * most,
                verify_seconds=1 + row * most,
            )
        )
    return plans


def best_gamma(accepted: float, draft: float, row: float = 0.05) -> int:
    """By the formula of the paper, section II.B."""

    def worth(gamma: int) -> float:
        tokens = sum(accepted**place for place in range(gamma + 1))
        return tokens / (gamma * draft + 1 + row * gamma)

    return max(range(MOST + 1), key=worth)


@pytest.mark.parametrize(
    ("accepted", "draft"), list(itertools.product((0.2, 0.5, 0.8, 0.9), (0.1, 0.25, 0.5)))
)
def test_the_best_gamma_is_found(accepted: float, draft: float) -> None:
    plans = run(measured("model"), accepted=accepted, draft=draft)[200:]
    expected = best_gamma(accepted, draft)
    average = sum(plan.model for plan in plans) / len(plans)
    assert abs(average - expected) <= 1.2


def test_drafts_that_never_pay_are_tried_seldom_but_again() -> None:
    plans = run(measured("model"), accepted=0.1, draft=0.9)
    plain = sum(plan == Plan() for plan in plans)
    assert len(plans) * 0.8 < plain < len(plans)


def test_copies_are_preferred_where_they_are_accepted() -> None:
    policy = measured("hybrid")
    plans = run(policy, accepted=0.8, draft=0.3, copies=0.9, found=0.5)[200:]
    assert all(plan.copied >= 5 and plan.model >= 2 for plan in plans)
    assert sum(policy.plans.values()) == 400


def test_copies_that_are_not_accepted_are_given_up() -> None:
    policy = measured("hybrid")
    plans = run(policy, accepted=0.9, draft=0.2, copies=0.1, found=0.5)[100:]
    assert sum(plan.copied > 0 for plan in plans) < len(plans) / 3


def test_what_is_not_allowed_is_not_planned() -> None:
    for plan in run(measured("none"), accepted=0.9, draft=0.1):
        assert plan == Plan()
    lookup = measured("lookup")
    assert all(plan.model == 0 for plan in run(lookup, accepted=0, draft=1, copies=0.9, found=0.9))


def test_a_slow_round_does_not_change_the_mind() -> None:
    policy = measured("model")
    before = run(policy, accepted=0.8, draft=0.25)[-1]
    policy.observe(
        Outcome(
            drafted=before.model,
            accepted=before.model,
            passes=before.model,
            draft_seconds=0.25 * before.model,
            verify_seconds=500.0,
        )
    )
    assert abs(policy.plan(0).model - before.model) <= 1


@pytest.mark.parametrize(
    ("draft", "plan"),
    [
        ("model", Plan(3, 0)),
        ("lookup", Plan(0, 3)),
        ("hybrid", Plan(3, 3)),
        ("none", Plan(0, 0)),
    ],
)
def test_a_fixed_gamma_is_always_planned(draft: DraftKind, plan: Plan) -> None:
    policy = make_policy(Settings(gamma=3, draft=draft), MeasuredSeconds(), most=MOST)
    assert policy == FixedPolicy(plan)
    policy.observe(Outcome(drafted=3, accepted=0))
    assert policy.plan(5) == plan


def test_plans_have_names() -> None:
    plans = (Plan(), Plan(model=3), Plan(copied=5), Plan(2, 7))
    assert [str(plan) for plan in plans] == ["plain", "model 3", "lookup 5", "lookup 7, model 2"]


# --- costs in bytes -------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Bytes:
    """Constant costs; a pass of the target costs the same whatever its rows."""

    draft_bytes: float
    target_bytes: float = 70.0

    def draft(self, position: int) -> float:
        return self.draft_bytes

    def verify(self, position: int, rows: int) -> float:
        return self.target_bytes

    def observe(self, outcome: Outcome) -> None: ...


def after(rounds: int, *, accepted: int, drafted: int, draft: float = 30.0) -> AdaptivePolicy:
    policy = AdaptivePolicy(Settings(gamma="adaptive"), Bytes(draft), most=8)
    for _ in range(rounds):
        policy.observe(Outcome(drafted=drafted, accepted=accepted, passes=drafted))
    return policy


def tokens_per_byte(rate: float, going_on: float, gamma: int, draft: float) -> float:
    """By what can become of each drafted token, one after another."""
    reach = [going_on**place for place in range(gamma)]  # that a token is drafted
    tokens = 1 + sum(each * rate ** (place + 1) for place, each in enumerate(reach))
    return tokens / (sum(reach) * draft + 70)


@pytest.mark.parametrize("draft", [10.0, 30.0, 50.0, 90.0])
@pytest.mark.parametrize("accepted", range(4))
def test_the_choice_is_the_best_by_its_estimate(draft: float, accepted: int) -> None:
    policy = after(20, accepted=accepted, drafted=3, draft=draft)
    cases = 2 * sum(0.97**age for age in range(20))  # drafting went on after two tokens of a round
    going_on = (cases + 0.9 * 3) / (cases + 3)
    rate = policy.rate(DRAFT_VIEW)
    worth = [tokens_per_byte(rate, going_on, gamma, draft) for gamma in range(9)]
    assert worth[policy.plan(0).model] == pytest.approx(max(worth), rel=1e-12)


def test_much_accepted_is_much_drafted() -> None:
    assert after(60, accepted=8, drafted=8).plan(0).model == 8
    assert after(60, accepted=0, drafted=3).plan(0).model == 0
    choices = [after(60, accepted=n, drafted=3).plan(0).model for n in range(4)]
    assert choices == sorted(choices)


def test_cheap_drafts_are_drafted_more() -> None:
    costs = (1, 20, 40, 70, 200)
    choices = [after(10, accepted=2, drafted=3, draft=cost).plan(0).model for cost in costs]
    assert choices == sorted(choices, reverse=True)
    assert choices[0] > choices[-1] == 0


def test_the_estimate_is_that_of_the_last_rounds() -> None:
    random = np.random.default_rng(2)
    policy = after(0, accepted=0, drafted=0)
    for rate in (0.95, 0.3, 0.95):
        for _ in range(150):
            right = random.random(3) < rate
            accepted = 3 if right.all() else int(np.argmin(right))
            policy.observe(Outcome(drafted=3, accepted=accepted, passes=3))
        assert abs(policy.rate(DRAFT_VIEW) - rate) < 0.2


def test_drafting_is_tried_again() -> None:
    policy = after(60, accepted=0, drafted=3)
    choices = []
    for _ in range(120):
        choices.append(policy.plan(0).model)
        policy.observe(Outcome(drafted=0, accepted=0))
    assert choices[0] == 0 < choices[-1]


def test_a_margin_below_the_minimum_makes_plans_shorter() -> None:
    sure, unsure = (after(30, accepted=4, drafted=4) for _ in range(2))
    for _ in range(30):
        unsure.observe(Outcome(drafted=1, accepted=1, passes=1, stopped=True))
        sure.observe(Outcome(drafted=4, accepted=4, passes=4))
    assert unsure.plan(0).model <= sure.plan(0).model == 8


# --- with drafters --------------------------------------------------------------------------------


class Fixed:
    """A drafter that always proposes the same tokens, and records what it is asked and told."""

    def __init__(self, tokens: list[int]) -> None:
        self.tokens = tokens
        self.budgets: list[int] = []
        self.observed: list[Outcome] = []

    def propose(self, context: Sequence[int], budget: int) -> Proposal:
        self.budgets.append(budget)
        tokens = self.tokens[:budget]
        return Proposal.chain(tokens, [0.0] * len(tokens), DRAFT_VIEW)

    def observe(self, outcome: Outcome) -> None:
        self.observed.append(outcome)

    def cost(self, position: int) -> float:
        return float(position)


def test_copies_come_first_and_the_draft_view_where_there_are_none() -> None:
    view = Fixed([7, 7, 7])
    settings = Settings(gamma=3, draft="hybrid")
    policy = FixedPolicy(Plan(model=3, copied=2))
    drafter = PolicyDrafter(CopyDrafter(settings), view, policy)
    copied = drafter.propose([1, 2, 3, 4, 1, 2], 9)
    assert (copied.tokens, copied.source, view.budgets) == ([3, 4], COPIES, [])
    drafted = drafter.propose([1, 2, 3, 4, 1, 2, 8], 2)
    assert (drafted.tokens, drafted.source, view.budgets) == ([7, 7], DRAFT_VIEW, [2])
    outcome = Outcome(drafted=2, accepted=1)
    drafter.observe(outcome)
    assert view.observed == [outcome]
    assert drafter.cost(11) == 11
