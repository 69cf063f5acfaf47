"""Choices of the adaptive policy, against known costs and acceptances."""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cassandra_spec.drafting import (
    AdaptivePolicy,
    DraftKind,
    FixedPolicy,
    Levels,
    MeasuredSeconds,
    Outcome,
    Plan,
    Policy,
    Settings,
    fixed_plan,
    make_policy,
)
from cassandra_spec.drafting.policy import FILLED_NODES, Chains
from tests.drafting.simulation import (
    KINDS,
    MACHINES,
    Kind,
    Machine,
    Record,
    Round,
    play,
    rounds,
)
from tests.drafting.test_proposal import outcome

MOST = 7


def measured(draft: DraftKind) -> AdaptivePolicy:
    """Return a policy by measured seconds."""
    return AdaptivePolicy(
        Settings(gamma="adaptive", draft=draft), MeasuredSeconds(), max_nodes=MOST
    )


def run(
    policy: AdaptivePolicy, *, accepted: float, draft: float, row: float = 0.05, rounds: int = 400
) -> list[Plan]:
    """Return plans of rounds in which a share of drafts is accepted: evenly, without randomness."""
    plans, credit = [], 0.0
    for _ in range(rounds):
        plan = policy.plan(0)
        plans.append(plan)
        count = 0
        while count < plan.model:
            credit += accepted
            if credit < 1:
                break
            credit -= 1
            count += 1
        policy.observe(drafted(plan.model, count, draft=draft, verify=1 + row * plan.model))
    return plans


def drafted(count: int, accepted: int, *, draft: float = 0.0, verify: float = 0.0) -> Outcome:
    """Return a chain of the draft view, one token a pass."""
    found = outcome(count, accepted, verify_seconds=verify)
    passes = (dataclasses.replace(each, seconds=draft) for each in found.proposal.passes)
    proposal = dataclasses.replace(found.proposal, passes=tuple(passes))
    return dataclasses.replace(found, proposal=proposal)


def best_gamma(accepted: float, draft: float, row: float = 0.05) -> int:
    """Return the best gamma by the formula of the paper, section II.B."""

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


def test_what_is_not_allowed_is_not_planned() -> None:
    for plan in run(measured("none"), accepted=0.9, draft=0.1):
        assert plan == Plan()
    assert all(plan.model == 0 for plan in run(measured("lookup"), accepted=0.9, draft=0.1))
    for plan in run(measured("model"), accepted=0.9, draft=0.1):
        assert (plan.low, plan.rows, plan.skip_draft_threshold) == (0, plan.model, math.inf)


def test_a_size_whose_first_rounds_were_slow_is_tried_again() -> None:
    """A machine may do something else for a while."""
    policy, plans = measured("model"), []
    for gamma in (0, 1, 2, *[MOST] * 5):
        slow = 20 if gamma == MOST else 1
        policy.observe(drafted(gamma, gamma, draft=0.1, verify=slow * (1 + 0.05 * gamma)))
    for _ in range(400):
        gamma = policy.plan(0).model
        plans.append(gamma)
        policy.observe(drafted(gamma, gamma, draft=0.1, verify=1 + 0.05 * gamma))
    assert sum(plans[200:]) / 200 > MOST - 1


def test_a_first_draft_that_was_slow_does_not_end_drafting() -> None:
    """The first request of a server may come while the machine does something else."""
    policy, plans = measured("model"), []
    policy.observe(drafted(1, 1, draft=50.0, verify=1.0))
    for _ in range(400):
        gamma = policy.plan(0).model
        plans.append(gamma)
        policy.observe(drafted(gamma, gamma, draft=0.1, verify=1 + 0.05 * gamma))
    assert sum(plans[20:]) / len(plans[20:]) > MOST - 1


@pytest.mark.parametrize("draft", ["model", "hybrid"])
def test_a_slow_start_does_not_end_drafting(draft: DraftKind) -> None:
    """The first round touches memory for the first time."""
    policy, plans = measured(draft), []
    for slow in (10, *[1] * 40):
        gamma = policy.plan(0).model
        plans.append(gamma)
        policy.observe(drafted(gamma, gamma, draft=0.1, verify=slow * (1 + 0.05 * gamma)))
    assert sum(plans[20:]) / len(plans[20:]) > MOST / 2


