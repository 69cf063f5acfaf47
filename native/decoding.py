"""How the engine decodes: settings, what is counted, and the rounds of a reply."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

from cassandra_spec.golden import CassandraError
from cassandra_spec.native.policy import MOST, AdaptivePolicy, FixedPolicy, Outcome, Plan, Policy

__all__ = ["MOST", "Counters", "Draft", "Settings", "figures", "make_policy"]

Draft = Literal["model", "lookup", "hybrid", "none"]
DRAFTS: tuple[Draft, ...] = ("model", "lookup", "hybrid", "none")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """How a reply is generated, greedily.

    ``draft`` says where drafts come from: the model; what followed the last tokens when they
    occurred before (lookup); that, and the model where they did not (hybrid); or nowhere. With a
    ``gamma`` of ``"adaptive"`` each round drafts what pays (:class:`AdaptivePolicy`),
    up to nothing at all.
    """

    gamma: int | Literal["adaptive"] = 3  # most tokens drafted in a round; 0: plain decoding
    draft: Draft = "model"
    min_margin: float = 0.0  # a drafted token with a smaller margin is the round's last
    shortest: int = 2  # last tokens that must have occurred before, for a lookup
    longest: int = 4  # how many are tried first
    max_tokens: int = 128  # generated, the first included
    stop_tokens: frozenset[int] = frozenset()  # each ends the reply, as its last token

    def __post_init__(self) -> None:
        _check_gamma(self.gamma)
        if self.draft not in DRAFTS:
            raise CassandraError(f"draft must be one of {', '.join(DRAFTS)}, not {self.draft!r}")
        if not self.min_margin >= 0:
            raise CassandraError(f"min_margin must be a number from 0 on, not {self.min_margin}")
        if not 1 <= self.shortest <= self.longest:
            raise CassandraError(
                f"shortest must be from 1 to longest ({self.longest}), not {self.shortest}"
            )
        if self.max_tokens < 1:
            raise CassandraError(f"max_tokens must be at least 1, not {self.max_tokens}")


def make_policy(settings: Settings) -> Policy:
    """What plans the rounds of replies with such settings."""
    model = settings.draft in ("model", "hybrid")
    lookup = settings.draft in ("lookup", "hybrid")
    if settings.gamma == "adaptive":
        return AdaptivePolicy(model=model, lookup=lookup)
    return FixedPolicy(Plan(model * settings.gamma, lookup * settings.gamma))


def _check_gamma(gamma: object) -> None:
    if gamma == "adaptive":
        return
    if not isinstance(gamma, int) or not 0 <= gamma <= MOST:
        raise CassandraError(f"gamma must be from 0 to {MOST}, or 'adaptive', not {gamma!r}")


@dataclasses.dataclass(kw_only=True)
class Counters:
    """Sums over the rounds of one reply or of several; times in seconds."""

    replies: int = 0
    prompt_tokens: int = 0
    tokens: int = 0  # put out, first tokens included
    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    tested: int = 0  # drafted tokens whose predecessors in the round were all accepted
    copied_rounds: int = 0  # whose draft was copied from what was seen
    copied_drafted: int = 0
    copied_accepted: int = 0
    lengths: dict[int, int] = dataclasses.field(default_factory=dict)  # rounds by accepted tokens
    prompt_seconds: float = 0.0
    draft_seconds: float = 0.0
    verify_seconds: float = 0.0

    def add_round(self, outcome: Outcome, *, tokens: int) -> None:
        """Count a round that put out ``tokens``."""
        drafted, accepted = outcome.drafted, outcome.accepted
        self.rounds += 1
        self.drafted += drafted
        self.accepted += accepted
        self.tested += accepted + (accepted < drafted)
        self.tokens += tokens
        self.lengths[accepted] = self.lengths.get(accepted, 0) + 1
        if outcome.copied:
            self.copied_rounds += 1
            self.copied_drafted += drafted
            self.copied_accepted += accepted
        self.draft_seconds += outcome.draft_seconds
        self.verify_seconds += outcome.verify_seconds

    @property
    def decode_seconds(self) -> float:
        """Time of all rounds; the passes over prompts are not among them."""
        return self.draft_seconds + self.verify_seconds


def figures(counters: Counters, settings: Settings) -> dict[str, Any]:
    """Counters and their quotients; what has no denominator is None."""
    most = max(counters.lengths, default=0) if settings.gamma == "adaptive" else settings.gamma
    modelled = counters.drafted - counters.copied_drafted
    decoded = counters.tokens - counters.replies  # the first of each reply comes by its prompt
    return {
        "gamma": settings.gamma,
        "replies": counters.replies,
        "tokens": counters.tokens,
        "rounds": counters.rounds,
        "drafted": counters.drafted,
        "accepted": counters.accepted,
        "acceptance_rate": _ratio(counters.accepted, counters.drafted),
        "conditional_rate": _ratio(counters.accepted, counters.tested),
        "tokens_per_verification": _ratio(decoded, counters.rounds),
        "accepted_lengths": [counters.lengths.get(length, 0) for length in range(most + 1)],
        "native": {
            "draft": settings.draft if settings.gamma else "none",
            "copied_rounds": counters.copied_rounds,
            "tokens_per_second": _ratio(decoded, counters.decode_seconds),
            "draft_ms": 1e3 * counters.draft_seconds / max(modelled, 1),
            "verify_ms": 1e3 * counters.verify_seconds / max(counters.rounds, 1),
            "prompt_tokens_per_second": _ratio(counters.prompt_tokens, counters.prompt_seconds),
        },
    }


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None
