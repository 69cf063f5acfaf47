"""Decide how much a round drafts: a fixed plan, or the plan with the best expected throughput."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cassandra_spec.drafting.proposal import DRAFT_VIEW, Count, Outcome
from cassandra_spec.drafting.settings import ADAPTIVE, Settings

_Floats = NDArray[np.float64]

FILLED_NODES = 15
"""Default nodes of a filled verification: with the token before them, a pass of 16 rows."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """Limits on the drafts of one round (:mod:`cassandra_spec.drafting.levels`)."""

    model: int = 0  # tokens drafted by the draft view
    low: int = 0  # nodes of the low drafter per draft view pass
    rows: int = 0  # nodes to verify; other sources fill the rows that the chain leaves unused
    tree: int = 0  # nodes of a low drafter's tree that skips the draft view; 0: rows
    skip_draft_threshold: float = math.inf
    """Expected tokens of the low drafter from which its tree skips the draft view."""
    min_node_probability: float = 0.0
    """Minimum probability of a low drafter's node to be worth its row."""

    def __str__(self) -> str:
        if not self.rows:
            return "plain"
        if not self.model:
            return f"low tree {self.rows}"
        parts = [f"model {self.model}", *([f"low {self.low}"] if self.low else [])]
        return ", ".join([*parts, *([f"rows {self.rows}"] if self.rows != self.model else [])])


class Policy(Protocol):
    """Plan rounds."""

    def plan(self, position: int) -> Plan:
        """Return the plan of the next round, whose context ends at ``position``."""

    def observe(self, outcome: Outcome) -> None:
        """Update estimates from a finished round."""


class PassCosts(Protocol):
    """Costs of passes over one or several sequences, in one unit: bytes or seconds.

    ``positions`` are those of the sequences' last tokens; ``rows`` count all rows of a pass.
    """

    def draft(self, positions: Sequence[int], rows: int) -> float:
        """Return the cost of one draft view pass."""

    def verify(self, positions: Sequence[int], rows: int) -> float:
        """Return the cost of one target pass."""

    def wants_plain(self, rows: int, recent: int) -> bool:
        """Return True if the next round should be plain, to learn what it costs.

        That is, if none of the last ``recent`` rounds had a plain pass over ``rows``.
        """

    def observe(
        self,
        positions: Sequence[int],
        outcomes: Sequence[Outcome],
        counts: Sequence[int] | None = None,
    ) -> None:
        """Update costs from a finished round.

        ``counts`` are the tokens that the target read of each sequence, beside drafts (default:
        one).
        """


@dataclasses.dataclass(frozen=True)
class FixedPolicy:
    """Use the same plan for each round."""

    fixed: Plan

    def plan(self, position: int) -> Plan:
        """Return the fixed plan."""
        return self.fixed

    def observe(self, outcome: Outcome) -> None:
        """Do nothing: the plan is fixed."""


class _Mean:
    """Exponentially weighted mean over cases, with a prior.

    Each call of ``add`` multiplies the sums by ``DECAY``, and ``fade``, after a round that drafted
    nothing, by ``IDLE``. The prior counts as ``weight`` constant cases of value ``prior``. An
    estimate that stops all drafting therefore fades within a hundred rounds or two, and drafting is
    tried again. Another ``start`` cases of that value fade like those that are added, so that the
    first few cases change little.
    """

    DECAY, IDLE = 0.97, 0.9875

    def __init__(self, prior: float, weight: float = 3.0, start: float = 0.0) -> None:
        self._prior, self._weight = prior, weight
        self._sum, self._cases = prior * start, start

    @property
    def value(self) -> float:
        return (self._sum + self._prior * self._weight) / (self._cases + self._weight)

    def add(self, amount: float, cases: float) -> None:
        self._sum = self._sum * self.DECAY + amount
        self._cases = self._cases * self.DECAY + cases

    def fade(self) -> None:
        self._sum *= self.IDLE
        self._cases *= self.IDLE