def test_a_size_that_was_slow_once_is_tried_again_soon() -> None:
    policy, plans = measured("model"), []
    run(policy, accepted=1.0, draft=0.1, rounds=2)
    policy.observe(drafted(MOST, MOST, draft=0.1, verify=20.0))
    for _ in range(40):
        gamma = policy.plan(0).model
        plans.append(gamma)
        policy.observe(drafted(gamma, gamma, draft=0.1, verify=1 + 0.05 * gamma))
    assert plans.index(MOST) < 20


def warm() -> MeasuredSeconds:
    """Return costs after the first round, which they ignore."""
    costs = MeasuredSeconds()
    costs.observe([0], [drafted(1, 1, draft=90.0, verify=90.0)])
    return costs


def test_a_first_draft_is_averaged_with_the_guess() -> None:
    """At most twice the guess counts."""
    costs = warm()
    costs.observe([0], [drafted(1, 1, draft=50.0, verify=1.05)])
    assert costs.draft([0], 1) == pytest.approx((0.4 + 0.8) / 2)
    costs = warm()
    costs.observe([0], [drafted(1, 1, draft=0.2, verify=1.05)])
    assert costs.draft([0], 1) == pytest.approx((0.4 + 0.2) / 2)


def test_a_first_draft_that_was_slow_is_forgotten_soon() -> None:
    costs = warm()
    costs.observe([0], [with_rows(4, draft=0.9)])
    assert costs.draft([0], 4) > 0.6
    for _ in range(9):
        costs.observe([0], [drafted(2, 2, draft=0.2, verify=1.1)])
    assert costs.draft([0], 4) < 0.3


def test_a_second_time_counts_as_much_as_a_doubted_first() -> None:
    costs = warm()
    costs.observe([0], [drafted(1, 1, draft=50.0, verify=1.05)])
    costs.observe([0], [drafted(1, 1, draft=0.2, verify=1.05)])
    assert costs.draft([0], 1) == pytest.approx(((0.4 + 0.8) / 2 + 0.2) / 2)
    costs.observe([0], [drafted(1, 1, draft=0.3, verify=1.05)])
    assert costs.draft([0], 1) == pytest.approx(0.4 + 0.1 * (0.3 - 0.4))


def test_a_new_process_does_not_believe_what_is_doubted() -> None:
    costs = warm()
    costs.observe([0], [with_rows(4, draft=0.9)])
    costs.observe([0], [drafted(1, 1, draft=0.2, verify=1.0)])
    assert [rows for rows, *_ in costs.state()["draft"]["times"]] == [1]
    assert [rows for rows, *_ in costs.state()["verify"]["times"]] == [2]


def test_times_of_an_earlier_process_count_for_a_few_rounds() -> None:
    """It may have been disturbed."""
    before = warm()
    for _ in range(3):
        before.observe([0], [drafted(1, 1, draft=5.0, verify=1.1)])
    costs = MeasuredSeconds()
    costs.begin(before.state())
    assert costs.draft([0], 1) == pytest.approx(before.draft([0], 1))
    for _ in range(9):
        costs.observe([0], [drafted(0, 0, verify=1.0)])
    assert costs.draft([0], 1) == pytest.approx(0.4)


def test_a_prompt_s_pass_is_not_the_time_of_as_many_rows_with_logits() -> None:
    costs, chain = warm(), drafted(4, 0, draft=0.2, verify=3.0)
    for _ in range(3):
        costs.observe([0], [chain])
    before = costs.verify([0], 5)
    costs.observe([0], [drafted(0, 0, verify=1.0)], [5])
    assert costs.verify([0], 5) == pytest.approx(before)


def test_a_prompt_shows_what_rows_cost() -> None:
    """Otherwise the first drafts beside several sequences seem cheap: 1.5 of a pass, not 3."""
    costs = warm()
    costs.observe([0], [drafted(0, 0, verify=1.0)])
    assert costs.verify([0], 11) == pytest.approx(1.5)
    costs.observe([0], [drafted(0, 0, verify=21.0)], [101])
    assert 2.0 < costs.verify([0], 11) <= 3.0


