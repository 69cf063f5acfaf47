"""Decide how much a round drafts: a fixed plan, or the plan with the best expected throughput."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.drafting.proposal import DRAFT_VIEW, Count, Outcome
from cassandra_spec.drafting.seconds import MeasuredSeconds
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
    """Costs of passes, in one unit: bytes or seconds."""

    def draft(self, position: int, rows: int) -> float:
        """Return the cost of one draft view pass over ``rows`` tokens."""

    def verify(self, position: int, rows: int) -> float:
        """Return the cost of one target pass over ``rows`` tokens."""

    def observe(self, outcome: Outcome) -> None:
        """Update costs from a finished round."""


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

    Each call of ``add`` multiplies the sums by ``DECAY``, even without cases. The prior counts
    as ``weight`` constant cases of value ``prior``. An estimate that stops all drafting therefore
    fades within some dozens of rounds, and drafting is tried again. Another ``start`` cases of
    that value fade like those that are added, so that the first few cases change little.
    """

    DECAY = 0.97

    def __init__(self, prior: float, weight: float = 3.0, start: float = 0.0) -> None:
        self._prior, self._weight = prior, weight
        self._sum, self._cases = prior * start, start

    @property
    def value(self) -> float:
        return (self._sum + self._prior * self._weight) / (self._cases + self._weight)

    def add(self, amount: float, cases: float) -> None:
        self._sum = self._sum * self.DECAY + amount
        self._cases = self._cases * self.DECAY + cases


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

    def added(self) -> _Floats:
        """Return the expected nodes that fill 0, 1, ... rows."""
        return _sums([mean.value for mean in self._added])

    def gain(self, *, accepted: bool) -> _Floats:
        """Return the expected tokens from filling 0, 1, ... rows after a chain."""
        return _sums([mean.value for mean in self._gains[accepted]])


def _sums(values: Sequence[float] | _Floats) -> _Floats:
    return np.concatenate([[0.0], np.cumsum(values)])


