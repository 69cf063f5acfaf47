"""Acceptance, by both definitions, and the tokens that a round yields."""

from __future__ import annotations

import dataclasses
from typing import Literal, get_args

from cassandra_spec.lab.system.errors import SystemModelError, check_count, check_number, unknown

Kind = Literal["drafted", "conditional"]
MAX_GAMMA = 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class Acceptance:
    """The rate at which the target accepts the draft's tokens.

    The two kinds are different numbers: .50 of all drafted tokens at gamma 5 may be .80 of those
    that follow accepted ones. Only ``drafted`` depends on the gamma at which it was measured.

    Attributes:
        rate: 0 to 1.
        kind: ``drafted``: accepted over drafted tokens of a run, as in the paper's Table IV;
            ``conditional``: the chance that a token is accepted when all before it were.
        source: where it was measured; empty for a rate of the user's own.
    """

    rate: float
    kind: Kind = "drafted"
    source: str = ""

    def __post_init__(self) -> None:
        check_number("acceptance", self.rate, zero=True)
        if self.rate > 1:
            raise SystemModelError(f"acceptance must be 0 to 1, not {self.rate!r}")
        if self.kind not in get_args(Kind):
            unknown("kind", self.kind, get_args(Kind))

    def tokens(self, gamma: int) -> float:
        """Mean tokens of a round of ``gamma`` drafted tokens, the target's own one included."""
        check_count("gamma", gamma, 0, MAX_GAMMA)
        if self.kind == "drafted":
            return 1 + gamma * self.rate
        return sum(self.rate**accepted for accepted in range(gamma + 1))

    def drafted(self, gamma: int) -> float:
        """Accepted over drafted tokens, in rounds of ``gamma`` (1 to 8)."""
        check_count("gamma", gamma, 1, MAX_GAMMA)
        return (self.tokens(gamma) - 1) / gamma

    def conditional(self, gamma: int) -> float:
        """Return the conditional rate that gives as many tokens in rounds of ``gamma`` (1 to 8)."""
        wanted = self.tokens(gamma)
        low, high = 0.0, 1.0
        for _ in range(60):
            middle = (low + high) / 2
            yields = Acceptance(rate=middle, kind="conditional").tokens(gamma)
            low, high = (middle, high) if yields < wanted else (low, middle)
        return (low + high) / 2