class _Fill:
    """Mean nodes that fill the rows after a chain, and mean accepted ones, by place after it.

    A mean changes in rounds that may fill its row; others do not fade what was learned. The priors
    are high, because a row that seems useless is filled, and its mean corrected, only rarely.
    Without ``sources`` of nodes all means are 0.
    """

    def __init__(self, places: int, *, sources: bool) -> None:
        self._added = [_Mean(0.4 * sources) for _ in range(places)]
        self._gains = {
            accepted: [_Mean(sources * prior * 0.5**place, 2.0) for place in range(places)]
            for accepted, prior in ((True, 0.15), (False, 0.3))
        }

    def observe(self, outcome: Outcome, chain: Count, rows: int) -> None:
        """Update the means from a round whose chain was filled to ``rows`` nodes."""
        gains = self._gains[chain.accepted == chain.drafted]
        for place, node in enumerate(range(chain.drafted, rows)):
            self._added[place].add(node < outcome.drafted, 1)
            gains[place].add(node in outcome.path, 1)

    def added(self, most: int) -> _Floats:
        """Return the expected nodes that fill 0, 1, ... ``most`` rows."""
        return _sums(self._added, most)

    def gain(self, most: int, *, accepted: bool) -> _Floats:
        """Return the expected tokens from filling 0, 1, ... ``most`` rows after a chain."""
        return _sums(self._gains[accepted], most)


def _sums(means: Sequence[_Mean], most: int) -> _Floats:
    """Return the sums of the first 0, 1, ... ``most`` means; missing means count as 0."""
    values = np.zeros(most + 1)
    values[1 : len(means) + 1] = [mean.value for mean in means]
    return np.cumsum(values)


class Gains:
    """Estimates of one sequence, from its past rounds: how much its drafts gain.

    A drafted token's margin is large enough to continue drafting with probability ``s``.
    Tokens with a large margin are accepted with probability ``a`` given that their predecessors
    are; tokens that stop drafting, with probability ``b``. With a low drafter's nodes, a token
    costs a pass of its own with probability ``1 - m``. Other sources fill a chain up to its
    maximum length or fill all rows; :class:`_Fill` estimates what that adds.

    ``settings`` restricts the drafts, ``max_nodes`` limits their nodes.
    """

    FILLED = 25
    """Rounds after which all rows are filled once."""

    def __init__(self, settings: Settings, *, max_nodes: int) -> None:
        levels = settings.levels
        self.max_nodes = max_nodes
        self.models = max_nodes if settings.uses_draft_view else 0  # longest chain
        self.uses_low = settings.uses_low_drafter
        self.low = levels.low if self.uses_low else 0
        self.fills = self.uses_low and levels.tail
        self.rows = min(max_nodes, levels.rows)
        self.fill = _Fill(max_nodes, sources=self.uses_low)
        self._unfilled = 0  # rounds since all rows were filled
        self.accepted, self.continued = _Mean(0.8, 1.0, start=3.0), _Mean(0.9)  # a, s
        self.accepted_last, self.matched = _Mean(0.6), _Mean(0.4, 6.0)  # b, m
        self.kept = _Mean(1.0, 0.5)  # accepted nodes of the low drafter over the number promised
        priors = (0.8 ** (place + 1) for place in range(self.rows))
        self.places = [_Mean(prior, 5.0) for prior in priors]  # first, second, ... node of a tree

    def estimates(self) -> list[float]:
        """Return the estimates on which a plan depends most."""
        most = [self.accepted, self.continued, self.matched, self.kept, *self.places[:2]]
        return [each.value for each in most]

    def all_rows(self, model: int) -> int:
        """Return the nodes of a verification that is filled after a chain of ``model``."""
        return max(model, self.rows) if self.fills else model

    def allowed(self, most: int) -> NDArray[np.bool_]:
        """Return the plans to choose from [row limit, longest chain - 1], up to ``most`` nodes.

        Chains may be longer than the limit: other sources then fill rows after short ones only.
        """
        rows, model = np.arange(most + 1)[:, None], np.arange(1, most + 1)
        highest = np.maximum(model, self.rows) if self.fills else model
        lowest = 1 if self.uses_low else model
        return (lowest <= rows) & (rows <= highest) & (model <= self.models)

    def sometimes_filled(self, chosen: Plan) -> Plan:
        """Fill all rows of one round in ``FILLED``, to learn what that gains now."""
        if not chosen.model or not self.fills:
            return chosen
        rows = self.all_rows(chosen.model)
        self._unfilled = 0 if chosen.rows == rows else self._unfilled + 1
        if self._unfilled < self.FILLED:
            return chosen
        self._unfilled = 0
        return dataclasses.replace(chosen, rows=rows)

    def observe(self, outcome: Outcome, plan: Plan) -> None:
        """Update the estimates from a finished round."""
        if not outcome.drafted:
            most = self.accepted, self.accepted_last, self.continued, self.matched, self.kept
            for mean in most:
                mean.fade()
            return
        if not outcome.proposal.passes:
            for place, mean in enumerate(self.places):
                mean.add(place in outcome.path, place < outcome.drafted)
        view, passes = outcome.counts().get(DRAFT_VIEW, Count()), outcome.proposal.passes
        stopped = view.drafted > 0 and outcome.proposal.stopped
        sure, whole = view.drafted - stopped, view.tested == view.drafted
        self.accepted.add(min(view.accepted, sure), min(view.tested, sure))
        last = stopped and view.accepted == view.drafted
        self.accepted_last.add(last, stopped and whole)
        self.continued.add(sure, view.drafted)
        more = max(view.drafted - 1, 0) * any(each.rows > 1 for each in passes)
        self.matched.add(more and view.drafted - len(passes), more)
        if view.drafted:
            self.fill.observe(outcome, view, plan.rows)
        promised, kept = outcome.promised()
        self.kept.add(kept, promised)