class AdaptivePolicy:
    """Choose the plan with the most expected tokens per cost.

    A drafted token's margin is large enough to continue drafting with probability ``s``.
    Tokens with a large margin are accepted with probability ``a`` given that their predecessors
    are; tokens that stop drafting, with probability ``b``. With a low drafter's nodes, a token
    costs a pass of its own with probability ``1 - m``. Other sources fill a chain up to its
    maximum length or fill all rows; :class:`_Fill` estimates what that adds. All are
    estimated from past rounds; ``costs`` prices the passes. Among equal plans the smaller wins.

    The low drafter's tree goes to the target without a draft pass if its expected tokens per cost
    exceed those of the best plan. The expectation is scaled by the ratio of kept to promised tokens
    so far. Without a draft view, the tree's size follows from the acceptance rates of its first,
    second, ... node.

    ``settings`` restricts the drafts, ``max_nodes`` limits their nodes. ``plans`` counts the plans
    chosen.
    """

    FILLED = 25
    """Rounds after which all rows are filled once."""

    def __init__(self, settings: Settings, costs: PassCosts, *, max_nodes: int) -> None:
        levels = settings.levels
        self._max_nodes = max_nodes
        self._models = range(1, max_nodes + 1 if settings.uses_draft_view else 1)
        self._uses_low = settings.uses_low_drafter
        self._lows = (0, levels.low) if self._uses_low and levels.low else (0,)
        self._fills = self._uses_low and levels.tail
        self._rows = min(max_nodes, levels.rows)
        self._fill = _Fill(max_nodes, sources=self._uses_low)
        self._unfilled = 0  # rounds since all rows were filled
        self._planned = Plan()
        self._costs = costs
        self._accepted, self._continued = _Mean(0.8, 1.0, start=3.0), _Mean(0.9)  # a, s
        self._accepted_last, self._matched = _Mean(0.6), _Mean(0.4, 6.0)  # b, m
        self._kept = _Mean(1.0, 0.5)  # accepted nodes of the low drafter over the number promised
        priors = (0.8 ** (place + 1) for place in range(self._rows))
        self._places = [_Mean(prior, 5.0) for prior in priors]  # first, second, ... node of a tree
        self.plans: dict[str, int] = {}

    @property
    def rate(self) -> float:
        """Estimated conditional acceptance rate of the draft view's large-margin tokens."""
        return self._accepted.value

    def plan(self, position: int) -> Plan:
        """Return the plan of the next round."""
        verify = [self._costs.verify(position, 1 + nodes) for nodes in range(self._max_nodes + 1)]
        if isinstance(self._costs, MeasuredSeconds) and self._costs.wants_plain():
            return self._counted(Plan())
        chosen, worth = self._best_chain(position, verify)
        if self._uses_low:
            chosen = self._with_direct(chosen, worth, verify)
        return self._counted(self._sometimes_filled(chosen))

    def _best_chain(self, position: int, verify: Sequence[float]) -> tuple[Plan, float]:
        """Return the best plan with the draft view, or the plain one.

        Also return what low drafters' trees have to exceed: the plan's tokens per cost if all rows
        are filled, in vain.
        """
        chosen, worth = Plan(), 1 / verify[0]
        if not self._models:
            return chosen, worth
        chains = Chains(
            self._max_nodes,
            going_on=self._continued.value,
            accepted=self._accepted.value,
            accepted_last=self._accepted_last.value,
        )
        tokens = chains.tokens((self._fill.gain(accepted=True), self._fill.gain(accepted=False)))
        verifying = chains.verify_cost(verify, self._fill.added())
        drafting = {}
        for low in self._lows:
            one_pass = self._costs.draft(position, 1 + low)
            drafting[low] = chains.draft_cost(one_pass, self._matched.value if low else 0.0)
            worths = (tokens / (drafting[low] + verifying)).tolist()
            for model in self._models:
                for rows in self._row_limits(model):
                    if worths[rows][model - 1] > worth:
                        chosen, worth = Plan(model, low, rows), worths[rows][model - 1]
        if chosen.model and self._fills:
            filled = chains.verify_cost(verify, np.arange(self._max_nodes + 1.0))
            at = self._all_rows(chosen.model), chosen.model - 1
            worth = min(worth, float(tokens[at] / (drafting[chosen.low][at[1]] + filled[at])))
        return chosen, worth

    def _row_limits(self, model: int) -> range:
        """Return the row limits of plans with a longest chain of ``model``.

        Chains may be longer than the limit: other sources then fill rows after short ones only.
        """
        return range(1 if self._uses_low else model, self._all_rows(model) + 1)

    def _all_rows(self, model: int) -> int:
        return max(model, self._rows) if self._fills else model

    def _sometimes_filled(self, chosen: Plan) -> Plan:
        """Fill all rows of one round in ``FILLED``, to learn what that gains now."""
        if not chosen.model or not self._fills:
            return chosen
        rows = self._all_rows(chosen.model)
        self._unfilled = 0 if chosen.rows == rows else self._unfilled + 1
        if self._unfilled < self.FILLED:
            return chosen
        self._unfilled = 0
        return dataclasses.replace(chosen, rows=rows)

    def _counted(self, plan: Plan) -> Plan:
        self.plans[str(plan)] = self.plans.get(str(plan), 0) + 1
        self._planned = plan
        return plan

    def _with_direct(self, chosen: Plan, worth: float, verify: Sequence[float]) -> Plan:
        """Return ``chosen`` with thresholds for using a low drafter's tree without a draft pass.

        A row is worth its cost if its expected tokens exceed ``worth`` times its cost. Where trees
        keep more than they promise, deep nodes exceed their promise by more than the tree as a
        whole.
        """
        tree = self._all_rows(chosen.model) if chosen.model else self._best_tree(verify)
        kept = max(self._kept.value, 0.05)
        slope = max(verify[tree] - verify[0], 0.0) / max(tree, 1)
        promised = (worth * verify[tree] - 1) / kept + 1
        probability = min(worth * slope / (kept * max(kept, 1.0)), 1.0)
        return dataclasses.replace(
            chosen,
            rows=chosen.rows if chosen.model else tree,
            tree=tree,
            skip_draft_threshold=promised,
            min_node_probability=probability,
        )

    def _best_tree(self, verify: Sequence[float]) -> int:
        """Return the low drafter's tree size with the most tokens per cost; 0 if no tree pays."""
        tokens = itertools.accumulate((place.value for place in self._places), initial=1.0)
        worth = {rows: found / verify[rows] for rows, found in enumerate(tokens) if rows}
        return max(worth, key=lambda rows: worth[rows], default=0)

    def observe(self, outcome: Outcome) -> None:
        """Update estimates from a finished round."""
        self._costs.observe(outcome)
        if outcome.proposal.nodes and not outcome.proposal.passes:
            for place, mean in enumerate(self._places):
                mean.add(place in outcome.path, place < outcome.drafted)
        view, passes = outcome.counts().get(DRAFT_VIEW, Count()), outcome.proposal.passes
        stopped = view.drafted > 0 and outcome.proposal.stopped
        sure, whole = view.drafted - stopped, view.tested == view.drafted
        self._accepted.add(min(view.accepted, sure), min(view.tested, sure))
        self._accepted_last.add(stopped and view.accepted == view.drafted, stopped and whole)
        self._continued.add(sure, view.drafted)
        more = max(view.drafted - 1, 0) * any(each.rows > 1 for each in passes)
        self._matched.add(more and view.drafted - len(passes), more)
        if view.drafted:
            self._fill.observe(outcome, view, self._planned.rows)
        promised, kept = outcome.promised()
        self._kept.add(kept, promised)


