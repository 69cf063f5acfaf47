"""How a reply is generated: one vocabulary for both runtimes."""

from __future__ import annotations

import dataclasses
import math
import sys
from typing import ClassVar, Literal, get_args

from cassandra_spec.drafting.processors import Processor
from cassandra_spec.golden import CassandraError
from cassandra_spec.golden.format import is_integer

ADAPTIVE: Literal["adaptive"] = "adaptive"

Gamma = int | Literal["adaptive"]

MOST_GAMMA = 4096
"""The largest gamma; runtimes may take less."""

BEST_MARGIN = 0.75
"""The minimum margin with which adaptive drafts are fastest (docs/results/levels.md)."""

MAX_POSITIONS = 2**31 - 1
"""The largest number of positions."""

DraftKind = Literal["model", "lookup", "hybrid", "none"]
"""The draft view; low drafters alone; both, as levels; plain decoding."""


def _is_number(value: object) -> bool:
    """Return whether a value is a number; truth values are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _require_number(field: str, value: float, *, most: float = math.inf) -> None:
    """Raise :class:`CassandraError` unless a value is a number from 0 to ``most`` (no NaN)."""
    if not (_is_number(value) and 0 <= value <= most):
        raise CassandraError(f"{field} must be a number from 0 on, not {value!r}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Levels:
    """What low drafters do (:mod:`cassandra_spec.drafting.levels`)."""

    low: int = 3  # nodes in a pass of the draft view
    branches: int = 4  # candidates of one place, at most; 1: chains
    tail: bool = True  # rows of a verification that the draft leaves free are filled
    rows: int = 7  # nodes of a verification that are filled up
    alternatives: int = 2  # second-best tokens of the draft view in a verification, at most
    alternative_margin: float = 1.5  # they are of margins below this
    grammar: bool = True  # what a grammar makes certain is drafted

    def __post_init__(self) -> None:
        for name, least in {"low": 0, "branches": 1, "rows": 0, "alternatives": 0}.items():
            value = getattr(self, name)
            if not is_integer(value, least, MAX_POSITIONS):
                raise CassandraError(
                    f"{name} must be an integer of at least {least}, not {value!r}"
                )
        for name in ("tail", "grammar"):
            if not isinstance(getattr(self, name), bool):
                raise CassandraError(f"{name} must be True or False, not {getattr(self, name)!r}")
        _require_number("alternative_margin", self.alternative_margin)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sampling:
    """How a token is chosen from logits, in transformers' terms and order."""

    temperature: float = 0.0  # 0: greedy
    top_k: int | None = None  # only the most likely tokens stay
    top_p: float | None = None  # only the smallest set of likely tokens with this probability stays
    min_p: float | None = None  # only tokens stay with this part of the likeliest's probability

    def __post_init__(self) -> None:
        _require_number("temperature", self.temperature, most=sys.float_info.max)
        if self.top_k is not None and not is_integer(self.top_k, 1, MAX_POSITIONS):
            raise CassandraError(f"top_k must be an integer of at least 1, not {self.top_k!r}")
        if self.top_p is not None and not (_is_number(self.top_p) and 0 < self.top_p <= 1):
            raise CassandraError(f"top_p must be above 0 and at most 1, not {self.top_p!r}")
        if self.min_p is not None and not (_is_number(self.min_p) and 0 <= self.min_p <= 1):
            raise CassandraError(f"min_p must be from 0 to 1, not {self.min_p!r}")


GREEDY = Sampling()