def with_rows(rows: int, *, draft: float) -> Outcome:
    """Return a round with one draft pass over some rows."""
    found = drafted(1, 1, verify=1.0)
    passes = tuple(
        dataclasses.replace(each, rows=rows, seconds=draft) for each in found.proposal.passes
    )
    return dataclasses.replace(found, proposal=dataclasses.replace(found.proposal, passes=passes))


def test_a_slow_round_does_not_change_the_mind() -> None:
    policy = measured("model")
    before = run(policy, accepted=0.8, draft=0.25)[-1]
    policy.observe(drafted(before.model, before.model, draft=0.25, verify=500.0))
    assert abs(policy.plan(0).model - before.model) <= 1


@pytest.mark.parametrize(
    ("draft", "plan"),
    [
        ("model", Plan(model=3, rows=3)),
        ("lookup", Plan(rows=3)),
        ("hybrid", Plan(model=3, low=3, rows=7)),
        ("none", Plan()),
    ],
)
def test_a_fixed_gamma_is_always_planned(draft: DraftKind, plan: Plan) -> None:
    policy = make_policy(Settings(gamma=3, draft=draft), MeasuredSeconds(), max_nodes=MOST)
    assert policy == FixedPolicy(plan)
    policy.observe(drafted(3, 0))
    assert policy.plan(5) == plan


def test_free_rows_are_those_of_the_settings() -> None:
    for levels, gamma, plan in (
        (Levels(tail=False), 3, Plan(3, 3, 3)),
        (Levels(low=5, rows=4), 3, Plan(3, 5, 4)),
        (Levels(rows=20), 3, Plan(3, 3, FILLED_NODES)),
        (Levels(low=0), 9, Plan(9, 0, 9)),
    ):
        assert fixed_plan(Settings(draft="hybrid", levels=levels), gamma) == plan


def test_without_a_tail_no_row_is_filled() -> None:
    asked = Settings(gamma="adaptive", draft="hybrid", levels=Levels(tail=False, rows=5))
    policy = AdaptivePolicy(asked, MeasuredSeconds(), max_nodes=MOST)
    for plan in run(policy, accepted=0.8, draft=0.3, rounds=100):
        assert plan == Plan() or plan.rows <= (
            plan.model or 5
        )  # some rounds are plain, to be timed
    barren = AdaptivePolicy(asked, MeasuredSeconds(), max_nodes=MOST)
    plans = run(barren, accepted=0.0, draft=0.9, rounds=100)
    assert {plan.rows for plan in plans if plan != Plan() and not plan.model} == {5}


def test_plans_have_names() -> None:
    plans = (Plan(), Plan(3, 0, 3), Plan(rows=5), Plan(2, 3, 7), Plan(2, 3, 2), Plan(2, 0, 7))
    assert [str(plan) for plan in (*plans, Plan(5, 0, 1))] == [
        *("plain", "model 3", "low tree 5", "model 2, low 3, rows 7", "model 2, low 3"),
        *("model 2, rows 7", "model 5, rows 1"),
    ]


def test_a_pass_costs_what_those_of_as_many_rows_have_cost() -> None:
    costs = warm()
    assert costs.draft([0], 1) == 0.4 * costs.verify([0], 1)
    costs.observe([0], [drafted(3, 0, draft=0.5, verify=2.0)])
    assert costs.verify([0], 4) == 2.0
    one = 2.0 / 1.15  # a row
    assert costs.verify([0], 8) == pytest.approx(1.35 * one)
    assert costs.verify([0], 1) == pytest.approx(one)
    for _ in range(40):
        costs.observe([0], [drafted(7, 0, draft=0.5, verify=4.0)])
    assert costs.draft([0], 1) == pytest.approx(0.5, rel=0.01)
    eight = costs.verify([0], 8)
    assert eight == pytest.approx(4.0, rel=0.03)
    assert costs.verify([0], 6) == pytest.approx((2.0 + eight) / 2)  # between both


