"""Metrics of replies; docs/software/runtime.md defines each.

Traffic is counted for the decode stage at batch size 1, in the memory-bound model of runtime.md: a
pass reads the weights once, and the keys and values of each position it attends to once. Prompt
processing is the same for all methods and is left out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from cassandra_spec.drafting.counters import Counters, KeyValueCounters, ReadBytes
from cassandra_spec.drafting.settings import ADAPTIVE, Settings

SCOPES = ("linear", "weights", "all")
"""Scopes of traffic: linear layers; linear layers and head; all weights and the KV cache."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Costs:
    """Bytes that a model's passes read."""

    linear: ReadBytes  # packed linear layers
    head: ReadBytes
    other: int  # norms and biases; embedding rows are not counted
    position: int  # KV cache bytes of one position, in BF16

    @property
    def weights(self) -> ReadBytes:
        """Bytes that a pass reads beside keys and values."""
        other = ReadBytes(draft=self.other, target=self.other, bf16=self.other)
        return self.linear + self.head + other


@dataclasses.dataclass(frozen=True, kw_only=True)
class Traffic:
    """Bytes read per emitted token in one scope; with 0 tokens all are zero and ratios are None."""

    draft: float  # weights read by draft passes
    target: float  # weights read by verification passes
    kv: float  # keys and values read by both
    speculative: float  # sum of the three above
    plain: float  # packed target without speculation: the baseline to compare with
    bf16: float  # unpacked model without speculation
    speedup: float | None  # bf16 / speculative
    plain_speedup: float | None  # bf16 / plain


@dataclasses.dataclass(frozen=True, kw_only=True)
class KeyValueTraffic:
    """KV cache bytes read per emitted token, and memory at the end of a reply."""

    draft: float = 0.0  # by draft passes
    target: float = 0.0  # by verification passes
    plain: float = 0.0  # by plain decoding in the same format
    bf16: float = 0.0  # by plain decoding in BF16
    memory: float | None = None  # relative to BF16


_NO_TRAFFIC = KeyValueTraffic()


@dataclasses.dataclass(frozen=True, kw_only=True)
class NativeFigures:
    """Metrics that only the native engine measures."""

    draft: str  # draft source
    copied_rounds: int  # rounds with copied tokens
    tokens_per_second: float | None
    draft_ms: float  # per draft view pass
    verify_ms: float
    prompt_tokens_per_second: float | None
    threads: int
    isa: str
    forms: Mapping[str, Mapping[str, int]]  # number of matrices by form, for target and draft
    memory: Mapping[
        str, int
    ]  # bytes: weights, embedding, one position, KV cache held, streamed weights
    plans: Mapping[str, int]  # rounds by plan of the adaptive policy


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """Metrics of a run; docs/software/runtime.md defines each.

    A backend omits the parts that it does not measure: ``kv``, ``traffic`` and the byte counts, or
    ``native``.
    """

    gamma: int | str  # or "adaptive"
    draft: str  # draft source
    replies: int
    tokens: int  # emitted, including first tokens
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
    draft_bytes: int = 0  # weights read by a draft pass, including head and norms
    target_bytes: int = 0  # weights read by a verification pass
    bf16_bytes: int = 0  # weights read by a pass of the unpacked model
    position_bytes: int = 0  # KV cache bytes of one position in BF16
    kv: KeyValueTraffic = _NO_TRAFFIC
    traffic: Mapping[str, Traffic] = dataclasses.field(default_factory=dict)  # by scope
    native: NativeFigures | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-serializable objects, without the parts that were not measured."""
        body = dataclasses.asdict(self)
        if not self.traffic:
            body = {key: value for key, value in body.items() if key not in _TRAFFIC_PARTS}
        if self.native is None:
            del body["native"]
        return body | self._names_of_others()

    def _names_of_others(self) -> dict[str, Any]:
        """Return the same metrics under vLLM's and llama.cpp's names."""
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
    """Build the report of counters over replies with these settings.

    ``costs`` adds the traffic; ``parts`` sets other fields of :class:`Report`.
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
    """Build the native metrics from counters; ``parts`` sets the other fields."""
    return NativeFigures(
        draft=settings.draft if settings.gamma else "none",
        copied_rounds=counters.copies.rounds,
        tokens_per_second=_ratio(counters.tokens, counters.decode_seconds),
        draft_ms=1e3 * counters.draft_seconds / max(counters.passes, 1),
        verify_ms=1e3 * counters.verify_seconds / max(counters.rounds, 1),
        prompt_tokens_per_second=_ratio(counters.prompt_tokens, counters.prompt_seconds),
        **parts,
    )


def plan_shares(plans: Mapping[str, int]) -> str:
    """Format shares of rounds by plan: the five most frequent of 2 % or more, then the others."""
    total = sum(plans.values())
    often = [(plan, count) for plan, count in plans.items() if count * 50 >= total]
    shown = sorted(often, key=lambda each: -each[1])[:5]
    rest = total - sum(count for _, count in shown)
    shares = [*shown, *([("others", rest)] if rest else [])]
    return "; ".join(f"{plan}: {count / total:.0%}" for plan, count in shares)


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
    """Return the traffic of rounds in one of :data:`SCOPES`."""
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
