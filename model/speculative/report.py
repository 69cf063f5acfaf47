"""What speculative decoding did, and what it read, beside decoding without it.

Traffic is counted for the decode stage, batch 1, in the memory-bound model of docs/runtime.md: a
pass reads the weights once, and the keys and values of the positions that it sees once. The pass
over the prompt is the same for all and is left out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from cassandra_spec.model.speculative.key_values import ReadBytes

__all__ = ["Costs", "KeyValueTally", "Report", "Tally", "Traffic", "make_report"]

SCOPES = ("linear", "weights", "all")
"""What traffic is counted for: linear layers; those and the head; everything with norms and KV."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Costs:
    """Bytes that a model's passes read."""

    linear: ReadBytes  # packed linear layers
    head: ReadBytes
    other: int  # norms and biases; the row of an embedding is not counted
    position: int  # keys and values of one position, in BF16

    @property
    def weights(self) -> ReadBytes:
        """What a pass reads beside keys and values."""
        other = ReadBytes(draft=self.other, target=self.other, bf16=self.other)
        return self.linear + self.head + other


@dataclasses.dataclass(kw_only=True)
class KeyValueTally:
    """Bytes of keys and values, summed over passes; and of memory, summed over replies."""

    draft: int = 0  # read by draft passes
    target: int = 0  # by verification passes
    plain: int = 0  # by plain decoding of the same tokens, from the same sealed blocks
    bf16: int = 0  # by the same in BF16
    stored: int = 0  # in memory at the end of the replies
    stored_bf16: int = 0  # the same positions in BF16


