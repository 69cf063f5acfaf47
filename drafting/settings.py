"""How a reply is generated: one vocabulary for both runtimes."""

from __future__ import annotations

import dataclasses
import math
import warnings
from typing import Literal, get_args

from cassandra_spec.golden import CassandraError
from cassandra_spec.golden.format import is_integer

ADAPTIVE: Literal["adaptive"] = "adaptive"

Gamma = int | Literal["adaptive"]

MOST_GAMMA = 4096
"""The largest gamma; runtimes may take less."""

DraftKind = Literal["model", "lookup", "hybrid", "none"]
"""The draft view; copies of earlier tokens; copies where there are any, else the draft view; plain
decoding.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sampling:
    """How a token is chosen from logits, in transformers' terms and order."""

    temperature: float = 0.0  # 0: greedy
    top_k: int | None = None  # only the most likely tokens stay
    top_p: float | None = None  # only the smallest set of likely tokens with this probability stays

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise CassandraError(f"temperature must be a number from 0 on, not {self.temperature}")
        if self.top_k is not None and self.top_k < 1:
            raise CassandraError(f"top_k must be at least 1, not {self.top_k}")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise CassandraError(f"top_p must be above 0 and at most 1, not {self.top_p}")


GREEDY = Sampling()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """How a reply is generated.

    What only one backend can do, the other refuses by name (:class:`CassandraError`).
    """

    gamma: Gamma = 3  # most tokens drafted in a round; 0: plain decoding; adaptive: what pays
    draft: DraftKind = "model"
    min_margin: float = 0.0  # drafting stops after a token with a smaller margin of logits
    shortest: int = 2  # last tokens that must have occurred before, for a copy
    longest: int = 4  # how many are tried first
    max_tokens: int = 128  # generated, the first included
    stop_tokens: frozenset[int] = frozenset()  # each ends the reply, as its last token
    stop_strings: tuple[str, ...] = ()  # the token that completes one ends the reply, too
    sampling: Sampling = GREEDY
    seed: int | None = None  # of the sampling; None: another one each time
    least_lead: dataclasses.InitVar[float | None] = None  # the name of min_margin in version 0.1

    def __post_init__(self, least_lead: float | None) -> None:
        if least_lead is not None:
            warnings.warn("least_lead is now min_margin", FutureWarning, stacklevel=3)
            object.__setattr__(self, "min_margin", least_lead)
        if self.gamma != ADAPTIVE and not is_integer(self.gamma, 0, MOST_GAMMA):
            raise CassandraError(
                f"gamma must be from 0 to {MOST_GAMMA}, or 'adaptive', not {self.gamma!r}"
            )
        if self.draft not in get_args(DraftKind):
            known = ", ".join(get_args(DraftKind))
            raise CassandraError(f"draft must be one of {known}, not {self.draft!r}")
        if not self.min_margin >= 0:
            raise CassandraError(f"min_margin must be a number from 0 on, not {self.min_margin}")
        check_lengths(self.shortest, self.longest)
        if self.max_tokens < 1:
            raise CassandraError(f"max_tokens must be at least 1, not {self.max_tokens}")
        if not all(self.stop_strings):
            raise CassandraError("stop_strings must not be empty strings")

    @property
    def uses_draft_view(self) -> bool:
        """Whether rounds may run the draft view."""
        return self.gamma != 0 and self.draft in ("model", "hybrid")

    @property
    def uses_copies(self) -> bool:
        """Whether rounds may copy earlier tokens."""
        return self.gamma != 0 and self.draft in ("lookup", "hybrid")


def check_lengths(shortest: int, longest: int) -> None:
    """Refuse lengths of matches that are not 1 <= shortest <= longest."""
    if not 1 <= shortest <= longest:
        raise CassandraError(f"shortest must be from 1 to {longest} (longest), not {shortest}")