def test_a_pass_over_fewer_rows_is_not_slower() -> None:
    """A machine is slower for a while, and other sizes are timed then."""
    costs = warm()
    for count, verify in ((1, 1.0), (7, 9.0), (9, 2.0)):
        costs.observe([0], [drafted(count, 0, draft=0.5, verify=verify)])
    assert costs.verify([0], 8) == costs.verify([0], 10)


# --- costs in bytes -------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Bytes:
    """Constant costs; a pass of the target costs the same whatever its rows."""

    draft_bytes: float
    target_bytes: float = 70.0

    def draft(self, positions: Sequence[int], rows: int) -> float:
        return self.draft_bytes

    def verify(self, positions: Sequence[int], rows: int) -> float:
        return self.target_bytes

    def wants_plain(self, rows: int, recent: int) -> bool:
        return False

    def observe(
        self,
        positions: Sequence[int],
        outcomes: Sequence[Outcome],
        counts: Sequence[int] | None = None,
    ) -> None: ...


def after(rounds: int, *, accepted: int, most: int, draft: float = 30.0) -> AdaptivePolicy:
    policy = AdaptivePolicy(Settings(gamma="adaptive"), Bytes(draft), max_nodes=8)
    for _ in range(rounds):
        policy.observe(drafted(most, accepted))
    return policy


probabilities = st.floats(0, 1)
costs = st.floats(0.1, 9)


@given(
    going_on=probabilities,
    accepted=probabilities,
    accepted_last=probabilities,
    matched=probabilities,
    one_pass=costs,
    verify=st.lists(costs, min_size=4, max_size=4),
    means=st.lists(st.tuples(*[probabilities] * 3), min_size=3, max_size=3),
)
def test_tokens_and_costs_are_sums_over_all_ways_in_which_a_round_can_end(
    going_on: float,
    accepted: float,
    accepted_last: float,
    matched: float,
    one_pass: float,
    verify: list[float],
    means: list[tuple[float, float, float]],
) -> None:
    added, whole_gain, part_gain = (
        np.array([0.0, *itertools.accumulate(column)]) for column in zip(*means, strict=True)
    )
    chains = Chains(3, going_on=going_on, accepted=accepted, accepted_last=accepted_last)
    [found_tokens] = chains.tokens((whole_gain[None], part_gain[None]))
    [found_verify] = chains.mean(np.interp(chains.nodes(added[None]), range(4), verify))
    [passes] = chains.passes(np.array([matched]))
    found_draft = one_pass * np.cumsum(passes)
    for rows, longest in itertools.product(range(4), range(1, 4)):
        tokens = draft_cost = verify_cost = 0.0
        for length, stopped in [*((n, True) for n in range(1, longest + 1)), (longest, False)]:
            likely = going_on ** (length - stopped) * (1 - going_on) ** stopped
            each = [accepted] * (length - 1) + [accepted_last if stopped else accepted]
            whole = math.prod(each)
            free = max(rows - length, 0)
            tokens += likely * sum(math.prod(each[:n]) for n in range(length + 1))
            tokens += likely * (whole * whole_gain[free] + (1 - whole) * part_gain[free])
            draft_cost += likely * one_pass * (1 + (length - 1) * (1 - matched))
            verify_cost += likely * float(np.interp(length + added[free], range(4), verify))
        assert found_tokens[rows, longest - 1] == pytest.approx(tokens, rel=1e-12)
        assert found_verify[rows, longest - 1] == pytest.approx(verify_cost, rel=1e-12)
        assert found_draft[longest - 1] == pytest.approx(draft_cost, rel=1e-12)


def tokens_per_byte(rate: float, last: float, going_on: float, gamma: int, draft: float) -> float:
    """Sum over all ways in which drafting can end."""
    tokens = cost = 0.0
    for length in range(1, gamma + 1):
        for stopped in (True, False):
            if length < gamma and not stopped:
                continue
            likely = going_on ** (length - 1) * (1 - going_on if stopped else going_on)
            rates = [rate] * (length - 1) + [last if stopped else rate]
            tokens += likely * sum(math.prod(rates[:n]) for n in range(length + 1))
            cost += likely * (length * draft + 70)
    return tokens / cost if gamma else 1 / 70