@dataclasses.dataclass(frozen=True, kw_only=True)
class DraftCache:
    """The part of the KV cache that draft passes read (docs/software/kv.md).

    A draft pass attends to the first ``sinks`` positions, to a window of the last committed ones,
    and to all positions from the beginning of its round on. So its cost does not grow with the
    context. Verification reads everything, so replies do not depend on this.
    """

    window: int | None = 1024  # committed positions before a round; None: all
    sinks: int = 16

    STEP: ClassVar[int] = 32
    """The window begins at a multiple of this, so it has up to 31 positions more."""

    def __post_init__(self) -> None:
        if self.window is not None and not is_integer(self.window, 1, MAX_POSITIONS):
            raise CassandraError(
                f"window must be from 1 to {MAX_POSITIONS}, or None, not {self.window!r}"
            )
        if not is_integer(self.sinks, 0, MAX_POSITIONS):
            raise CassandraError(f"sinks must be from 0 to {MAX_POSITIONS}, not {self.sinks!r}")

    def start(self, position: int) -> int:
        """Return the window's first position in a round that begins at ``position``.

        0 means that drafts see everything.
        """
        if self.window is None:
            return 0
        start = max(position - self.window, 0) // self.STEP * self.STEP
        return start if start > self.sinks else 0

    def runs(self, position: int, first: int, stop: int) -> list[tuple[int, int]]:
        """Return the parts of ``first`` to ``stop - 1`` that a draft pass sees.

        ``position`` is where its round begins. Each part is (first, stop).
        """
        start = self.start(position)
        parts = [(first, min(self.sinks if start else 0, stop)), (max(first, start), stop)]
        return [(begin, end) for begin, end in parts if begin < end]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """How a reply is generated.

    What only one backend can do, the other refuses by name (:class:`CassandraError`).
    """

    gamma: Gamma = 3  # most tokens drafted in a round; 0: plain decoding; adaptive: what pays
    draft: DraftKind = "model"
    min_margin: float = 0.0  # drafting stops after a token with a smaller margin of logits
    levels: Levels = Levels()
    draft_cache: DraftCache = DraftCache()
    max_tokens: int = 128  # generated, the first included
    stop_tokens: frozenset[int] = frozenset()  # each ends the reply, as its last token
    stop_strings: tuple[str, ...] = ()  # the token that completes one ends the reply, too
    sampling: Sampling = GREEDY
    processors: tuple[Processor, ...] = ()  # they change the target's logits, in this order
    logprobs: int | None = None  # likeliest tokens whose log-probabilities come with each token
    prompt_logprobs: bool = False  # those of the prompt's tokens, too
    seed: int | None = None  # of the sampling; None: another one each time

    def __post_init__(self) -> None:
        if self.gamma != ADAPTIVE and not is_integer(self.gamma, 0, MOST_GAMMA):
            raise CassandraError(
                f"gamma must be from 0 to {MOST_GAMMA}, or 'adaptive', not {self.gamma!r}"
            )
        if self.draft not in get_args(DraftKind):
            known = ", ".join(get_args(DraftKind))
            raise CassandraError(f"draft must be one of {known}, not {self.draft!r}")
        _require_number("min_margin", self.min_margin)
        if not is_integer(self.max_tokens, 1, MAX_POSITIONS):
            raise CassandraError(
                f"max_tokens must be an integer of at least 1, not {self.max_tokens!r}"
            )
        if not all(self.stop_strings):
            raise CassandraError("stop_strings must not be empty strings")
        if self.logprobs is not None and not is_integer(self.logprobs, 0, MAX_POSITIONS):
            raise CassandraError(f"logprobs must be an integer from 0 on, not {self.logprobs!r}")
        if self.prompt_logprobs and self.logprobs is None:
            raise CassandraError("prompt_logprobs must be false without logprobs")

    @property
    def needs_logits(self) -> bool:
        """Whether a reply needs the target's logits, not the best tokens alone."""
        return self.sampling != GREEDY or bool(self.processors) or self.logprobs is not None

    @property
    def drafts_grammar(self) -> bool:
        """Whether rounds may have tokens that a grammar makes certain."""
        return self.gamma != 0 and self.draft != "none" and self.levels.grammar

    @property
    def uses_draft_view(self) -> bool:
        """Whether rounds may run the draft view."""
        return self.gamma != 0 and self.draft in ("model", "hybrid")

    @property
    def uses_low_drafter(self) -> bool:
        """Whether rounds may have tokens that no pass has drafted."""
        return self.gamma != 0 and self.draft in ("lookup", "hybrid")


def default_margin(gamma: Gamma) -> float:
    """Return the minimum margin of drafts where none is asked for."""
    return BEST_MARGIN if gamma == ADAPTIVE else 0.0


def check_room(needed: int, *, context: int, longest: int) -> None:
    """Refuse a prompt and a reply of more positions than the context of a model has.

    ``longest`` is the most that a context can be asked for. Raises :class:`CassandraError`.
    """
    if needed > context:
        more = f" (context can be set, up to {longest})" if longest > context else ""
        raise CassandraError(
            f"prompt and reply must fit the context of {context} positions, not need {needed}{more}"
        )