class Chains:
    """Expected tokens, nodes and passes of chains, by their maximum length, of several sequences.

    Of each sequence: ``going_on`` is the probability that drafting continues after a node,
    ``accepted`` that such a node is accepted if its predecessors are, ``accepted_last`` that a node
    that ends drafting is. ``most`` is the greatest maximum length.
    """

    def __init__(
        self,
        most: int,
        *,
        going_on: ArrayLike,
        accepted: ArrayLike,
        accepted_last: ArrayLike,
    ) -> None:
        going, self._accepted, self._accepted_last = (
            np.asarray(each, np.float64).reshape(-1, 1, 1)
            for each in (going_on, accepted, accepted_last)
        )
        earlier = np.arange(most)  # nodes before the last
        self.reach = going**earlier  # probability that these are drafted
        self._stops, self._ends = self.reach * (1 - going), self.reach * going
        self._before = self._accepted**earlier  # probability that these are accepted
        nodes = np.arange(most + 1)
        self._nodes = nodes[1:]
        self._free = np.maximum(nodes[:, None] - (earlier + 1), 0)  # rows left by the chain

    def tokens(self, gains: tuple[_Floats, _Floats]) -> _Floats:
        """Return the expected tokens of a round [sequences, rows, longest chain - 1].

        ``gains`` [sequences, most + 1] are tokens from filling 0, 1, ... rows after an accepted
        chain, and after a rejected one.
        """
        whole_gain, part_gain = (gain[:, self._free] for gain in gains)

        def ended(accepted: _Floats) -> _Floats:
            whole = self._before * accepted
            return np.asarray(whole * (1 + whole_gain) + (1 - whole) * part_gain)

        tokens = 1 + np.cumsum(self._stops * ended(self._accepted_last), axis=-1)
        sure = self._ends * self._before * self._accepted
        earlier = np.cumsum(sure, axis=-1) - sure
        return np.asarray(tokens + self._ends * ended(self._accepted) + earlier)

    def nodes(self, added: _Floats) -> _Floats:
        """Return a verification's nodes if the chain ends at its first, second, ... node.

        [sequences, rows, longest chain]; ``added`` [sequences, most + 1] are the expected nodes
        that fill 0, 1, ... rows.
        """
        return np.asarray(self._nodes + added[:, self._free])

    def mean(self, values: _Floats) -> _Floats:
        """Return the mean of values by the end of the chain [sequences, rows, longest - 1]."""
        return np.asarray(np.cumsum(self._stops * values, axis=-1) + self._ends * values)

    def passes(self, matched: _Floats) -> _Floats:
        """Return the probability of the first, second, ... pass [sequences, longest chain].

        A node after the first needs no pass of its own with probability ``matched`` [sequences].
        """
        passes = self.reach[:, 0] * (1 - matched)[:, None]
        passes[:, 0] = 1.0
        return passes