@pytest.mark.parametrize("draft", [10.0, 30.0, 50.0, 90.0])
@pytest.mark.parametrize("accepted", range(4))
def test_the_choice_is_the_best_by_its_estimate(draft: float, accepted: int) -> None:
    policy = after(20, accepted=accepted, most=3, draft=draft)
    cases = 3 * sum(0.97**age for age in range(20))
    going_on = (cases + 0.9 * 3) / (cases + 3)
    rate = policy.rate
    worth = [tokens_per_byte(rate, 0.6, going_on, gamma, draft) for gamma in range(9)]
    assert worth[policy.plan(0).model] == pytest.approx(max(worth), rel=1e-12)


def test_much_accepted_is_much_drafted() -> None:
    assert after(60, accepted=8, most=8).plan(0).model == 8
    assert after(60, accepted=0, most=3).plan(0).model == 0
    choices = [after(60, accepted=n, most=3).plan(0).model for n in range(4)]
    assert choices == sorted(choices)


def test_cheap_drafts_are_drafted_more() -> None:
    costs = (1, 20, 40, 70, 200)
    choices = [after(10, accepted=2, most=3, draft=cost).plan(0).model for cost in costs]
    assert choices == sorted(choices, reverse=True)
    assert choices[0] > choices[-1] == 0


def test_the_estimate_is_that_of_the_last_rounds() -> None:
    random = np.random.default_rng(2)
    policy = after(0, accepted=0, most=0)
    for rate in (0.95, 0.3, 0.95):
        for _ in range(150):
            right = random.random(3) < rate
            accepted = 3 if right.all() else int(np.argmin(right))
            policy.observe(drafted(3, accepted))
        assert abs(policy.rate - rate) < 0.2


def test_drafting_is_tried_again() -> None:
    policy = after(60, accepted=0, most=3)
    choices = []
    for _ in range(300):
        choices.append(policy.plan(0).model)
        policy.observe(drafted(0, 0))
    assert choices[0] == 0 < choices[-1]


def test_one_rejected_chain_does_not_end_drafting() -> None:
    policy = after(1, accepted=0, most=2)
    assert policy.plan(0).model > 0


def test_chains_of_one_token_show_how_often_drafting_goes_on() -> None:
    """Every fifth token has a small margin."""
    policy = after(0, accepted=0, most=0, draft=5.0)
    for number in range(100):
        chain = drafted(1, 1)
        stopped = dataclasses.replace(chain.proposal, stopped=number % 5 == 0)
        policy.observe(dataclasses.replace(chain, proposal=stopped))
    assert policy.gains.continued.value == pytest.approx(0.8, abs=0.03)
    assert policy.plan(0).model == 8


def test_a_margin_below_the_minimum_makes_plans_shorter() -> None:
    sure, unsure = (after(30, accepted=4, most=4) for _ in range(2))
    short = drafted(1, 1)
    stopped = dataclasses.replace(short.proposal, stopped=True)
    for _ in range(30):
        unsure.observe(dataclasses.replace(short, proposal=stopped))
        sure.observe(drafted(4, 4))
    assert unsure.plan(0).model <= sure.plan(0).model == 8


# --- along recorded kinds of text -----------------------------------------------------------------

DRAFTS: tuple[DraftKind, ...] = ("model", "lookup", "hybrid")
FIXED: dict[DraftKind, list[Plan]] = {
    "model": [Plan(model, 0, model) for model in (1, 2, 3, 4, 6, 8)],
    "lookup": [Plan(rows=rows) for rows in (3, 7)],
    "hybrid": [
        Plan(model, low, rows)
        for model in (1, 2, 4, 6, 8)
        for low in (0, 3)
        for rows in {1, model, max(model, 7)}
    ],
}
SEEDS, PLACES, FOUND = (1, 3), 900, 100