@dataclasses.dataclass(kw_only=True)
class Tally:
    """Counts over the rounds of one reply or of several."""

    rounds: int = 0  # verification passes
    drafted: int = 0  # tokens; a draft pass for each that was not copied
    accepted: int = 0
    tested: int = 0  # drafted tokens whose predecessors in the round were all accepted
    tokens: int = 0  # put out by rounds; the first token of a reply comes from its prompt
    copied: int = 0  # drafted by copying what was there before
    copied_accepted: int = 0
    lengths: dict[int, int] = dataclasses.field(default_factory=dict)  # rounds by accepted tokens
    draft_positions: int = 0  # positions whose keys and values the draft passes saw, summed
    target_positions: int = 0  # the same of the verification passes
    plain_positions: int = 0  # the same of plain decoding of the same tokens
    kv: KeyValueTally | None = dataclasses.field(default=None, compare=False)  # if measured

    @property
    def passes(self) -> int:
        """Draft passes."""
        return self.drafted - self.copied

    def add_round(
        self, *, position: int, drafted: int, accepted: int, tokens: int, copied: bool = False
    ) -> None:
        """Count a round that began at ``position``; ``copied`` if its draft took no pass."""
        self.rounds += 1
        self.drafted += drafted
        self.accepted += accepted
        self.tested += accepted + (accepted < drafted)
        self.tokens += tokens
        self.lengths[accepted] = self.lengths.get(accepted, 0) + 1
        passes = 0 if copied else drafted
        self.copied += drafted - passes
        self.copied_accepted += accepted if copied else 0
        self.draft_positions += sum(range(position + 1, position + 1 + passes))
        self.target_positions += position + drafted + 1
        self.plain_positions += sum(range(position + 1, position + 1 + tokens))

    def key_values(self, position: int) -> KeyValueTally:
        """Bytes of keys and values: as measured, or of ``position`` bytes for each position."""
        if self.kv is not None:
            return self.kv
        return KeyValueTally(
            draft=self.draft_positions * position,
            target=self.target_positions * position,
            plain=self.plain_positions * position,
            bf16=self.plain_positions * position,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Traffic:
    """Bytes read per token put out, in one scope; 0 tokens make zeros and no ratios."""

    draft: float  # weights that draft passes read
    target: float  # weights that verification passes read
    kv: float  # keys and values that both read
    speculative: float  # the sum of these
    plain: float  # the packed target without speculation: the honest baseline
    bf16: float  # the model before packing, without speculation
    speedup: float | None  # bf16 over speculative
    plain_speedup: float | None  # bf16 over plain


@dataclasses.dataclass(frozen=True, kw_only=True)
class KeyValueTraffic:
    """Bytes of keys and values read per token put out, and their memory at the end of a reply."""

    draft: float  # by draft passes
    target: float  # by verification passes
    plain: float  # by plain decoding with the same format
    bf16: float  # by plain decoding with BF16
    memory: float | None  # of their format over that of BF16


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """All figures of a run; docs/runtime.md defines each."""

    gamma: int | str  # "adaptive": as it went
    replies: int
    tokens: int  # put out, first tokens included
    rounds: int
    drafted: int
    accepted: int
    copied: int  # drafted without a pass, by copying what was there before
    copied_accepted: int
    acceptance_rate: float | None  # accepted / drafted
    conditional_rate: float | None  # accepted / drafted tokens whose predecessors were accepted
    tokens_per_verification: float | None
    accepted_lengths: tuple[int, ...]  # rounds with 0, 1, ... gamma accepted tokens
    draft_bytes: int  # of the weights that a draft pass reads (head, norms and biases included)
    target_bytes: int  # of a verification pass
    bf16_bytes: int  # of a pass of the model before packing
    position_bytes: int  # keys and values of one position in BF16
    kv: KeyValueTraffic
    traffic: Mapping[str, Traffic]  # by scope

    def to_dict(self) -> dict[str, Any]:
        """Plain objects for JSON."""
        return dataclasses.asdict(self)


def make_report(tally: Tally, costs: Costs, *, gamma: int | str, replies: int) -> Report:
    """The figures of a tally over a number of replies with one gamma."""
    most = max(tally.lengths, default=0) if isinstance(gamma, str) else gamma
    return Report(
        gamma=gamma,
        replies=replies,
        tokens=tally.tokens + replies,
        rounds=tally.rounds,
        drafted=tally.drafted,
        accepted=tally.accepted,
        copied=tally.copied,
        copied_accepted=tally.copied_accepted,
        acceptance_rate=_ratio(tally.accepted, tally.drafted),
        conditional_rate=_ratio(tally.accepted, tally.tested),
        tokens_per_verification=_ratio(tally.tokens, tally.rounds),
        accepted_lengths=tuple(tally.lengths.get(length, 0) for length in range(most + 1)),
        draft_bytes=costs.weights.draft,
        target_bytes=costs.weights.target,
        bf16_bytes=costs.weights.bf16,
        position_bytes=costs.position,
        kv=_key_value_traffic(tally, costs),
        traffic={scope: _traffic(scope, tally, costs) for scope in SCOPES},
    )


def _key_value_traffic(tally: Tally, costs: Costs) -> KeyValueTraffic:
    kv, tokens = tally.key_values(costs.position), max(tally.tokens, 1)
    return KeyValueTraffic(
        draft=kv.draft / tokens,
        target=kv.target / tokens,
        plain=kv.plain / tokens,
        bf16=kv.bf16 / tokens,
        memory=_ratio(kv.stored, kv.stored_bf16),
    )


def _traffic(scope: str, tally: Tally, costs: Costs) -> Traffic:
    weights = costs.linear if scope == "linear" else costs.linear + costs.head
    other = costs.other if scope == "all" else 0
    kv = tally.key_values(costs.position) if scope == "all" else KeyValueTally()
    draft = tally.passes * (weights.draft + other)
    target = tally.rounds * (weights.target + other)
    speculative = draft + target + kv.draft + kv.target
    plain = tally.tokens * (weights.target + other) + kv.plain
    bf16 = tally.tokens * (weights.bf16 + other) + kv.bf16
    tokens = max(tally.tokens, 1)
    return Traffic(
        draft=draft / tokens,
        target=target / tokens,
        kv=(kv.draft + kv.target) / tokens,
        speculative=speculative / tokens,
        plain=plain / tokens,
        bf16=bf16 / tokens,
        speedup=_ratio(bf16, speculative),
        plain_speedup=_ratio(bf16, plain),
    )


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None
