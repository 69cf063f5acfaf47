"""Acceptance of settings on real replies, and the traffic that it saves."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.bench.study.drafts import KeyValueBytes, Measured
from cassandra_spec.bench.study.emulation import Round, rounds
from cassandra_spec.drafting import Costs, Counters, KeyValueCounters, Report, make_report
from cassandra_spec.model.speculative import KeyValueFormat


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ratio:
    """A figure that is one weighted sum of counts over another."""

    part: Mapping[str, float]  # weight of each count of a counters
    whole: Mapping[str, float]

    def of(self, counted: Iterable[Counters]) -> float:
        """Return the figure of all counts together; 0 if the denominator is 0."""
        return float(self.of_counts(counts_of(counted).sum(axis=0)))

    def of_counts(self, counts: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the figure of summed counts [..., counts]."""
        part, whole = (
            counts @ [weights.get(name, 0.0) for name in _COUNTS]
            for weights in (self.part, self.whole)
        )
        return np.asarray(np.divide(part, whole, out=np.zeros_like(part), where=whole != 0))


ACCEPTANCE = Ratio(part={"accepted": 1}, whole={"drafted": 1})


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


_FIELDS = ("rounds", "passes", "drafted", "accepted", "tested", "tokens")
_KV_FIELDS = ("draft", "target", "plain", "bf16")
_COUNTS = (*_FIELDS, *(f"kv.{name}" for name in _KV_FIELDS))


def counts_of(counted: Iterable[Counters]) -> NDArray[np.float64]:
    """Return the counts of each, float64 [counters, counts]."""
    return np.array([_counts(counters) for counters in counted], np.float64)


def _counts(counters: Counters) -> list[int]:
    kv = counters.kv or KeyValueCounters()
    return [getattr(counters, name) for name in _FIELDS] + [
        getattr(kv, name) for name in _KV_FIELDS
    ]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Counted:
    """A setting at one gamma."""

    measured: Measured
    gamma: int
    replies: Sequence[Counters]  # of each prompt

    @property
    def acceptance(self) -> float:
        """Accepted / drafted."""
        return ACCEPTANCE.of(self.replies)

    @property
    def speedup(self) -> float:
        """The speed-up by total traffic, everything counted."""
        return speedup_ratio(self.measured.costs).of(self.replies)

    @property
    def bits(self) -> tuple[float, float]:
        """Bits per weight of linear layers and head, of draft and target."""
        packed = self.measured.costs.linear + self.measured.costs.head
        return 16 * packed.draft / packed.bf16, 16 * packed.target / packed.bf16

    @property
    def report(self) -> Report:
        """The report of all replies together."""
        total = Counters()
        for each in self.replies:
            total.add(each)
        settings = self.measured.settings(self.gamma)
        return make_report(total, settings, costs=self.measured.costs)


def count(measured: Measured, gamma: int) -> Counted:
    """Count one setting's rounds at one gamma, up to the measured depth."""
    asked = measured.settings(gamma)
    found = rounds(measured.replies, measured.drafts, asked, table=measured.table)
    replies = [_count_reply(each, measured) for each in found]
    return Counted(measured=measured, gamma=gamma, replies=replies)


def count_best(measured: Measured, depth: int) -> Counted:
    """Count at the gamma with the least total traffic; on ties, the smaller gamma."""
    every = (count(measured, gamma) for gamma in range(1, depth + 1))
    return max(every, key=lambda counted: counted.speedup)


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