class Others(NamedTuple):
    """Sequences of a round whose plans are given."""

    rows: int = 0  # in the verification
    plain: int = 0  # sequences that emit a token
    prompts: int = 0  # sequences whose prompts are read


ALONE = Others()


class Planner:
    """Choose the plans of a round of several sequences with the most expected tokens per cost.

    All sequences draft side by side, so a draft view pass has a price that is paid once and one for
    each sequence in it, and rows of all sequences share a verification. For every number of shared
    passes, each sequence takes the plan worth most at the present rate of tokens per cost; the best
    of these joint plans gives the next rate, until it no longer rises (Dinkelbach 1967). For a
    single sequence this is the plan with the most tokens per cost. Among equal plans the smaller
    wins.

    Rows of prompts pay for a part of a verification: all but what the other sequences would cost
    in a plain pass of all of them. Otherwise drafts would seem cheap beside a long pass, and delay
    the prompts.

    The low drafter's tree goes to the target without a draft pass if its expected tokens per cost
    exceed those of the best plan. The expectation is scaled by the ratio of kept to promised tokens
    so far. Without a draft view, the tree's size follows from the acceptance rates of its first,
    second, ... node.

    Planning takes some per cent of a pass. So a joint plan holds for up to ``HELD`` rounds of the
    same sequences beside the same others, until an estimate or a price has changed by ``CHANGED``.
    The plans of several sequences take longer to find: changes are looked for every ``LOOKED``
    rounds, and each time that the same plans are found again, both limits double, up to ``STEADY``
    times.

    ``plans`` counts the plans chosen.
    """

    HELD, CHANGED = 8, 0.05
    LOOKED, STEADY = 4, 2
    OFTEN, SELDOM, LITTLE = 25, 100, 1.25
    """Rounds after which a plain pass is timed again: ``OFTEN`` for several sequences whose drafts
    gain less than ``LITTLE``. They lose more by a wrong price than by a plain pass."""
    WORTH, LEARNED = 1.1, 16
    """Expected gain that several sequences need to draft, by chains once ``LEARNED`` rounds with
    chains were planned: the best of many plans with noisy prices is often worse than it seems."""

    def __init__(self, costs: PassCosts) -> None:
        self.costs = costs
        self._gain = 1.0  # of the held plans, expected
        self.plans: dict[str, int] = {}
        self._held: list[Plan] = []
        self._for: tuple[Sequence[Gains], Others] = [], ALONE  # inputs of the held plans, but rows
        self._state = np.zeros(0)  # estimates and prices at that time
        self._left = 0  # rounds for which they hold
        self._again = 0  # times that they were found again, up to STEADY
        self._drafted = 0  # rounds with draft view passes

    def plan(
        self,
        gains: Sequence[Gains],
        positions: Sequence[int],
        others: Others = ALONE,
    ) -> list[Plan]:
        """Return the plans of the next round; ``positions`` are those of the last tokens."""
        plans = [Plan()] * len(gains)
        often = len(gains) > 1 and self._gain < self.LITTLE
        recent = self.OFTEN if often else self.SELDOM
        if others.rows or not self.costs.wants_plain(len(gains), recent):
            held = self._joint(gains, positions, others)
            plans = [each.sometimes_filled(plan) for each, plan in zip(gains, held, strict=True)]
        self._drafted += any(plan.model for plan in plans)
        for plan in plans:
            self.plans[str(plan)] = self.plans.get(str(plan), 0) + 1
        return plans

    def _joint(
        self, gains: Sequence[Gains], positions: Sequence[int], others: Others
    ) -> list[Plan]:
        """Return the best joint plan, or the one that is held."""
        case, several = (list(gains), others._replace(rows=0)), len(gains) > 1
        estimates = partial(self._estimates, gains, positions)
        looks = self._for == case and not (several and self._left % self.LOOKED)
        if not self._holds(*case) or (looks and self._differs(estimates())):
            needed = self.WORTH if several and self._drafted >= self.LEARNED else 1.0
            options = _JointPlan(gains, self._prices(gains, positions, others), needed)
            options.improve()
            before, self._held = self._held, [options.plan(at) for at in range(len(gains))]
            kinds = [list(map(_kind, plans)) for plans in (before, self._held)]
            quiet = bool(before) and _all_plain(before + self._held)
            same = quiet or (self._for == case and kinds[0] == kinds[1])
            self._again = min(self._again + 1, self.STEADY) if same and several else 0
            chains = any(each.models for each in gains)  # without them, planning takes little time
            self._for, self._state, self._gain = case, estimates(), options.gain
            self._left = self.HELD << self._again if chains else 1
        self._left -= 1
        plans = dict(zip(map(id, self._for[0]), self._held, strict=True))
        return [plans.get(id(each), Plan()) for each in gains]

    def _holds(self, gains: Sequence[Gains], others: Others) -> bool:
        """Return True if the held plans still apply.

        Plans of several sequences without drafts still apply beside further sequences and prompts:
        drafts that are not worth their rows are not worth more there.
        """
        if not self._left or self._for == (gains, others):
            return self._left > 0
        known = len(self._for[0])
        return _all_plain(self._held) and len(gains) + others.prompts >= known > 1

    def _estimates(self, gains: Sequence[Gains], positions: Sequence[int]) -> _Floats:
        """Return the estimates and prices on which plans depend most."""
        count = len(gains)
        prices = [self.costs.verify(positions, rows) for rows in (count, 5 * count)]
        prices.append(self.costs.draft(positions, count))
        return np.array([*prices, *(each for own in gains for each in own.estimates())])

    def _differs(self, state: _Floats) -> bool:
        changed = self.CHANGED * 2**self._again
        return bool((np.abs(state - self._state) > changed * self._state).any())

    def _prices(self, gains: Sequence[Gains], positions: Sequence[int], others: Others) -> _Prices:
        count, most = len(gains), max(each.max_nodes for each in gains)
        points = most * min(count, 2)  # a single sequence tries every number of rows
        first = others.rows + count
        rows = [first + round(at * count * most / points) for at in range(points + 1)]
        verify = np.array([self.costs.verify(positions, each) for each in rows])
        if others.prompts:
            total = count + others.plain + others.prompts
            plain = self.costs.verify(positions, total) * (count + others.plain) / total
            verify -= max(0.0, verify[0] - plain)
        drafts = {}
        for low in sorted({0, *(each.low for each in gains if each.models)}):
            one = self.costs.draft(positions[:1], 1 + low)
            every = self.costs.draft(positions, count * (1 + low)) if count > 1 else one
            own = max(every - one, 0.0) / max(count - 1, 1)
            drafts[low] = one - own, own
        return _Prices(np.array(rows, float), verify, drafts, others.rows, others.plain)


