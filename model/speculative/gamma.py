"""How many tokens to draft in a round: always the same number, or by what was accepted so far."""

from __future__ import annotations

import dataclasses
from typing import Literal, Protocol

from cassandra_spec.golden import CassandraError

__all__ = ["ADAPTIVE", "MOST", "AdaptiveGamma", "FixedGamma", "Gamma", "check_gamma", "make_gamma"]

ADAPTIVE: Literal["adaptive"] = "adaptive"

MOST = 8
"""The largest gamma that the adaptive rule takes."""

Choice = int | Literal["adaptive"]


class Gamma(Protocol):
    """Chooses the gamma of each round of one reply."""

    def choose(self, draft: float, target: float) -> int:
        """Gamma of the next round, whose passes will read so many bytes."""
        ...

    def worth(self, draft: float, target: float) -> float:
        """Tokens per byte that such a round promises; 0 if it is not known."""
        ...

    def count(self, *, accepted: int, drafted: int) -> None:
        """What became of a round."""
        ...


@dataclasses.dataclass(frozen=True)
class FixedGamma:
    """The same gamma in each round."""

    gamma: int

    def choose(self, draft: float, target: float) -> int:
        """Gamma of the next round."""
        return self.gamma

    def worth(self, draft: float, target: float) -> float:
        """Not known."""
        return 0.0

    def count(self, *, accepted: int, drafted: int) -> None:
        """Nothing depends on it."""


class AdaptiveGamma:
    """The gamma that gives the most tokens per byte if acceptance goes on as it was.

    Let a be the probability that a drafted token is accepted given that all before it in its round
    were. A round of gamma then puts out ``1 + a + ... + a**gamma`` tokens on average, and reads
    ``gamma * draft + target`` bytes; the gamma from 0 to 8 with the largest quotient is taken, the
    smaller one among equals. a is the share of accepted tokens among those whose predecessors were
    accepted, with the last rounds weighing most: each round multiplies the counts so far by
    ``DECAY``, and ``WEIGHT`` tokens of the share ``PRIOR`` are always added. So an estimate that
    stops all drafting is forgotten after some rounds, and drafting is tried again.
    """

    PRIOR = 0.8
    WEIGHT = 2.0
    DECAY = 0.9

    def __init__(self) -> None:
        self._accepted = self._tested = 0.0

    @property
    def rate(self) -> float:
        """The estimate of a."""
        accepted = self._accepted + self.PRIOR * self.WEIGHT
        return accepted / (self._tested + self.WEIGHT)

    def choose(self, draft: float, target: float) -> int:
        """Gamma of the next round, whose passes will read so many bytes."""
        return self._best(draft, target)[0]

    def worth(self, draft: float, target: float) -> float:
        """Tokens per byte that a round of that gamma promises."""
        return self._best(draft, target)[1]

    def _best(self, draft: float, target: float) -> tuple[int, float]:
        """The gamma with the most tokens per byte, and those."""
        rate, tokens, place = self.rate, 0.0, 1.0
        best, chosen = 0.0, 0
        for gamma in range(MOST + 1):
            tokens, place = tokens + place, place * rate
            worth = tokens / (gamma * draft + target)
            if worth > best:
                best, chosen = worth, gamma
        return chosen, best

    def count(self, *, accepted: int, drafted: int) -> None:
        """What became of a round."""
        self._accepted = self._accepted * self.DECAY + accepted
        self._tested = self._tested * self.DECAY + accepted + (accepted < drafted)


def check_gamma(gamma: Choice) -> None:
    """Refuse what is neither a number from 0 on nor ``"adaptive"``."""
    if gamma != ADAPTIVE and not (isinstance(gamma, int) and gamma >= 0):
        raise CassandraError(f"gamma must be at least 0, or 'adaptive', not {gamma!r}")


def make_gamma(gamma: Choice) -> Gamma:
    """What chooses the gamma of one reply."""
    return AdaptiveGamma() if gamma == ADAPTIVE else FixedGamma(int(gamma))
