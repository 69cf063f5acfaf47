"""Joint plans of several sequences, along recorded kinds of text, with the costs of machines."""

from __future__ import annotations

import copy
import dataclasses
import itertools
from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest

from cassandra_spec.drafting import (
    FixedPolicy,
    Gains,
    LevelDrafter,
    LowDrafter,
    MeasuredSeconds,
    Others,
    Outcome,
    Plan,
    Planner,
    Policy,
    Settings,
    accept_greedy,
)
from cassandra_spec.drafting.proposal import DRAFT_VIEW, ROOT, DraftPass, Node, Proposal
from tests.drafting.simulation import KINDS, Machine, Record

MOST, PLACES, FOUND = 7, 400, 100
HYBRID = Settings(gamma="adaptive", draft="hybrid", min_margin=1.0)
MODEL = dataclasses.replace(HYBRID, draft="model")

MACHINES = {
    "matrix units": Machine(
        draft={1: 0.36, 8: 0.46, 64: 1.0, 128: 1.7}, verify={1: 1.0, 9: 1.15, 64: 2.2, 128: 3.6}
    ),
    "vectors": Machine(
        draft={1: 0.36, 4: 0.43, 8: 0.7, 128: 9.0}, verify={1: 1.0, 4: 1.2, 9: 1.9, 128: 19.0}
    ),
}


class Set:
    """A policy that is told each plan."""

    def __init__(self) -> None:
        self.next = Plan()

    def plan(self, position: int) -> Plan:
        return self.next

    def observe(self, outcome: Outcome) -> None: ...


class Running:
    """One sequence: a record, and the drafter along it."""

    def __init__(self, record: Record, settings: Settings) -> None:
        self.record, self.policy, self.context = record, Set(), [0, 0]
        low = LowDrafter(record) if settings.uses_low_drafter else None
        self.drafter = LevelDrafter(low, record, self.policy, settings)

    def round(self) -> Outcome:
        proposal = self.drafter.propose(self.context, 99)
        best = [node.token + 1 if node.token > 0 else 0 for node in proposal.nodes]
        path = accept_greedy(proposal.nodes, [self.context[-1] + 1, *best])
        start = self.context[-1] + 1
        self.context.extend(range(start, start + len(path) + 1))
        return Outcome(proposal=proposal, path=path)