def _kind(plan: Plan) -> tuple[int, int, int]:
    """Return what a plan drafts, without its thresholds."""
    return plan.model, plan.low, plan.rows if plan.model else 0


def _all_plain(plans: Sequence[Plan]) -> bool:
    return not any(plan.model for plan in plans)


@dataclasses.dataclass(frozen=True)
class _Prices:
    """Costs of the passes of a round."""

    rows: _Floats  # verified rows of all sequences, at which prices are given
    verify: _Floats
    drafts: dict[int, tuple[float, float]]  # by low nodes: of a pass, and of each sequence in it
    beside: int  # rows of other sequences
    plain: int  # their tokens

    def verification(self, rows: _Floats | float) -> _Floats:
        """Return the cost of verifications over some expected numbers of rows, beside others."""
        return np.asarray(np.interp(self.beside + rows, self.rows, self.verify))


class _Choice(NamedTuple):
    """The plans of all sequences of a round, with expected values by sequence."""

    low: int
    model: NDArray[np.int_]
    limit: NDArray[np.int_]
    tokens: _Floats
    nodes: _Floats
    drafting: _Floats  # cost of draft view passes
    cost: float  # of the round


class _JointPlan:
    """Find the plans of all sequences of a round that are worth most together."""

    ITERATIONS = 5

    def __init__(self, gains: Sequence[Gains], prices: _Prices, needed: float) -> None:
        self._gains, self._prices, self._needed_gain = gains, prices, needed
        count = self._count = len(gains)
        self._most = max(each.max_nodes for each in gains)
        self._plain = float(prices.verification(float(count)))
        none, zeros = np.zeros(count, int), np.zeros(count)
        self._chosen = _Choice(0, none, none, np.ones(count), zeros, zeros, self._plain)

    @property
    def rate(self) -> float:
        """Expected tokens per cost."""
        return (self._prices.plain + float(self._chosen.tokens.sum())) / self._chosen.cost

    @property
    def gain(self) -> float:
        """Expected tokens per cost over those of a plain pass."""
        return self.rate * self._plain / (self._prices.plain + self._count)

    def improve(self) -> None:
        """Take better joint plans as long as there are any.

        A step expects of each sequence that the others keep their plans, so it may go too far.
        """
        if any(each.models for each in self._gains):
            self._estimate()
            best, rate = self._chosen, self.rate * self._needed_gain
            for _ in range(self.ITERATIONS):
                if not self._step():
                    break
                if self.rate > rate:
                    best, rate = self._chosen, self.rate
            self._chosen = best

    def _values(self, name: str) -> _Floats:
        return np.array([getattr(each, name).value for each in self._gains])

    def _estimate(self) -> None:
        """Compute the expected tokens and the nodes of every plan."""
        names = {"going_on": "continued", "accepted": "accepted", "accepted_last": "accepted_last"}
        values = {argument: self._values(name) for argument, name in names.items()}
        self._chains = chains = Chains(self._most, **values)
        whole, part = (
            np.stack([each.fill.gain(self._most, accepted=won) for each in self._gains])
            for won in (True, False)
        )
        self._worth = chains.tokens((whole, part))
        self._ends = chains.nodes(np.stack([each.fill.added(self._most) for each in self._gains]))
        self._allowed = np.stack([each.allowed(self._most) for each in self._gains])
        self._matched = self._values("matched")

    def _verifying(self, others: _Floats, ends: _Floats) -> _Floats:
        """Return the expected cost of verifications beside ``others`` rows [sequences]."""
        return self._chains.mean(self._prices.verification(others[:, None, None] + 1 + ends))

    def _others(self) -> _Floats:
        """Return the expected rows beside each sequence's own."""
        nodes = self._chosen.nodes
        return np.asarray(self._count - 1 + nodes.sum() - nodes)

    def _step(self) -> bool:
        """Take the joint plan worth most at the present rate; return False if none is better."""
        rate, others = self.rate, self._others()
        without = self._prices.verification(others + 1)[:, None, None]
        verifying = self._verifying(others, self._ends) - without
        worth, best_plan = rate * self._plain - self._count - self._prices.plain, None
        for low, (shared, own) in self._prices.drafts.items():
            passes = self._chains.passes(self._matched * (low > 0))
            spent = verifying + own * np.cumsum(passes, axis=-1)[:, None]
            net = np.where(self._allowed, self._worth - 1 - rate * spent, -np.inf)
            best, longest = _up_to(net.max(axis=1))
            runs = np.arange(self._most) < longest[..., None]
            joint = (1 - np.where(runs, 1 - passes[:, None], 1.0).prod(axis=0)).sum(axis=-1)
            total = best.sum(axis=0) - rate * shared * joint
            at = int(total.argmax())
            if total[at] > worth + 1e-9:
                worth = float(total[at])
                best_plan = low, longest[:, at], net.argmax(axis=1), passes, float(joint[at])
        if best_plan is None:
            return False
        self._take(*best_plan)
        return True

    def _take(
        self,
        low: int,
        model: NDArray[np.int_],
        limits: NDArray[np.int_],
        passes: _Floats,
        joint: float,
    ) -> None:
        """Take the joint plan of each sequence's longest chain, and its best row limit."""
        at, drafts, last = np.arange(self._count), model > 0, np.maximum(model - 1, 0)
        limit = limits[at, last]
        place = at, limit, last
        tokens = np.where(drafts, self._worth[place], 1.0)
        verifying = self._verifying(self._others(), self._ends)[place]
        nodes = np.where(drafts, self._chains.mean(self._ends)[place], 0.0)
        shared, own = self._prices.drafts[low]
        run = np.where(drafts, np.cumsum(passes, axis=-1)[at, last], 0.0)
        drafting = own * run + drafts * shared * joint / max(drafts.sum(), 1)
        rows = float(self._count + nodes.sum())
        alone = self._count == 1 and drafts[0]  # then the mean over the chain's ends is exact
        verify = float(verifying[0] if alone else self._prices.verification(rows))
        limits = np.where(drafts, limit, 0)
        cost = verify + float(drafting.sum())
        self._chosen = _Choice(low, model, limits, tokens, nodes, drafting, cost)

    def plan(self, at: int) -> Plan:
        """Return the plan of one sequence."""
        gains, joint, model = self._gains[at], self._chosen, int(self._chosen.model[at])
        chosen = Plan(model, min(joint.low, gains.low), int(joint.limit[at])) if model else Plan()
        return self._with_direct(at, chosen) if gains.uses_low else chosen

    def _with_direct(self, at: int, chosen: Plan) -> Plan:
        """Return ``chosen`` with thresholds for using a low drafter's tree without a draft pass.

        A row is worth its cost if its expected tokens exceed the rate times its cost. Where trees
        keep more than they promise, deep nodes exceed their promise by more than the tree as a
        whole.
        """
        gains = self._gains[at]
        verify = self._tree_prices(at, np.arange(gains.max_nodes + 1), chain=bool(chosen.model))
        if chosen.model:
            tree = gains.all_rows(chosen.model)
            needed, rate = self._needed(at, chosen, float(verify[tree]))
        else:
            needed_gain = Planner.WORTH if self._count > 1 else 1.0
            tree, rate = self._best_tree(gains, verify), self.rate * needed_gain
            needed = 1 + rate * float(verify[tree] - verify[0])
        kept = max(gains.kept.value, 0.05)
        slope = max(float(verify[tree] - verify[0]), 0.0) / max(tree, 1)
        return dataclasses.replace(
            chosen,
            rows=chosen.rows if chosen.model else tree,
            tree=tree,
            skip_draft_threshold=(needed - 1) / kept + 1,
            min_node_probability=min(rate * slope / (kept * max(kept, 1.0)), 1.0),
        )

    def _tree_prices(self, at: int, rows: NDArray[np.int_], *, chain: bool) -> _Floats:
        """Return the cost of a verification by the rows of a sequence's tree.

        Without a chain, every sequence may have one: each pays its share of what all would cost.
        """
        if chain:
            return self._prices.verification(self._others()[at] + 1 + rows)
        chains = float(self._chosen.nodes.sum())
        all_rows = np.asarray(chains + self._count * (1 + rows), np.float64)
        every = self._prices.verification(all_rows)
        return np.asarray(every[0] + (every - every[0]) / self._count)

    def _needed(self, at: int, chosen: Plan, verify_tree: float) -> tuple[float, float]:
        """Return the tokens that a tree has to exceed, and the rate of tokens per cost.

        They are those of the plan whose rows are all filled, in vain, if that rate is lower.
        """
        last = at, chosen.rows, chosen.model - 1
        verifying = float(self._verifying(self._others(), self._ends)[last])
        tokens, rate = float(self._chosen.tokens[at]), self.rate
        if self._gains[at].fills:
            every = np.arange(self._most + 1.0)[None].repeat(self._count, axis=0)
            filled = at, self._gains[at].all_rows(chosen.model), chosen.model - 1
            cost = float(self._verifying(self._others(), self._chains.nodes(every))[filled])
            more = float(self._worth[filled])
            total = self._prices.plain + float(self._chosen.tokens.sum()) - tokens + more
            lower = total / (self._chosen.cost - verifying + cost)
            if lower < rate:
                verifying, tokens, rate = cost, more, lower
        return tokens - rate * (verifying - verify_tree + float(self._chosen.drafting[at])), rate

    def _best_tree(self, gains: Gains, verify: _Floats) -> int:
        """Return the low drafter's tree size with the most tokens per cost; 0 if no tree pays."""
        others = self._prices.plain + float(self._chosen.tokens.sum()) - 1
        tokens = itertools.accumulate((place.value for place in gains.places), initial=1.0)
        worth = {
            rows: (others + gained) / (self._chosen.cost + float(verify[rows] - verify[0]))
            for rows, gained in enumerate(tokens)
            if rows
        }
        return max(worth, key=lambda rows: worth[rows], default=0)


