"""The figures of replies; docs/software/runtime.md defines each.

Traffic is counted for the decode stage, batch 1, in the memory-bound model of runtime.md: a
pass reads the weights once, and the keys and values of the positions that it sees once. The pass
over the prompt is the same for all and is left out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from cassandra_spec.drafting.counters import Counters, KeyValueCounters, ReadBytes
from cassandra_spec.drafting.settings import ADAPTIVE, Settings

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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Traffic:
    """Bytes read per emitted token, in one scope; 0 tokens make zeros and no ratios."""

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
    """Bytes of keys and values read per emitted token, and their memory at the end of a reply."""

    draft: float = 0.0  # by draft passes
    target: float = 0.0  # by verification passes
    plain: float = 0.0  # by plain decoding with the same format
    bf16: float = 0.0  # by plain decoding with BF16
    memory: float | None = None  # of their format over that of BF16


_NO_TRAFFIC = KeyValueTraffic()


@dataclasses.dataclass(frozen=True, kw_only=True)
class NativeFigures:
    """What only the native engine measures."""

    draft: str  # who drafts
    copied_rounds: int  # rounds with a copied draft
    tokens_per_second: float | None
    draft_ms: float  # of one pass of the draft view
    verify_ms: float
    prompt_tokens_per_second: float | None
    threads: int
    isa: str
    forms: Mapping[str, Mapping[str, int]]  # matrices of target and draft by form
    memory: Mapping[str, int]  # bytes of weights, of the embedding, of one position, and streamed
    plans: Mapping[str, int]  # rounds by what an adaptive gamma planned


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """All figures of a run; docs/software/runtime.md defines each.

    A backend leaves out the parts that it does not measure: ``kv``, ``traffic`` and the bytes, or
    ``native``.
    """

    gamma: int | str  # "adaptive": as it went
    draft: str  # who drafts
    replies: int
    tokens: int  # emitted, first tokens included
    rounds: int
    drafts: int  # rounds with drafted tokens
    drafted: int
    accepted: int
    copied: int  # drafted without a pass, as copies of earlier tokens
    copied_accepted: int
    sources: Mapping[str, Mapping[str, int]]  # rounds, drafted and accepted tokens by source
    acceptance_rate: float | None  # accepted / drafted
    conditional_rate: float | None  # accepted / drafted tokens whose predecessors were accepted
    tokens_per_verification: float | None
    accepted_lengths: tuple[int, ...]  # rounds with 0, 1, ... gamma accepted tokens
    draft_bytes: int = 0  # of the weights that a draft pass reads, head and norms included
    target_bytes: int = 0  # of a verification pass
    bf16_bytes: int = 0  # of a pass of the model before packing
    position_bytes: int = 0  # keys and values of one position in BF16
    kv: KeyValueTraffic = _NO_TRAFFIC
    traffic: Mapping[str, Traffic] = dataclasses.field(default_factory=dict)  # by scope
    native: NativeFigures | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain objects for JSON, without the parts that were not measured."""
        body = dataclasses.asdict(self)
        if not self.traffic:
            body = {key: value for key, value in body.items() if key not in _TRAFFIC_PARTS}
        if self.native is None:
            del body["native"]
        return body | self._names_of_others()

    def _names_of_others(self) -> dict[str, Any]:
        """The same figures under the names that vLLM and llama.cpp give them."""
        lengths = self.accepted_lengths
        accepted = [sum(lengths[place:]) for place in range(1, len(lengths))]
        return {
            "num_drafts": self.drafts,
            "num_draft_tokens": self.drafted,
            "num_accepted_tokens": self.accepted,
            "draft_acceptance_rate": self.acceptance_rate,
            "mean_acceptance_length": 1 + self.accepted / self.rounds if self.rounds else None,
            "acceptance_rate_per_position": [
                count / self.drafts for count in accepted if self.drafts
            ],
        }


_TRAFFIC_PARTS = ("draft_bytes", "target_bytes", "bf16_bytes", "position_bytes", "kv", "traffic")


def make_report(
    counters: Counters, settings: Settings, *, costs: Costs | None = None, **parts: Any
) -> Report:
    """The figures of counters over replies with some settings.

    ``costs`` adds the traffic; ``parts`` are other fields of :class:`Report`.
    """
    longest = max(counters.lengths, default=0)
    most = longest if settings.gamma == ADAPTIVE else int(settings.gamma)
    measured = {} if costs is None else _traffic_parts(counters, costs)
    return Report(
        gamma=settings.gamma,
        draft=settings.draft if settings.gamma else "none",
        replies=counters.replies,
        tokens=counters.tokens + counters.replies,
        rounds=counters.rounds,
        drafts=counters.drafts,
        drafted=counters.drafted,
        accepted=counters.accepted,
        copied=counters.copies.drafted,
        copied_accepted=counters.copies.accepted,
        sources={name: dataclasses.asdict(found) for name, found in counters.sources.items()},
        acceptance_rate=_ratio(counters.accepted, counters.drafted),
        conditional_rate=_ratio(counters.accepted, counters.tested),
        tokens_per_verification=_ratio(counters.tokens, counters.rounds),
        accepted_lengths=tuple(counters.lengths.get(length, 0) for length in range(most + 1)),
        **measured,
        **parts,
    )


def native_figures(counters: Counters, settings: Settings, **parts: Any) -> NativeFigures:
    """Times by counters; ``parts`` are the other fields."""
    return NativeFigures(
        draft=settings.draft if settings.gamma else "none",
        copied_rounds=counters.copies.rounds,
        tokens_per_second=_ratio(counters.tokens, counters.decode_seconds),
        draft_ms=1e3 * counters.draft_seconds / max(counters.passes, 1),
        verify_ms=1e3 * counters.verify_seconds / max(counters.rounds, 1),
        prompt_tokens_per_second=_ratio(counters.prompt_tokens, counters.prompt_seconds),
        **parts,
    )


def _traffic_parts(counters: Counters, costs: Costs) -> dict[str, Any]:
    return {
        "draft_bytes": costs.weights.draft,
        "target_bytes": costs.weights.target,
        "bf16_bytes": costs.weights.bf16,
        "position_bytes": costs.position,
        "kv": _key_value_traffic(counters, costs),
        "traffic": {scope: traffic(scope, counters, costs) for scope in SCOPES},
    }


def _key_value_traffic(counters: Counters, costs: Costs) -> KeyValueTraffic:
    kv, tokens = counters.key_values(costs.position), max(counters.tokens, 1)
    return KeyValueTraffic(
        draft=kv.draft / tokens,
        target=kv.target / tokens,
        plain=kv.plain / tokens,
        bf16=kv.bf16 / tokens,
        memory=_ratio(kv.stored, kv.stored_bf16),
    )


def traffic(scope: str, counters: Counters, costs: Costs) -> Traffic:
    """What rounds have read in one of :data:`SCOPES`."""
    weights = costs.linear if scope == "linear" else costs.linear + costs.head
    other = costs.other if scope == "all" else 0
    kv = counters.key_values(costs.position) if scope == "all" else KeyValueCounters()
    draft = counters.passes * (weights.draft + other)
    target = counters.rounds * (weights.target + other)
    speculative = draft + target + kv.draft + kv.target
    plain = counters.tokens * (weights.target + other) + kv.plain
    bf16 = counters.tokens * (weights.bf16 + other) + kv.bf16
    tokens = max(counters.tokens, 1)
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
