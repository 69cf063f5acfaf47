"""Count the rounds of a contender over replies, and price them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from cassandra_spec.drafting import Counters, Drafter, Outcome, Proposal
from cassandra_spec.lab.baselines import PassCost, Prepared
from cassandra_spec.lab.baselines.costs import NOTHING


@dataclasses.dataclass
class Sums:
    """Sums over replies by one contender."""

    turns: int = 0
    looped: int = 0  # replies that the loop has made
    identical: int = 0  # replies identical to those of plain decoding
    forced: int = 0  # replies that a teacher-forced pass was taken of
    forced_equal: int = 0  # replies with the same rounds as in the loop
    whole_rounds: int = 0  # whose proposals the end of the reply did not cut
    whole_tokens: int = 0  # of these: accepted, and one more each
    counters: Counters = dataclasses.field(default_factory=Counters)
    draft: PassCost = NOTHING
    verify: PassCost = NOTHING
    plain: PassCost = NOTHING  # of plain decoding of the same tokens in BF16

    def add(self, other: Sums) -> None:
        """Count what another one has counted."""
        self.counters.add(other.counters)
        for name in vars(self).keys() - {"counters"}:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> Sums:
        """Invert ``dataclasses.asdict``, also after JSON."""
        costs = {name: PassCost(**body[name]) for name in ("draft", "verify", "plain")}
        return cls(**{**body, **costs, "counters": Counters.of(body["counters"])})


class Recorder:
    """A drafter that prices its rounds (:class:`cassandra_spec.drafting.Drafter`)."""

    def __init__(self, inner: Drafter, prepared: Prepared, sums: Sums) -> None:
        self._inner, self._prepared, self._sums = inner, prepared, sums
        self._position = self._budget = 0
        self.accepted: list[int] = []  # of each round

    def propose(self, context: Sequence[int], budget: int) -> Proposal:
        """Return the drafter's proposal."""
        self._position, self._budget = len(context) - 1, budget
        return self._inner.propose(context, budget)

    def observe(self, outcome: Outcome) -> None:
        """Add the costs of a round."""
        for each in outcome.proposal.passes:
            self._sums.draft += self._prepared.draft_cost(self._position, each)
        self._sums.verify += self._prepared.verify_cost(self._position, outcome.drafted)
        whole = outcome.drafted < self._budget
        self._sums.whole_rounds += whole
        self._sums.whole_tokens += whole * (outcome.accepted + 1)
        self.accepted.append(outcome.accepted)
        self._inner.observe(outcome)
