"""What speculative decoding did, and what it read, beside decoding without it.

Traffic is counted for the decode stage, batch 1, in the memory-bound model of docs/runtime.md: a
pass reads the weights once, and the keys and values of the positions that it sees once. The pass
over the prompt is the same for all and is left out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

__all__ = ["Costs", "Report", "Tally", "Traffic", "WeightBytes", "make_report"]

SCOPES = ("linear", "weights", "all")
"""What traffic is counted for: linear layers; those and the head; everything with norms and KV."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class WeightBytes:
    """Bytes that a pass reads of some weights."""

    draft: int  # speculation data and directory
    target: int  # verification data in addition
    bf16: int  # the same weights before packing

    def __add__(self, other: WeightBytes) -> WeightBytes:
        return WeightBytes(
            draft=self.draft + other.draft,
            target=self.target + other.target,
            bf16=self.bf16 + other.bf16,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Costs:
    """Bytes that a model's passes read."""

    linear: WeightBytes  # packed linear layers
    head: WeightBytes
    other: int  # norms and biases; the row of an embedding is not counted
    position: int  # keys and values of one position, in the cache's dtype


@dataclasses.dataclass(kw_only=True)
class Tally:
    """Counts over the rounds of one reply or of several."""

    rounds: int = 0  # verification passes
    drafted: int = 0  # draft passes
    accepted: int = 0
    tested: int = 0  # drafted tokens whose predecessors in the round were all accepted
    tokens: int = 0  # put out by rounds; the first token of a reply comes from its prompt
    lengths: dict[int, int] = dataclasses.field(default_factory=dict)  # rounds by accepted tokens
    draft_positions: int = 0  # positions whose keys and values the draft passes saw, summed
    target_positions: int = 0  # the same of the verification passes
    plain_positions: int = 0  # the same of plain decoding of the same tokens

    def add_round(self, *, position: int, drafted: int, accepted: int, tokens: int) -> None:
        """Count a round that began at ``position``."""
        self.rounds += 1
        self.drafted += drafted
        self.accepted += accepted
        self.tested += accepted + (accepted < drafted)
        self.tokens += tokens
        self.lengths[accepted] = self.lengths.get(accepted, 0) + 1
        self.draft_positions += sum(range(position + 1, position + 1 + drafted))
        self.target_positions += position + drafted + 1
        self.plain_positions += sum(range(position + 1, position + 1 + tokens))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Traffic:
    """Bytes read per token put out, in one scope; 0 tokens make zeros and no ratios."""

    speculative: float
    plain: float  # the packed target without speculation: the honest baseline
    bf16: float  # the model before packing, without speculation
    speedup: float | None  # bf16 over speculative
    plain_speedup: float | None  # bf16 over plain


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """All figures of a run; docs/runtime.md defines each."""

    gamma: int
    replies: int
    tokens: int  # put out, first tokens included
    rounds: int
    drafted: int
    accepted: int
    acceptance_rate: float | None  # accepted / drafted
    conditional_rate: float | None  # accepted / drafted tokens whose predecessors were accepted
    tokens_per_verification: float | None
    accepted_lengths: tuple[int, ...]  # rounds with 0, 1, ... gamma accepted tokens
    draft_bytes: int  # of the weights that a draft pass reads (head, norms and biases included)
    target_bytes: int  # of a verification pass
    bf16_bytes: int  # of a pass of the model before packing
    position_bytes: int  # keys and values of one position
    traffic: Mapping[str, Traffic]  # by scope

    def to_dict(self) -> dict[str, Any]:
        """Plain objects for JSON."""
        return dataclasses.asdict(self)


def make_report(tally: Tally, costs: Costs, *, gamma: int, replies: int) -> Report:
    """The figures of a tally over a number of replies with one gamma."""
    packed = costs.linear + costs.head
    return Report(
        gamma=gamma,
        replies=replies,
        tokens=tally.tokens + replies,
        rounds=tally.rounds,
        drafted=tally.drafted,
        accepted=tally.accepted,
        acceptance_rate=_ratio(tally.accepted, tally.drafted),
        conditional_rate=_ratio(tally.accepted, tally.tested),
        tokens_per_verification=_ratio(tally.tokens, tally.rounds),
        accepted_lengths=tuple(tally.lengths.get(length, 0) for length in range(gamma + 1)),
        draft_bytes=packed.draft + costs.other,
        target_bytes=packed.target + costs.other,
        bf16_bytes=packed.bf16 + costs.other,
        position_bytes=costs.position,
        traffic={scope: _traffic(scope, tally, costs) for scope in SCOPES},
    )


def _traffic(scope: str, tally: Tally, costs: Costs) -> Traffic:
    weights = costs.linear if scope == "linear" else costs.linear + costs.head
    other, position = (costs.other, costs.position) if scope == "all" else (0, 0)
    speculative = (
        tally.drafted * (weights.draft + other)
        + tally.rounds * (weights.target + other)
        + (tally.draft_positions + tally.target_positions) * position
    )
    plain = tally.tokens * (weights.target + other) + tally.plain_positions * position
    bf16 = tally.tokens * (weights.bf16 + other) + tally.plain_positions * position
    return Traffic(
        speculative=speculative / max(tally.tokens, 1),
        plain=plain / max(tally.tokens, 1),
        bf16=bf16 / max(tally.tokens, 1),
        speedup=_ratio(bf16, speculative),
        plain_speedup=_ratio(bf16, plain),
    )


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None
