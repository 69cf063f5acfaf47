"""Acceptance of settings on real replies, with intervals over prompts, and what it saves."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.speculative import KeyValueFormat, KeyValueTally, Report, Tally, make_report
from model.study.drafts import KeyValueBytes, Measured
from model.study.emulation import Round, rounds

__all__ = ["Interval", "Row", "best_row", "bootstrap", "row", "rows"]

_DRAWS = 2000  # of the bootstrap
_COVERAGE = 0.95


@dataclasses.dataclass(frozen=True, kw_only=True)
class Interval:
    """A figure with the bounds that a bootstrap over prompts gives it (95 %)."""

    value: float
    low: float
    high: float


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


def rows(measured: Measured, gammas: Iterable[int]) -> list[Row]:
    """A row for each gamma, none of them beyond the depth that was measured."""
    return [row(measured, gamma) for gamma in gammas]


def row(measured: Measured, gamma: int) -> Row:
    """The figures of one setting at one gamma."""
    tallies = [
        _tally(found, measured) for found in rounds(measured.replies, measured.lengths, gamma)
    ]
    costs, setting = measured.costs, measured.setting
    packed = costs.linear + costs.head

    def speedup(chosen: Tally) -> float:
        report = make_report(chosen, costs, gamma=gamma, replies=1)
        return report.traffic["all"].speedup or 0.0

    return Row(
        label=setting.name,
        scheme=setting.plan.default.format.scheme,
        gamma=gamma,
        prompts=len(tallies),
        acceptance=bootstrap(tallies, lambda t: t.accepted / max(t.drafted, 1)),
        conditional=bootstrap(tallies, lambda t: t.accepted / max(t.tested, 1)),
        speedup=bootstrap(tallies, speedup),
        draft_bits=16 * packed.draft / packed.bf16,
        target_bits=16 * packed.target / packed.bf16,
        report=make_report(_sum(tallies), costs, gamma=gamma, replies=len(tallies)),
    )


def best_row(measured: Measured, depth: int) -> Row:
    """The gamma with the least traffic, everything counted."""
    return max(rows(measured, range(1, depth + 1)), key=lambda row: row.speedup.value)


def _tally(found: list[Round], measured: Measured) -> Tally:
    tally, bytes_read = Tally(), KeyValueTally()
    for each in found:
        each.add_to(tally)
        _add_key_values(bytes_read, each, measured.setting.kv, measured.kv)
    tally.kv = bytes_read
    return tally


def _add_key_values(
    total: KeyValueTally, found: Round, kv: KeyValueFormat | None, size: KeyValueBytes
) -> None:
    """Add what the passes of a round read of keys and values: sealed blocks, then the tail."""

    def read(start: int, positions: int, sealed_size: float) -> int:
        sealed = 0 if kv is None else kv.sealed_for(start) * kv.block
        return round(sealed * sealed_size + (positions - sealed) * size.bf16)

    start = found.position
    for step in range(found.drafted):
        total.draft += read(start, start + 1 + step, size.draft)
    total.target += read(start, start + 1 + found.drafted, size.target)
    for place in range(start, start + found.tokens):
        total.plain += read(place, place + 1, size.target)
        total.bf16 += round((place + 1) * size.bf16)


def bootstrap(
    tallies: Sequence[Tally], figure: Callable[[Tally], float], *, seed: int = 0
) -> Interval:
    """The figure of all prompts together, and its interval if other prompts like them were drawn.

    Prompts are drawn with replacement, 2,000 times; the figure is taken of each draw's sum.
    """
    counts = np.array([_counts(tally) for tally in tallies], np.float64)
    draws = np.random.default_rng(seed).integers(len(tallies), size=(_DRAWS, len(tallies)))
    found = [figure(_of_counts(counts[draw].sum(axis=0))) for draw in draws]
    tail = (1 - _COVERAGE) / 2
    low, high = np.quantile(found, [tail, 1 - tail])
    return Interval(value=figure(_sum(tallies)), low=float(low), high=float(high))


_FIELDS = ("rounds", "drafted", "accepted", "tested", "tokens")
_KV_FIELDS = ("draft", "target", "plain", "bf16")


def _counts(tally: Tally) -> list[int]:
    kv = tally.kv or KeyValueTally()
    return [getattr(tally, name) for name in _FIELDS] + [getattr(kv, name) for name in _KV_FIELDS]


def _of_counts(counts: NDArray[np.float64]) -> Tally:
    """A tally with what the figures need of it."""
    values = [int(count) for count in counts]
    kv = KeyValueTally(**dict(zip(_KV_FIELDS, values[len(_FIELDS) :], strict=True)))
    tally = Tally(kv=kv)
    for name, value in zip(_FIELDS, values, strict=False):
        setattr(tally, name, value)
    return tally


def _sum(tallies: Sequence[Tally]) -> Tally:
    total = _of_counts(np.array([_counts(tally) for tally in tallies], np.float64).sum(axis=0))
    for tally in tallies:
        for length, count in tally.lengths.items():
            total.lengths[length] = total.lengths.get(length, 0) + count
    return total