def asked(draft: DraftKind) -> Settings:
    return Settings(gamma="adaptive", draft=draft, min_margin=1.0)


@cache
def record(kind: str, seed: int) -> Record:
    return Record(KINDS[kind], PLACES + 50, seed)


def rate(machine: str, kind: str, draft: DraftKind, policy: Callable[[], Policy]) -> float:
    """Return tokens per second of all records of a kind, from token ``FOUND`` on."""
    played = [
        play(
            record(kind, seed), MACHINES[machine], asked(draft), policy(), skip=FOUND, places=PLACES
        )
        for seed in SEEDS
    ]
    return sum(each.tokens for each in played) / sum(each.seconds for each in played)


def always(policy: Policy) -> Callable[[], Policy]:
    return lambda: policy


@cache
def fixed_rounds(kind: str, draft: DraftKind, plan: Plan) -> list[Round]:
    """Return the rounds of a fixed plan from token ``FOUND`` on, which no machine changes."""
    played = (
        rounds(record(kind, seed), asked(draft), FixedPolicy(plan), places=PLACES) for seed in SEEDS
    )
    return [each for each in itertools.chain(*played) if each.position >= FOUND]


def fixed_rate(machine: str, kind: str, draft: DraftKind, plan: Plan) -> float:
    """Return :func:`rate` of a fixed plan."""
    played = fixed_rounds(kind, draft, plan)
    timed = (MACHINES[machine].timed(each.outcome, each.position) for each in played)
    seconds = sum(outcome.draft_seconds + outcome.verify_seconds for outcome in timed)
    return sum(each.tokens for each in played) / seconds


@cache
def best_rate(machine: str, kind: str, draft: DraftKind) -> float:
    """Return the rate of the best fixed plan, including plain decoding."""
    parts = [best_rate(machine, kind, part) for part in DRAFTS if part != draft == "hybrid"]
    plans = (Plan(), *FIXED[draft])
    return max([fixed_rate(machine, kind, draft, plan) for plan in plans] + parts)


def test_fixed_plans_have_one_rate_with_and_without_a_machine() -> None:
    for machine, plan in itertools.product(MACHINES, (Plan(), Plan(4, 3, 7))):
        played = rate(machine, "lists", "hybrid", always(FixedPolicy(plan)))
        assert fixed_rate(machine, "lists", "hybrid", plan) == pytest.approx(played, rel=1e-12)


PLAYED = [
    pytest.param(machine, draft, marks=[pytest.mark.slow] * hidden)
    for machine, draft in itertools.product(MACHINES, DRAFTS)
    for hidden in [machine != "vectors" and draft != "hybrid"]
]
"""Machines and drafts: hybrids, which have all levels, on each; the parts of them on one."""


@pytest.mark.parametrize(("machine", "draft"), PLAYED)
@pytest.mark.parametrize("kind", KINDS)
def test_the_best_fixed_plan_is_found_within_a_hundred_tokens(
    machine: str, kind: str, draft: DraftKind
) -> None:
    """To 6 %: costs are measured along the way.

    A hybrid is as good as the draft view, or low drafters, or nothing alone, too.
    """
    adaptive = rate(
        machine,
        kind,
        draft,
        lambda: AdaptivePolicy(asked(draft), MeasuredSeconds(), max_nodes=8),
    )
    assert adaptive >= 0.94 * best_rate(machine, kind, draft)


@pytest.mark.parametrize(("second", "filled"), [(0.0, False), (0.9, True)])
def test_short_chains_are_filled_if_that_gains(second: float, filled: bool) -> None:
    """Chains of up to 8 tokens often end early, and each row is dear."""
    kind = Kind(draft=0.8, sure=0.0, right=(0.02, 0.02), second=second)
    machine = Machine(draft={1: 0.1, 8: 0.6}, verify={1: 1.0, 9: 2.6})
    policy = AdaptivePolicy(asked("hybrid"), MeasuredSeconds(), max_nodes=8)
    text = Record(kind, 950, 1)
    play(text, machine, asked("hybrid"), policy, skip=0, places=900)
    plans = [policy.plan(0) for _ in range(3)]
    assert plans[0].model > 3
    assert (statistics.median(plan.rows for plan in plans) > 2) == filled  # one may fill all rows


