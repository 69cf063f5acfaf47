"""Settings of generation, shared by both runtimes."""

from __future__ import annotations

import dataclasses
import math
import sys
from typing import ClassVar, Literal, get_args

from cassandra_spec.drafting.choice.processors import Processor
from cassandra_spec.golden import CassandraError
from cassandra_spec.golden.format import is_integer

ADAPTIVE: Literal["adaptive"] = "adaptive"

Gamma = int | Literal["adaptive"]

MAX_GAMMA = 4096
"""Maximum gamma; a runtime may have a lower limit."""

BEST_MARGIN = 0.75
"""Minimum margin at which adaptive drafting is fastest (docs/results/levels.md)."""

MAX_SEED = 2**64 - 1

MAX_POSITIONS = 2**31 - 1
"""Maximum number of positions."""

Acceptance = Literal["noise", "rejection"]
"""Acceptance of drafted tokens in sampled replies (docs/software/lossless.md): by noise that
belongs to places, or by the paper's Eq. 1, whose replies depend on the drafts."""

DraftKind = Literal["model", "lookup", "hybrid", "none"]
"""The draft view; low drafters only; both, as levels; plain decoding."""


def _is_number(value: object) -> bool:
    """Return True for numbers, False for everything else, including booleans."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _require_number(field: str, value: float, *, most: float = math.inf) -> None:
    """Raise :class:`CassandraError` unless a value is a number from 0 to ``most`` (NaN is not)."""
    if not (_is_number(value) and 0 <= value <= most):
        raise CassandraError(f"{field} must be a number from 0 on, not {value!r}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Levels:
    """Settings of low drafters (:mod:`cassandra_spec.drafting.levels`)."""

    low: int = 3  # lookup tokens checked in each draft view pass
    branches: int = 4  # maximum children of a node; 1: chains
    tail: bool = True  # fill unused verification rows with lookup tokens
    rows: int = 7  # fill each verification to this many nodes
    alternatives: int = 2  # maximum second-best tokens of the draft view per verification
    alternative_margin: float = 1.5  # add second-best tokens only where the margin is below this
    grammar: bool = True  # draft the tokens that a grammar forces

    def __post_init__(self) -> None:
        for name, low in {"low": 0, "branches": 1, "rows": 0, "alternatives": 0}.items():
            value = getattr(self, name)
            if not is_integer(value, low, MAX_POSITIONS):
                raise CassandraError(f"{name} must be an integer of at least {low}, not {value!r}")
        for name in ("tail", "grammar"):
            if not isinstance(getattr(self, name), bool):
                raise CassandraError(f"{name} must be True or False, not {getattr(self, name)!r}")
        _require_number("alternative_margin", self.alternative_margin)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sampling:
    """Sampling parameters, with transformers' names and order."""

    temperature: float = 0.0  # 0: greedy
    top_k: int | None = None  # keep only the k most probable tokens
    top_p: float | None = None  # keep the fewest top tokens with this total probability
    min_p: float | None = None  # keep tokens with at least this fraction of the top probability

    def __post_init__(self) -> None:
        _require_number("temperature", self.temperature, most=sys.float_info.max)
        if self.top_k is not None and not is_integer(self.top_k, 1, MAX_POSITIONS):
            raise CassandraError(f"top_k must be an integer of at least 1, not {self.top_k!r}")
        if self.top_p is not None and not (_is_number(self.top_p) and 0 < self.top_p <= 1):
            raise CassandraError(f"top_p must be above 0 and at most 1, not {self.top_p!r}")
        if self.min_p is not None and not (_is_number(self.min_p) and 0 <= self.min_p <= 1):
            raise CassandraError(f"min_p must be from 0 to 1, not {self.min_p!r}")

    @property
    def filters(self) -> bool:
        """True if some tokens are left out."""
        return self.top_k is not None or self.top_p is not None or bool(self.min_p)


GREEDY = Sampling()