class Chains:
    """Expected tokens and costs of chains, by their maximum length.

    Args:
        most: greatest maximum length
        going_on: probability that drafting continues after a node
        accepted: that such a node is accepted if its predecessors are
        accepted_last: that a node that ends drafting is
    """

    def __init__(
        self, most: int, *, going_on: float, accepted: float, accepted_last: float
    ) -> None:
        earlier = np.arange(most)  # nodes before the last
        self._reach = going_on**earlier  # probability that these are drafted
        self._stops, self._ends = self._reach * (1 - going_on), self._reach * going_on
        self._before = accepted**earlier  # probability that these are accepted
        self._accepted, self._accepted_last = accepted, accepted_last
        self._nodes = np.arange(most + 1)
        self._free = np.maximum(self._nodes[:, None] - (earlier + 1), 0)  # rows left by the chain

    def tokens(self, gains: tuple[_Floats, _Floats]) -> _Floats:
        """Return the expected tokens of a round [rows, longest chain - 1].

        ``gains`` [most + 1] are tokens from filling 0, 1, ... rows after an accepted chain, and
        after a rejected one.
        """
        whole_gain, part_gain = (gain[self._free] for gain in gains)

        def ended(accepted: float) -> _Floats:
            whole = self._before * accepted
            return whole * (1 + whole_gain) + (1 - whole) * part_gain

        tokens = 1 + np.cumsum(self._stops * ended(self._accepted_last), axis=1)
        sure = _sums(self._ends * self._before * self._accepted)[:-1]
        return tokens + self._ends * ended(self._accepted) + sure

    def verify_cost(self, verify: Sequence[float], added: _Floats) -> _Floats:
        """Return the expected cost of the verification [rows, longest chain - 1].

        ``verify`` [most + 1] are costs by nodes, ``added`` [most + 1] the expected nodes that fill
        0, 1, ... rows.
        """
        cost = np.interp(self._nodes[1:] + added[self._free], self._nodes, verify)
        return np.cumsum(self._stops * cost, axis=1) + self._ends * cost

    def draft_cost(self, one_pass: float, matched: float) -> _Floats:
        """Return the expected cost of the draft view's passes [longest chain - 1].

        A node needs no pass of its own with probability ``matched``.
        """
        return one_pass * (1 + (1 - matched) * (np.cumsum(self._reach) - 1))


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