def test_with_nothing_to_gain_it_decodes_plainly() -> None:
    for machine, draft in itertools.product(MACHINES, DRAFTS):
        assert best_rate(machine, "noise", draft) < 1.01
        policy = AdaptivePolicy(asked(draft), MeasuredSeconds(), max_nodes=8)
        rate(machine, "noise", draft, always(policy))
        drafts = sum(n for plan, n in policy.plans.items() if plan.startswith("model"))
        assert drafts < sum(policy.plans.values()) / 5


def test_text_that_changes_is_followed() -> None:
    """Copies after prose: soon after the change the policy is as good as one that saw no prose."""
    for machine in MACHINES.values():
        policy = AdaptivePolicy(asked("hybrid"), MeasuredSeconds(), max_nodes=8)
        play(record("verse", 1), machine, asked("hybrid"), policy, skip=0, places=400)
        changed = play(record("lists", 1), machine, asked("hybrid"), policy, skip=50, places=400)
        policy = AdaptivePolicy(asked("hybrid"), MeasuredSeconds(), max_nodes=8)
        alone = play(record("lists", 1), machine, asked("hybrid"), policy, skip=50, places=400)
        assert changed.rate > 0.95 * alone.rate


# --- along a context ------------------------------------------------------------------------------

LONG = dataclasses.replace(MACHINES["vectors"], slope=0.08)


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize("kind", ["prose", "copies", "verse", "noise"])
def test_costs_at_one_context_are_known_at_another(kind: str, draft: DraftKind) -> None:
    """Replies behind short and long prompts in turn, the first tokens of each included."""
    settings, prompts = asked(draft), (200, 8000, 300, 4000, 8000)
    policies: dict[str, Policy] = {
        "adaptive": AdaptivePolicy(settings, MeasuredSeconds(settings.draft_cache), max_nodes=8),
        "plain": FixedPolicy(Plan()),
    }
    rates = {
        name: [
            play(record(kind, 1), LONG, settings, policy, skip=0, places=300, prompt=prompt).rate
            for prompt in prompts
        ]
        for name, policy in policies.items()
    }
    gains = [a / b for a, b in zip(rates["adaptive"], rates["plain"], strict=True)]
    assert min(gains[1:]) > 0.95
    fixed = [
        max(
            play(
                record(kind, 1), LONG, settings, FixedPolicy(plan), skip=0, places=300, prompt=8000
            ).rate
            for plan in (Plan(), *FIXED[draft])
        )
    ]
    assert rates["adaptive"][-1] > 0.93 * fixed[0]


def test_a_plain_pass_is_timed_while_drafts_pay() -> None:
    costs = MeasuredSeconds()
    assert not costs.wants_plain(1, 100)
    costs.observe([0], [drafted(3, 3, draft=0.2, verify=1.5)])
    assert costs.wants_plain(1, 100)
    costs.observe([0], [drafted(0, 0, verify=1.0)])
    for _ in range(100 - 1):
        costs.observe([0], [drafted(3, 3, draft=0.2, verify=1.5)])
        assert not costs.wants_plain(1, 100)
    costs.observe([0], [drafted(3, 3, draft=0.2, verify=1.5)])
    assert costs.wants_plain(1, 100)


def test_times_of_other_positions_are_scaled() -> None:
    """Passes of 1 and 4 rows at three contexts; those between are found to 2 %."""
    costs = MeasuredSeconds()

    def seconds(position: int, rows: int) -> float:
        return 2.0 + 0.1 * rows + position / 1000 * (0.2 + 0.1 * rows)

    for _ in range(30):
        for position, rows in itertools.product((100, 2000, 6000), (1, 4)):
            costs.observe(
                [position], [drafted(rows - 1, 0, draft=0.5, verify=seconds(position, rows))]
            )
    for position, rows in itertools.product((100, 1000, 4000, 8000), (1, 4)):
        assert costs.verify([position], rows) == pytest.approx(seconds(position, rows), rel=0.02)
