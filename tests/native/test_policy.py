"""What the adaptive policy chooses, against costs and acceptances that are known."""

from __future__ import annotations

import itertools

import pytest

from cassandra_spec.native.decoding import Settings, make_policy
from cassandra_spec.native.policy import MOST, AdaptivePolicy, FixedPolicy, Outcome, Plan


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
        plan = policy.plan()
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
        policy.count(
            Outcome(
                drafted=most,
                accepted=count,
                copied=copied,
                stopped=False,
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
    plans = run(AdaptivePolicy(model=True, lookup=False), accepted=accepted, draft=draft)[200:]
    expected = best_gamma(accepted, draft)
    average = sum(plan.model for plan in plans) / len(plans)
    assert abs(average - expected) <= 1.2


def test_drafts_that_never_pay_are_tried_seldom_but_again() -> None:
    plans = run(AdaptivePolicy(model=True, lookup=False), accepted=0.1, draft=0.9)
    plain = sum(plan == Plan() for plan in plans)
    assert len(plans) * 0.8 < plain < len(plans)


def test_copies_are_preferred_where_they_are_accepted() -> None:
    policy = AdaptivePolicy(model=True, lookup=True)
    plans = run(policy, accepted=0.8, draft=0.3, copies=0.9, found=0.5)[200:]
    assert all(plan.copied >= 5 and plan.model >= 2 for plan in plans)
    assert sum(policy.plans.values()) == 400


def test_copies_that_are_not_accepted_are_given_up() -> None:
    policy = AdaptivePolicy(model=True, lookup=True)
    plans = run(policy, accepted=0.9, draft=0.2, copies=0.1, found=0.5)[100:]
    assert sum(plan.copied > 0 for plan in plans) < len(plans) / 3


def test_what_is_not_allowed_is_not_planned() -> None:
    for plan in run(AdaptivePolicy(model=False, lookup=False), accepted=0.9, draft=0.1):
        assert plan == Plan()
    lookup = AdaptivePolicy(model=False, lookup=True)
    assert all(plan.model == 0 for plan in run(lookup, accepted=0, draft=1, copies=0.9, found=0.9))


def test_a_slow_round_does_not_change_the_mind() -> None:
    policy = AdaptivePolicy(model=True, lookup=False)
    before = run(policy, accepted=0.8, draft=0.25)[-1]
    policy.count(
        Outcome(
            drafted=before.model,
            accepted=before.model,
            copied=False,
            stopped=False,
            draft_seconds=0.25 * before.model,
            verify_seconds=500.0,
        )
    )
    assert abs(policy.plan().model - before.model) <= 1


@pytest.mark.parametrize(
    ("draft", "plan"),
    [
        ("model", Plan(3, 0)),
        ("lookup", Plan(0, 3)),
        ("hybrid", Plan(3, 3)),
        ("none", Plan(0, 0)),
    ],
)
def test_a_fixed_gamma_is_always_planned(draft: str, plan: Plan) -> None:
    assert make_policy(Settings(gamma=3, draft=draft)) == FixedPolicy(plan)  # type: ignore[arg-type]


def test_plans_have_names() -> None:
    plans = (Plan(), Plan(model=3), Plan(copied=5), Plan(2, 7))
    assert [str(plan) for plan in plans] == ["plain", "model 3", "lookup 5", "lookup 7, model 2"]
