"""Prices of passes: seconds that were measured, by rows and position."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from cassandra_spec.drafting.proposal import Outcome
from cassandra_spec.drafting.settings import DraftCache


class Load(NamedTuple):
    """The work of one pass.

    Rows of one sequence share the loads of its keys and values. ``seen`` are the positions that the
    sequences attend to, summed. ``share`` is the part of them that each row more, beside the first
    of its sequence, attends to on average: 1 for a single sequence.
    """

    rows: int
    seen: float
    share: float = 1.0

    @classmethod
    def of(cls, rows: Sequence[float], seen: Sequence[float]) -> Load:
        """Return the load of sequences from the rows of each and the positions it attends to."""
        total, positions = sum(rows), sum(seen)
        more = sum((count - 1) * each for count, each in zip(rows, seen, strict=True))
        crossed = positions * (total - 1)
        return cls(int(total), positions, more / crossed if crossed else 1.0)


class _Growth:
    """Linear model of pass time by rows and positions, fitted by least squares to measured passes.

    The features are ``1``, ``rows - 1``, ``seen`` and ``seen * share * (rows - 1)`` of a
    :class:`Load`, with ``seen`` in thousands of positions. Only ratios of its times are used.
    ``START`` is the prior mean, in units of a one-row pass with an empty context, but for the cost
    of a row, ``slope``; ``DEVIATIONS`` is the prior's standard deviation and ``NOISE`` the relative
    noise of a pass. Each new pass multiplies the weight of earlier passes by ``DECAY``.
    """

    START = (1.0, math.nan, 0.02, 0.002)
    DEVIATIONS = (1.0, 0.1, 0.1, 0.03)
    NOISE, DECAY = 0.1, 0.99

    def __init__(self, slope: float) -> None:
        self._products, self._sums = np.zeros((4, 4)), np.zeros(4)
        self._start = np.array([slope if math.isnan(each) else each for each in self.START])
        self._prior = np.diag((self.NOISE / np.array(self.DEVIATIONS)) ** 2)
        self._unit: float | None = None  # seconds of a one-row pass with an empty context
        self._fit: Sequence[float] = self._start.tolist()
        self._fitted = True

    def solve(self) -> None:
        """Fit all passes so far."""
        if self._fitted:
            return
        self._fitted = True
        sums = self._sums + self._prior @ self._start
        fit = np.linalg.solve(self._products + self._prior, sums)
        self._fit = np.maximum(fit, (0.05, 0.0, 0.0, 0.0)).tolist()

    def seconds(self) -> list[float]:
        """Return the coefficients in seconds; empty before the first measurement."""
        return [] if self._unit is None else [each * self._unit for each in self._fit]

    def begin(self, seconds: Sequence[float]) -> None:
        """Set an earlier fit as the prior."""
        self._unit = seconds[0]
        self._fit = [each / self._unit for each in seconds]
        self._start = np.array(self._fit)

    def of(self, load: Load) -> float:
        """Return the time of a pass, in model units."""
        base, slope, seen_slope, both = self._fit
        more = load.rows - 1
        return base + slope * more + load.seen / 1000 * (seen_slope + both * load.share * more)

    def add(self, load: Load, seconds: float) -> None:
        """Add a measured pass; :meth:`solve` includes it in the fit."""
        thousands, more = load.seen / 1000, load.rows - 1
        terms = np.array([1.0, more, thousands, thousands * load.share * more])
        about = self.of(load)  # relative errors count
        self._unit = self._unit or seconds / about
        self._products = self._products * self.DECAY + np.outer(terms, terms) / about**2
        self._sums = self._sums * self.DECAY + terms * (seconds / self._unit / about**2)
        self._fitted = False


class _Time(NamedTuple):
    """A recent measurement of passes over some number of rows."""

    seconds: float
    load: Load
    round: int
    doubted: bool = False  # counts for a few rounds only


class _PassTimes:
    """Recent pass times of one model.

    The estimate for r rows is the recent time of passes over r rows; single slow passes count
    little. If the last ``KEPT`` rounds had no pass of r rows, the time is interpolated between
    fewer and more rows. A row count (or drafting itself) that was slow once is therefore tried
    again; after ``DOUBTED`` rounds, if its time is of an earlier process, or its first was a mean
    with a guess or ``SURPRISE`` times the estimate. The next time then counts as much as that
    first one. No pass is slower than one over more rows. :class:`_Growth` scales times measured
    with other row counts or positions.
    """

    RATE, DOUBTED_RATE = 0.1, 0.5
    OUTLIER = 2.0
    KEPT = 100
    SURPRISE, DOUBTED = 1.3, 8

    def __init__(self, slope: float) -> None:
        self._times: dict[int, _Time] = {}
        self._growth = _Growth(slope)
        self._recent: list[tuple[int, float]] | None = None  # cache of _ratios()
        self.rounds = 0  # until now

    def begin_round(self) -> None:
        """Start a new round: passes added from here on belong to it."""
        self.rounds += 1
        self._recent = None

    def end_round(self) -> None:
        """Include the passes of the round in the estimates."""
        self._growth.solve()
        self._recent = None

    def state(self) -> dict[str, list[Any]]:
        """Return the state as JSON-serializable objects, for :meth:`begin` in another process.

        Passes over several sequences are left out.
        """
        times = [
            [rows, each.load.seen, each.seconds]
            for rows, each in sorted(self._times.items())
            if each.load.share == 1 and not each.doubted
        ]
        return {"growth": self._growth.seconds(), "times": times}

    def begin(self, growth: Sequence[float], times: Sequence[Sequence[float]]) -> None:
        """Load times of an earlier process; they count for ``DOUBTED`` rounds."""
        self._growth.begin(growth)
        for rows, seen, seconds in times:
            load = Load(int(rows), seen)
            self._times[load.rows] = _Time(seconds, load, self._last_round(self.DOUBTED))
        self._recent = None

    def add_beside(self, load: Load, seconds: float) -> None:
        """Add the time of a pass that also read a prompt: it shows what rows cost, roughly.

        Most rows of a prompt need no logits, so other passes over as many rows take longer.
        """
        before = self.estimate(load)
        self._growth.add(load, seconds if before is None else min(seconds, self.OUTLIER * before))

    def add(self, load: Load, seconds: float, guess: float | None = None) -> None:
        """Add the time of a pass. The first time of all is averaged with a ``guess``."""
        first = guess if not self.known else None
        before = self.estimate(load) if first is None else first
        bounded = seconds if before is None else min(seconds, self.OUTLIER * before)
        doubted = first is not None
        if first is not None:
            bounded = (bounded + first) / 2
        else:
            self._growth.add(load, bounded)
        if self.measured(load.rows, self.KEPT):
            known = self._ratio(load.rows) * self._growth.of(load)
            rate = self.DOUBTED_RATE if self._times[load.rows].doubted else self.RATE
            bounded = known + rate * (bounded - known)
        elif before is not None and seconds > self.SURPRISE * before:
            doubted = True
        last = self._last_round(self.DOUBTED if doubted else self.KEPT)
        self._times[load.rows] = _Time(bounded, load, last, doubted)

    def _last_round(self, counts: int) -> int:
        """Return the round to store for a time that counts for another ``counts`` rounds."""
        return self.rounds - self.KEPT + counts

    @property
    def known(self) -> bool:
        """True after the first measurement."""
        return bool(self._times)

    def measured(self, rows: int, rounds: int) -> bool:
        """Return True if one of the last ``rounds`` rounds had a pass over ``rows``."""
        return rows in self._times and self._times[rows].round > self.rounds - rounds

    def _ratio(self, rows: int) -> float:
        """Return the ratio of the recent time of passes over ``rows`` to that of the model."""
        each = self._times[rows]
        return each.seconds / self._growth.of(each.load)

    def estimate(self, load: Load) -> float | None:
        """Return the estimated seconds of a pass; None before the first measurement."""
        ratios, rows = self._ratios(), load.rows
        if not ratios:
            return None
        first, last = ratios[0], ratios[-1]
        if not first[0] <= rows <= last[0]:
            return (first if rows < first[0] else last)[1] * self._growth.of(load)
        count, above, high = 0, 0, math.inf
        for count, ratio in reversed(ratios):  # no pass is slower than one over more rows
            below = min(high, ratio * self._growth.of(load._replace(rows=count)))
            if count <= rows:
                break
            above, high = count, below
        return below if count == rows else below + (rows - count) / (above - count) * (high - below)

    def _ratios(self) -> list[tuple[int, float]]:
        """Return row counts of recent rounds with their :meth:`_ratio`, fewest rows first."""
        if self._recent is None:
            recent = sorted(rows for rows in self._times if self.measured(rows, self.KEPT))
            self._recent = [(rows, self._ratio(rows)) for rows in recent]
        return self._recent


class MeasuredSeconds:
    """Price passes by recently measured times, by rows and positions
    (:class:`cassandra_spec.drafting.PassCosts`).

    ``draft_cache`` defines the positions that draft passes attend to. ``slope`` is the cost of one
    more row, in passes of one row, until passes have been timed.
    """

    SLOPE = 0.05
    DRAFT = 0.4  # relative to a verification of as many rows, until a draft pass is timed

    def __init__(self, draft_cache: DraftCache | None = None, *, slope: float = SLOPE) -> None:
        self._cache = DraftCache(window=None) if draft_cache is None else draft_cache
        self._slope = slope
        self._draft, self._verify = _PassTimes(slope), _PassTimes(slope)

    def state(self) -> dict[str, dict[str, list[Any]]]:
        """Return the times of draft and target as JSON-serializable objects."""
        return {"draft": self._draft.state(), "verify": self._verify.state()}

    def begin(self, state: Mapping[str, Mapping[str, Sequence[Any]]]) -> None:
        """Load the times of an earlier process, from :meth:`state`, without validation."""
        for name, times in (("draft", self._draft), ("verify", self._verify)):
            if state[name]["times"]:
                times.begin(state[name]["growth"], state[name]["times"])

    def _seen(self, positions: Sequence[int]) -> list[int]:
        """Return the number of positions that a draft pass attends to, of each sequence."""
        every = (self._cache.runs(position, 0, position + 1) for position in positions)
        return [sum(stop - first for first, stop in runs) for runs in every]

    def draft(self, positions: Sequence[int], rows: int) -> float:
        """Return the seconds of one draft view pass, measured or estimated."""
        seconds = self._draft.estimate(_evenly(rows, self._seen(positions)))
        return self.DRAFT * self.verify(positions, rows) if seconds is None else seconds

    def verify(self, positions: Sequence[int], rows: int) -> float:
        """Return the seconds of a verification, measured or estimated."""
        seconds = self._verify.estimate(_evenly(rows, positions))
        if seconds is None:  # nothing was timed yet: count in passes of one row
            return 1 + self._slope * (rows - 1)
        return seconds

    def wants_plain(self, rows: int, recent: int) -> bool:
        """Return True if a plain pass should be timed because no recent round had one."""
        return self._verify.rounds > 0 and not self._verify.measured(rows, recent)

    def observe(
        self,
        positions: Sequence[int],
        outcomes: Sequence[Outcome],
        counts: Sequence[int] | None = None,
    ) -> None:
        """Record the times of a round of sequences, at the positions where it began.

        ``counts`` are the tokens that the target read of each, beside drafts (default: one).
        The first round of all is ignored: it touches memory for the first time, and no estimate
        bounds its times.
        """
        self._verify.begin_round()
        self._draft.begin_round()
        if self._verify.rounds == 1 and not self._verify.known:
            return
        counts = [1] * len(outcomes) if counts is None else counts
        rows = [own + each.drafted for own, each in zip(counts, outcomes, strict=True)]
        seconds = sum(outcome.verify_seconds for outcome in outcomes)
        add = self._verify.add if max(counts) == 1 else self._verify.add_beside
        add(Load.of(rows, positions), seconds)
        seen = self._seen(positions)
        for number in range(max(outcome.passes for outcome in outcomes)):
            passes = [
                (outcome.proposal.passes[number], each)
                for outcome, each in zip(outcomes, seen, strict=True)
                if outcome.passes > number
            ]
            load = Load.of([each.rows for each, _ in passes], [each for _, each in passes])
            guess = None if self._draft.known else self.DRAFT * self.verify(positions, load.rows)
            self._draft.add(load, sum(each.seconds for each, _ in passes), guess)
        self._verify.end_round()
        self._draft.end_round()


def _evenly(rows: int, seen: Sequence[float]) -> Load:
    """Return the load of a pass whose rows are divided among sequences evenly."""
    count, total = len(seen), sum(seen)
    share = (rows / count - 1) / (rows - 1) if total and rows > 1 else 1.0
    return Load(int(rows), total, share)