def timed(machine: Machine, outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Divide the times of shared passes among outcomes, by rows."""
    rows = [1 + outcome.drafted for outcome in outcomes]
    verify = machine.seconds(draft=False, rows=sum(rows), position=0)
    found = []
    for outcome, own in zip(outcomes, rows, strict=True):
        passes = []
        for number, each in enumerate(outcome.proposal.passes):
            every = [o.proposal.passes[number].rows for o in outcomes if o.passes > number]
            seconds = machine.seconds(draft=True, rows=sum(every), position=0)
            passes.append(dataclasses.replace(each, seconds=seconds * each.rows / sum(every)))
        proposal = dataclasses.replace(outcome.proposal, passes=tuple(passes))
        found.append(
            dataclasses.replace(outcome, proposal=proposal, verify_seconds=verify * own / sum(rows))
        )
    return found


class Adaptive:
    """Plan for all sequences; each has estimates of its own."""

    def __init__(self, count: int, settings: Settings, known: Gains | None = None) -> None:
        self.planner = Planner(MeasuredSeconds())
        first = known or Gains(settings, max_nodes=MOST)
        self.gains = [copy.deepcopy(first) for _ in range(count)]
        self.lengths: list[list[int]] = []  # of chains, by rounds

    def plans(self) -> list[Plan]:
        self._plans = self.planner.plan(self.gains, [1] * len(self.gains))
        self.lengths.append([plan.model for plan in self._plans])
        return self._plans

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        self.planner.costs.observe([1] * len(self.gains), outcomes)
        for gains, outcome, plan in zip(self.gains, outcomes, self._plans, strict=True):
            gains.observe(outcome, plan)


class Fixed:
    """Give each sequence the same plan in every round."""

    def __init__(self, plans: Sequence[Plan]) -> None:
        self._plans = list(plans)

    def plans(self) -> list[Plan]:
        return self._plans

    def observe(self, outcomes: Sequence[Outcome]) -> None: ...


@dataclasses.dataclass
class Played:
    seconds: float
    tokens: list[int]  # of each sequence

    @property
    def rate(self) -> float:
        return sum(self.tokens) / self.seconds


def play(
    kinds: Sequence[str],
    machine: Machine,
    settings: Settings,
    chooser: Adaptive | Fixed,
    *,
    skip: int = FOUND,
) -> Played:
    """Decode until each sequence has ``PLACES`` tokens on average; the first ones do not count."""
    running = [Running(record(kind, at), settings) for at, kind in enumerate(kinds)]
    total, begun = Played(0.0, [0] * len(kinds)), 0
    while begun < PLACES * len(kinds):
        for each, plan in zip(running, chooser.plans(), strict=True):
            each.policy.next = plan
        outcomes = timed(machine, [each.round() for each in running])
        chooser.observe(outcomes)
        if begun >= skip * len(kinds):
            total.seconds += sum(o.draft_seconds + o.verify_seconds for o in outcomes)
            total.tokens = [n + o.accepted + 1 for n, o in zip(total.tokens, outcomes, strict=True)]
        begun += sum(outcome.accepted + 1 for outcome in outcomes)
    return total


@cache
def record(kind: str, seed: int) -> Record:
    return Record(KINDS[kind], 8 * PLACES, seed)


FIXED = [Plan(), *(Plan(model, 0, model) for model in (1, 2, 3, 5, 7))]


@cache
def best_rate(kinds: tuple[str, ...], machine: str) -> float:
    """Return the rate of the best plans that are fixed for each kind of text."""
    names = sorted(set(kinds))
    rates = []
    for plans in itertools.product(FIXED, repeat=len(names)):
        chosen = Fixed([plans[names.index(kind)] for kind in kinds])
        rates.append(play(kinds, MACHINES[machine], MODEL, chosen).rate)
    return max(rates)


BATCHES = [
    ("prose",) * 2,
    ("prose",) * 4,
    ("copies",) * 8,
    ("noise",) * 4,
    ("prose", "noise"),
    ("copies", "prose", "noise", "noise"),
]


@pytest.mark.parametrize("kinds", BATCHES, ids="-".join)
@pytest.mark.parametrize("machine", MACHINES)
def test_the_best_fixed_plans_are_found(machine: str, kinds: tuple[str, ...]) -> None:
    """To 6 %, from token 100 of each sequence on: costs and gains are learned along the way."""
    found = play(kinds, MACHINES[machine], MODEL, Adaptive(len(kinds), MODEL))
    assert found.rate >= 0.94 * best_rate(kinds, machine)


@pytest.mark.parametrize(("count", "gain"), [(1, 1.5), (2, 1.4), (4, 1.3), (8, 1.2)])
@pytest.mark.parametrize("settings", [MODEL, HYBRID], ids=["model", "hybrid"])
def test_several_gain_where_rows_are_cheap(settings: Settings, count: int, gain: float) -> None:
    """Rows of several sequences share the passes, so drafts still pay."""
    kinds, machine = ("prose",) * count, MACHINES["matrix units"]
    plain = play(kinds, machine, settings, Fixed([Plan()] * count)).rate
    assert play(kinds, machine, settings, Adaptive(count, settings)).rate > gain * plain


@pytest.mark.parametrize("count", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("machine", MACHINES)
def test_drafts_that_are_noise_cost_little(machine: str, count: int) -> None:
    """From the first token on, where later sequences begin with what earlier ones have learned."""
    first = Adaptive(1, HYBRID)
    play(("noise",), MACHINES[machine], HYBRID, first)
    kinds = ("noise",) * count
    plain = play(kinds, MACHINES[machine], HYBRID, Fixed([Plan()] * count), skip=0).rate
    known = Adaptive(count, HYBRID, first.gains[0])
    known.planner = first.planner
    assert play(kinds, MACHINES[machine], HYBRID, known, skip=0).rate > 0.965 * plain


def test_a_sequence_whose_drafts_fail_stops_without_stopping_others() -> None:
    kinds = ("prose", "noise", "prose", "prose")
    chooser = Adaptive(4, MODEL)
    play(kinds, MACHINES["matrix units"], MODEL, chooser)
    lengths = np.array(chooser.lengths[50:]).mean(axis=0)
    assert min(lengths[0], *lengths[2:]) > 1.5
    assert lengths[1] < 0.5


def test_a_new_client_costs_the_others_little() -> None:
    """Beside two sequences that decode plainly, one begins that knows nothing yet."""
    machine = MACHINES["vectors"]
    known = Adaptive(2, MODEL)
    play(("noise",) * 2, machine, MODEL, known)
    chooser = Adaptive(3, MODEL)
    chooser.gains[:2], chooser.planner = known.gains, known.planner
    chooser.gains[2] = copy.deepcopy(known.gains[0])
    kinds = ("noise",) * 3
    plain = play(kinds, machine, MODEL, Fixed([Plan()] * 3), skip=0)
    found = play(kinds, machine, MODEL, chooser, skip=0)
    for mine, theirs in zip(found.tokens[:2], plain.tokens[:2], strict=True):
        assert mine / found.seconds > 0.95 * theirs / plain.seconds


@pytest.mark.parametrize("beside", [1, 40])
def test_rows_beside_are_paid_for_by_nobody(beside: int) -> None:
    """Prompts that are read beside a sequence make its own rows cheaper, not dearer."""
    costs, gains = learned("matrix units"), Gains(MODEL, max_nodes=MOST)
    [alone] = Planner(costs).plan([gains], [1])
    [plan] = Planner(costs).plan([gains], [1], Others(rows=beside))
    assert plan.model >= alone.model > 0


def learned(machine: str) -> MeasuredSeconds:
    """Return costs that know a machine's passes over one sequence."""
    costs, times = MeasuredSeconds(), MACHINES[machine]
    for rows in (1, 2, 5, 9, 17, 33, 65) * 3:
        seconds = times.seconds(draft=False, rows=rows, position=0)
        outcome = Outcome(verify_seconds=seconds / rows)
        costs.observe([1] * rows, [outcome] * rows)
    return costs


def test_prompts_pay_for_their_rows() -> None:
    """Beside a long pass a token seems dear, and drafts cheap; they would delay the prompts."""
    costs, gains = learned("vectors"), Gains(MODEL, max_nodes=MOST)
    [fixed] = Planner(costs).plan([gains], [1], Others(rows=48, plain=1))
    [plan] = Planner(costs).plan([gains], [1], Others(rows=48, prompts=7))
    assert plan.model < fixed.model


def test_a_plan_holds_until_an_estimate_changes() -> None:
    costs, gains = learned("matrix units"), Gains(MODEL, max_nodes=MOST)
    planner = Planner(costs)
    [first] = planner.plan([gains], [1])
    held = planner._held
    planner.plan([gains], [1])
    assert planner._held is held
    node, draft_pass = Node(1, ROOT, 1.0, DRAFT_VIEW), DraftPass(0, 1, 0.3)
    rejected = Outcome(proposal=Proposal(nodes=(node,), passes=(draft_pass,)))
    for _ in range(3):
        gains.observe(rejected, first)
    planner.plan([gains], [1])
    assert planner._held is not held


def test_plans_of_several_that_are_found_again_hold_longer() -> None:
    costs = learned("matrix units")
    for count, rounds in ((1, [8, 8, 8, 8]), (2, [8, 16, 32, 32])):
        planner, gains = Planner(costs), [Gains(MODEL, max_nodes=MOST) for _ in range(count)]
        for held in rounds:
            planner.plan(gains, [1] * count)
            plans = planner._held
            for _ in range(held - 1):
                planner.plan(gains, [1] * count)
                assert planner._held is plans
        planner.plan(gains, [1] * count)
        assert planner._held is not plans


@pytest.mark.parametrize(
    ("row", "more", "fewer"), [(2.0, True, False), (0.0, False, False)], ids=["dear", "cheap"]
)
def test_plans_without_drafts_go_on_beside_others(row: float, more: bool, fewer: bool) -> None:
    """A client that comes changes nothing if rows are dear; one that ends may."""
    gains = [Gains(MODEL, max_nodes=MOST) for _ in range(5)]
    for others, count, holds in (
        (Others(rows=32, prompts=1), 4, more),
        (Others(), 5, more),
        (Others(rows=32, prompts=1), 3, more),  # one ended, the next begins
        (Others(), 3, fewer),
    ):
        planner = Planner(Asked(row))
        planner.plan(gains[:4], [1] * 4)
        held = planner._held
        plans = planner.plan(gains[:count], [1] * count, others)
        assert (planner._held is held) == holds
        assert all(plan.model == 0 for plan in plans) == (row > 0)


@pytest.mark.parametrize("count", [2, 4, 8])
def test_no_joint_plan_is_expected_to_lose(count: int) -> None:
    """Each sequence expects that the others keep their plans; together they may go too far."""
    rng = np.random.default_rng(count)
    for _ in range(30):
        costs, slope = MeasuredSeconds(), rng.uniform(0.05, 0.4)
        free = int(rng.integers(1, 2 * count + 1))  # rows that cost nothing, then each costs more
        for rows in range(1, 8 * count + 1):
            seconds = 1 + slope * max(0, rows - free) ** rng.uniform(1.0, 1.3)
            costs.observe([1] * rows, [Outcome(verify_seconds=seconds / rows)] * rows)
        planner = Planner(costs)
        planner.plan([Gains(MODEL, max_nodes=MOST) for _ in range(count)], [1] * count)
        assert planner._gain >= 1 - 1e-12  # rounding of a rate times its cost


@dataclasses.dataclass
class Asked:
    """Costs of a pass by its rows that remember for how long a plain pass counts as recent."""

    row: float
    recent: list[int] = dataclasses.field(default_factory=list)

    def draft(self, positions: Sequence[int], rows: int) -> float:
        return 0.2 * (1 + self.row * (rows - 1))

    def verify(self, positions: Sequence[int], rows: int) -> float:
        return 1 + self.row * (rows - 1)

    def wants_plain(self, rows: int, recent: int) -> bool:
        self.recent.append(recent)
        return False

    def observe(
        self,
        positions: Sequence[int],
        outcomes: Sequence[Outcome],
        counts: Sequence[int] | None = None,
    ) -> None: ...


@pytest.mark.parametrize(
    ("count", "row", "often"), [(1, 0.0, False), (1, 1.0, False), (4, 0.0, False), (4, 1.0, True)]
)
def test_several_that_gain_little_time_plain_passes_often(
    count: int, row: float, often: bool
) -> None:
    costs = Asked(row)
    planner = Planner(costs)
    gains = [Gains(MODEL, max_nodes=MOST) for _ in range(count)]
    for _ in range(2):  # the first round has no plans to expect a gain of
        planner.plan(gains, [1] * count)
    assert costs.recent[-1] == (Planner.OFTEN if often else Planner.SELDOM)


def test_several_need_a_gain_once_their_drafts_were_timed() -> None:
    """Over all costs of a row, plans of a small gain are taken at first, and then no more."""
    gains, small = [Gains(MODEL, max_nodes=MOST) for _ in range(4)], 0
    for row in np.arange(0.0, 0.5, 0.01):
        planner = Planner(Asked(float(row)))
        first = planner.plan(gains, [1] * 4)
        tried = any(plan.model for plan in first)
        worth = planner._gain > Planner.WORTH
        small += tried and not worth
        again = Planner(Asked(float(row)))
        again._drafted = Planner.LEARNED
        assert any(plan.model for plan in again.plan(gains, [1] * 4)) == (tried and worth)
    assert small


@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_tree_pays_its_share_of_what_all_trees_cost(count: int) -> None:
    """A row more is free for one sequence, and dear if each has one."""

    class Steep(Asked):
        def verify(self, positions: Sequence[int], rows: int) -> float:
            return 1 + self.row * max(0, rows - count - 1)

    lookup = dataclasses.replace(HYBRID, draft="lookup")
    gains = [Gains(lookup, max_nodes=MOST) for _ in range(count)]
    for own in gains:
        own.places[0].add(50, 50)  # the first node is always accepted, others never
        for place in own.places[1:]:
            place.add(0, 50)
    for plan in Planner(Steep(0.5)).plan(gains, [1] * count):
        share, rate = 0.5 * (count - 1) / count, count * Planner.WORTH ** (count > 1)
        assert plan.tree == 1
        assert plan.min_node_probability == pytest.approx(min(rate * share, 1.0))


def test_one_sequence_is_planned_as_a_single_one() -> None:
    policy: Policy = FixedPolicy(Plan(3, 0, 3))
    assert policy.plan(5) == Plan(3, 0, 3)
    costs = MeasuredSeconds()
    gains = Gains(HYBRID, max_nodes=MOST)
    [plan] = Planner(costs).plan([gains], [10])
    assert 0 < plan.model <= MOST
    assert plan.rows <= MOST