@dataclasses.dataclass(frozen=True, kw_only=True)
class DraftCache:
    """The part of the KV cache that draft passes read (docs/software/kv.md).

    A draft pass attends to the first ``sinks`` positions, to a window of the last committed
    positions, and to all positions since the start of its round. Its cost does not grow with the
    context. Verification attends to everything, so replies do not depend on this.
    """

    window: int | None = 1024  # committed positions before a round; None: all
    sinks: int = 16

    STEP: ClassVar[int] = 32
    """The window begins at a multiple of this, so it can be up to 31 positions longer."""

    def __post_init__(self) -> None:
        if self.window is not None and not is_integer(self.window, 1, MAX_POSITIONS):
            raise CassandraError(
                f"window must be from 1 to {MAX_POSITIONS}, or None, not {self.window!r}"
            )
        if not is_integer(self.sinks, 0, MAX_POSITIONS):
            raise CassandraError(f"sinks must be from 0 to {MAX_POSITIONS}, not {self.sinks!r}")

    def start(self, position: int) -> int:
        """Return the first position of the window in a round that begins at ``position``.

        0 means that draft passes attend to everything.
        """
        if self.window is None:
            return 0
        start = max(position - self.window, 0) // self.STEP * self.STEP
        return start if start > self.sinks else 0

    def runs(self, position: int, first: int, stop: int) -> list[tuple[int, int]]:
        """Return the ranges within ``first`` to ``stop - 1`` that a draft pass attends to.

        The round begins at ``position``. Each range is (first, stop).
        """
        start = self.start(position)
        parts = [(first, min(self.sinks if start else 0, stop)), (max(first, start), stop)]
        return [(begin, end) for begin, end in parts if begin < end]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of a reply.

    A backend rejects settings that it does not support (:class:`CassandraError`).
    """

    gamma: Gamma = 3  # maximum drafted tokens per round; 0: plain decoding; "adaptive"
    draft: DraftKind = "model"
    min_margin: float = 0.0  # stop drafting after a token with a smaller logit margin
    levels: Levels = Levels()
    draft_cache: DraftCache = DraftCache()
    max_tokens: int = 128  # token limit of the reply, including the first token
    stop_tokens: frozenset[int] = frozenset()  # each ends the reply and is its last token
    stop_strings: tuple[str, ...] = ()  # the token that completes one ends the reply
    sampling: Sampling = GREEDY
    acceptance: Acceptance = "noise"  # rule that accepts drafted tokens of sampled replies
    processors: tuple[Processor, ...] = ()  # applied to the target's logits, in this order
    logprobs: int | None = None  # number of top tokens to report log-probabilities for, per token
    prompt_logprobs: bool = False  # also report log-probabilities of the prompt's tokens
    seed: int | None = None  # seed of the noise; None: a new one for each reply

    def __post_init__(self) -> None:
        if self.gamma != ADAPTIVE and not is_integer(self.gamma, 0, MAX_GAMMA):
            raise CassandraError(
                f"gamma must be from 0 to {MAX_GAMMA}, or 'adaptive', not {self.gamma!r}"
            )
        if self.draft not in get_args(DraftKind):
            known = ", ".join(get_args(DraftKind))
            raise CassandraError(f"draft must be one of {known}, not {self.draft!r}")
        if self.acceptance not in get_args(Acceptance):
            raise CassandraError(f"acceptance must be noise or rejection, not {self.acceptance!r}")
        if self.seed is not None and not is_integer(self.seed, 0, MAX_SEED):
            raise CassandraError(f"seed must be from 0 to {MAX_SEED}, not {self.seed!r}")
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
    def rejects(self) -> bool:
        """True if drafted tokens are accepted by Eq. 1."""
        return self.acceptance == "rejection" and self.sampling.temperature > 0

    @property
    def needs_logits(self) -> bool:
        """True if replies need more of the target's logits than the choice of a token does."""
        return bool(self.processors) or self.logprobs is not None

    @property
    def drafts_grammar(self) -> bool:
        """True if rounds may draft tokens that a grammar forces."""
        return self.gamma != 0 and self.draft != "none" and self.levels.grammar

    @property
    def uses_draft_view(self) -> bool:
        """True if rounds may run the draft view."""
        return self.gamma != 0 and self.draft in ("model", "hybrid")

    @property
    def uses_low_drafter(self) -> bool:
        """True if rounds may draft tokens without a model pass."""
        return self.gamma != 0 and self.draft in ("lookup", "hybrid")


def default_margin(gamma: Gamma) -> float:
    """Return the default of ``min_margin`` for this gamma."""
    return BEST_MARGIN if gamma == ADAPTIVE else 0.0


def check_room(needed: int, *, context: int, longest: int) -> None:
    """Raise :class:`CassandraError` if prompt and reply exceed the model's context.

    ``longest`` is the largest context that can be requested.
    """
    if needed > context:
        more = f" (context can be set, up to {longest})" if longest > context else ""
        raise CassandraError(
            f"prompt and reply must fit the context of {context} positions, not need {needed}{more}"
        )