def _up_to(values: _Floats) -> tuple[_Floats, NDArray[np.int_]]:
    """Return the largest of 0 and the first 0, 1, ... values, and its place counted from 1.

    ``values`` are [sequences, n], the results [sequences, n + 1]; 0 has the place 0.
    """
    padded = np.concatenate([np.zeros((len(values), 1)), values], axis=1)
    best = np.maximum.accumulate(padded, axis=1)
    rises = np.concatenate([np.zeros((len(values), 1), bool), best[:, 1:] > best[:, :-1]], axis=1)
    at = np.where(rises, np.arange(padded.shape[1]), 0)
    return best, np.maximum.accumulate(at, axis=1)


class AdaptivePolicy:
    """Plan the rounds of a single sequence (:class:`Planner`, :class:`Gains`)."""

    def __init__(self, settings: Settings, costs: PassCosts, *, max_nodes: int) -> None:
        self.gains = Gains(settings, max_nodes=max_nodes)
        self._planner = Planner(costs)
        self._planned, self._position = Plan(), 0

    @property
    def plans(self) -> dict[str, int]:
        """Number of rounds by their plan."""
        return self._planner.plans

    @property
    def rate(self) -> float:
        """Estimated conditional acceptance rate of the draft view's large-margin tokens."""
        return self.gains.accepted.value

    def plan(self, position: int) -> Plan:
        """Return the plan of the next round."""
        self._position = position
        [self._planned] = self._planner.plan([self.gains], [position])
        return self._planned

    def observe(self, outcome: Outcome) -> None:
        """Update costs and estimates from a finished round."""
        self._planner.costs.observe([self._position], [outcome])
        self.gains.observe(outcome, self._planned)


def make_policy(settings: Settings, costs: PassCosts, *, max_nodes: int) -> Policy:
    """Return the policy for these settings; an adaptive one plans up to ``max_nodes`` nodes."""
    if settings.gamma == ADAPTIVE:
        return AdaptivePolicy(settings, costs, max_nodes=max_nodes)
    return FixedPolicy(fixed_plan(settings, int(settings.gamma)))


def fixed_plan(settings: Settings, gamma: int) -> Plan:
    """Return the plan of a fixed gamma; low drafters fill rows up to the settings' number."""
    levels = settings.levels
    if not settings.uses_draft_view:
        return Plan(rows=gamma if settings.uses_low_drafter else 0)
    if not settings.uses_low_drafter:
        return Plan(model=gamma, rows=gamma)
    rows = max(gamma, min(FILLED_NODES, levels.rows)) if levels.tail else gamma
    return Plan(model=gamma, low=levels.low, rows=rows)
