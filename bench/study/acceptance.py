"""Acceptance of settings on real replies, with intervals over prompts, and what it saves."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.bench.study.drafts import KeyValueBytes, Measured
from cassandra_spec.bench.study.emulation import Round, rounds
from cassandra_spec.drafting import Costs, Counters, KeyValueCounters, Report, make_report
from cassandra_spec.model.speculative import KeyValueFormat

_DRAWS = 2000  # of the bootstrap
_COVERAGE = 0.95


@dataclasses.dataclass(frozen=True, kw_only=True)
class Interval:
    """A figure with the bounds that a bootstrap over prompts gives it (95 %)."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2f} [{self.low:.2f}, {self.high:.2f}]"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """A setting at one gamma."""

    label: str
    scheme: str
    gamma: int
    prompts: int
    acceptance: Interval  # accepted / drafted
    conditional: Interval  # accepted / drafted tokens whose predecessors were accepted
    speedup: Interval  # traffic, everything counted
    draft_bits: float  # per weight of linear layers and head
    target_bits: float
    report: Report

    def to_dict(self) -> dict[str, Any]:
        """Plain objects for JSON, with the figures that the system model reads at the top."""
        report = self.report
        return {
            **{k: v for k, v in dataclasses.asdict(self).items() if k != "report"},
            "drafted": report.drafted,
            "accepted": report.accepted,
            "acceptance_rate": report.acceptance_rate,
            "conditional_rate": report.conditional_rate,
            "tokens": report.tokens,
            "report": report.to_dict(),
        }


def row(measured: Measured, gamma: int) -> Row:
    """Return the figures of one setting at one gamma, up to the measured depth."""
    counted = _count(measured, gamma)
    total = Counters()
    for each in counted:
        total.add(each)
    costs, setting = measured.costs, measured.setting
    packed = costs.linear + costs.head
    return Row(
        label=setting.name,
        scheme=setting.plan.default.format.scheme,
        gamma=gamma,
        prompts=len(counted),
        acceptance=bootstrap(counted, ACCEPTANCE),
        conditional=bootstrap(counted, CONDITIONAL),
        speedup=bootstrap(counted, speedup_ratio(costs)),
        draft_bits=16 * packed.draft / packed.bf16,
        target_bits=16 * packed.target / packed.bf16,
        report=make_report(total, measured.settings(gamma), costs=costs),
    )


def best_row(measured: Measured, depth: int) -> Row:
    """Return the row of the gamma with the least total traffic; on ties, the smaller gamma."""
    ratio = speedup_ratio(measured.costs)
    gammas = range(1, depth + 1)
    return row(measured, max(gammas, key=lambda gamma: ratio.of(_count(measured, gamma))))


def _count(measured: Measured, gamma: int) -> list[Counters]:
    asked = measured.settings(gamma)
    found = rounds(measured.replies, measured.drafts, asked, table=measured.table)
    return [_count_reply(each, measured) for each in found]


def _count_reply(found: list[Round], measured: Measured) -> Counters:
    counters, bytes_read = Counters(replies=1), KeyValueCounters()
    for each in found:
        each.add_to(counters)
        _add_key_values(bytes_read, each, measured.setting.kv, measured.kv)
    counters.kv = bytes_read
    return counters


def _add_key_values(
    total: KeyValueCounters, found: Round, kv: KeyValueFormat | None, size: KeyValueBytes
) -> None:
    """Add what the passes of a round read of keys and values: sealed blocks, then the tail."""

    def read(start: int, positions: int, sealed_size: float) -> int:
        sealed = 0 if kv is None else kv.sealed_for(start) * kv.block
        return round(sealed * sealed_size + (positions - sealed) * size.bf16)

    start = found.position
    for each in found.outcome.proposal.passes:
        total.draft += read(start, start + each.start + each.rows, size.draft)
    total.target += read(start, start + 1 + found.outcome.drafted, size.target)
    for place in range(start, start + found.tokens):
        total.plain += read(place, place + 1, size.target)
        total.bf16 += round((place + 1) * size.bf16)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ratio:
    """A figure that is one weighted sum of counts over another."""

    part: Mapping[str, float]  # weight of each count of a counters
    whole: Mapping[str, float]

    def of(self, counted: Iterable[Counters]) -> float:
        """Return the figure of all counts together; 0 if the denominator is 0."""
        counts = np.array([_counts(counters) for counters in counted], np.float64).sum(axis=0)
        return float(self.of_counts(counts))

    def of_counts(self, counts: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the figure of summed counts [..., counts]."""
        part, whole = (
            counts @ [weights.get(name, 0.0) for name in _COUNTS]
            for weights in (self.part, self.whole)
        )
        return np.asarray(np.divide(part, whole, out=np.zeros_like(part), where=whole != 0))


ACCEPTANCE = Ratio(part={"accepted": 1}, whole={"drafted": 1})
CONDITIONAL = Ratio(part={"accepted": 1}, whole={"tested": 1})


def speedup_ratio(costs: Costs) -> Ratio:
    """Return the speed-up by total traffic, as in the report."""
    weights = costs.weights
    return Ratio(
        part={"tokens": weights.bf16, "kv.bf16": 1},
        whole={
            "passes": weights.draft,
            "rounds": weights.target,
            "kv.draft": 1,
            "kv.target": 1,
        },
    )


TOKENS_PER_VERIFICATION = Ratio(part={"tokens": 1}, whole={"rounds": 1})


def bootstrap(counted: Sequence[Counters], figure: Ratio) -> Interval:
    """Return the figure over all prompts, and its interval over draws of prompts."""
    counts = np.array([_counts(counters) for counters in counted], np.float64)
    return interval(counts, figure.of_counts)


def interval(
    counts: NDArray[np.float64], figure: Callable[[NDArray[np.float64]], NDArray[np.float64]]
) -> Interval:
    """Return a figure of sums of ``counts`` [items, counts], and its interval over draws of items.

    Items are drawn with replacement, 2,000 times; the figure is computed from each draw's sum.
    """
    draws = np.random.default_rng(0).integers(len(counts), size=(_DRAWS, len(counts)))
    found = figure(counts[draws].sum(axis=1))
    tail = (1 - _COVERAGE) / 2
    low, high = np.quantile(found, [tail, 1 - tail])
    return Interval(value=float(figure(counts.sum(axis=0))), low=float(low), high=float(high))


_FIELDS = ("rounds", "passes", "drafted", "accepted", "tested", "tokens")
_KV_FIELDS = ("draft", "target", "plain", "bf16")
_COUNTS = (*_FIELDS, *(f"kv.{name}" for name in _KV_FIELDS))


def _counts(counters: Counters) -> list[int]:
    kv = counters.kv or KeyValueCounters()
    return [getattr(counters, name) for name in _FIELDS] + [
        getattr(kv, name) for name in _KV_FIELDS
    ]
