"""Prices of passes: seconds that were measured, by rows and position."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from cassandra_spec.drafting.proposal import Outcome
from cassandra_spec.drafting.settings import DraftCache


class _Growth:
    """Linear model of pass time by rows and positions, fitted by least squares to measured passes.

    The features are ``1``, ``rows - 1``, ``seen`` and ``seen * (rows - 1)``, with ``seen`` in
    thousands of positions. Only ratios of its times are used. ``START`` is the prior mean, in units
    of a one-row pass with an empty context; ``DEVIATIONS`` is the prior's standard deviation and
    ``NOISE`` the relative noise of a pass. Each new pass multiplies the weight of earlier passes by
    ``DECAY``.
    """

    START = (1.0, 0.05, 0.02, 0.002)
    DEVIATIONS = (1.0, 0.1, 0.1, 0.03)
    NOISE, DECAY = 0.1, 0.99

    def __init__(self) -> None:
        self._products, self._sums = np.zeros((4, 4)), np.zeros(4)
        self._start = np.array(self.START)
        self._prior = np.diag((self.NOISE / np.array(self.DEVIATIONS)) ** 2)
        self._unit: float | None = None  # seconds of a one-row pass with an empty context
        self._fit: Sequence[float] = self.START

    def solve(self) -> None:
        """Fit all passes so far."""
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

    def of(self, rows: int, seen: float) -> float:
        """Return the time of a pass, in model units."""
        base, slope, seen_slope, both = self._fit
        return base + slope * (rows - 1) + seen / 1000 * (seen_slope + both * (rows - 1))

    def add(self, rows: int, seen: float, seconds: float) -> None:
        """Add a measured pass; :meth:`solve` includes it in the fit."""
        thousands, more = seen / 1000, rows - 1
        terms = np.array([1.0, more, thousands, thousands * more])
        about = self.of(rows, seen)  # relative errors count
        self._unit = self._unit or seconds / about
        self._products = self._products * self.DECAY + np.outer(terms, terms) / about**2
        self._sums = self._sums * self.DECAY + terms * (seconds / self._unit / about**2)


class _Time(NamedTuple):
    """A recent measurement of passes over some number of rows."""

    seconds: float
    seen: float  # positions
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

    def __init__(self) -> None:
        self._times: dict[int, _Time] = {}
        self._growth = _Growth()
        self._curve: tuple[float, list[tuple[int, float]]] | None = None  # of _known, by positions
        self.rounds = 0  # until now

    def begin_round(self) -> None:
        """Start a new round: passes added from here on belong to it."""
        self.rounds += 1
        self._curve = None

    def end_round(self) -> None:
        """Include the passes of the round in the estimates."""
        self._growth.solve()
        self._curve = None

    def state(self) -> dict[str, list[Any]]:
        """Return the state as JSON-serializable objects, for :meth:`begin` in another process."""
        sure = [(rows, each) for rows, each in sorted(self._times.items()) if not each.doubted]
        times = [[rows, each.seen, each.seconds] for rows, each in sure]
        return {"growth": self._growth.seconds(), "times": times}

    def begin(self, growth: Sequence[float], times: Sequence[Sequence[float]]) -> None:
        """Load times of an earlier process; they count for ``DOUBTED`` rounds."""
        self._growth.begin(growth)
        for rows, seen, seconds in times:
            self._times[int(rows)] = _Time(seconds, seen, self._last_round(self.DOUBTED))
        self._curve = None

    def add(self, rows: int, seen: float, seconds: float, guess: float | None = None) -> None:
        """Add the time of a pass over ``rows`` that attended to ``seen`` positions.

        The first time of all is averaged with a ``guess``.
        """
        first = guess if not self.known else None
        before = self.estimate(rows, seen) if first is None else first
        bounded = seconds if before is None else min(seconds, self.OUTLIER * before)
        doubted = first is not None
        if first is not None:
            bounded = (bounded + first) / 2
        else:
            self._growth.add(rows, seen, bounded)
        if self.measured(rows, self.KEPT):
            known = self._scaled(rows, rows, seen)
            rate = self.DOUBTED_RATE if self._times[rows].doubted else self.RATE
            bounded = known + rate * (bounded - known)
        elif before is not None and seconds > self.SURPRISE * before:
            doubted = True
        last = self._last_round(self.DOUBTED if doubted else self.KEPT)
        self._times[rows] = _Time(bounded, seen, last, doubted)

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

    def _scaled(self, known: int, rows: int, seen: float) -> float:
        """Return the time of a pass, scaled from a measured pass over ``known`` rows."""
        each = self._times[known]
        return each.seconds * self._growth.of(rows, seen) / self._growth.of(known, each.seen)

    def estimate(self, rows: int, seen: float) -> float | None:
        """Return the estimated seconds of a pass; None before the first measurement."""
        known = self._known(seen)
        if not known:
            return None
        first, last = known[0][0], known[-1][0]
        if not first <= rows <= last:
            return self._scaled(first if rows < first else last, rows, seen)
        at = bisect.bisect_left(known, (rows, 0.0))
        above, high = known[at]
        below, low = known[max(at - 1, 0)]
        return high + (above - rows) / max(above - below, 1) * (low - high)

    def _known(self, seen: float) -> list[tuple[int, float]]:
        """Return row counts of recent rounds with their seconds, none above that of more rows."""
        if self._curve is None or self._curve[0] != seen:
            recent = sorted(rows for rows in self._times if self.measured(rows, self.KEPT))
            seconds = [self._scaled(rows, rows, seen) for rows in recent]
            least = list(itertools.accumulate(reversed(seconds), min))[::-1]
            self._curve = seen, list(zip(recent, least, strict=True))
        return self._curve[1]


class MeasuredSeconds:
    """Price passes by recently measured times, by rows and position (:class:`PassCosts`).

    ``draft_cache`` defines the positions that draft passes attend to.
    """

    DRAFT = 0.4  # relative to a verification of as many rows, until a draft pass is timed
    PLAIN = 100  # rounds after which a plain pass is timed again

    def __init__(self, draft_cache: DraftCache | None = None) -> None:
        self._cache = DraftCache(window=None) if draft_cache is None else draft_cache
        self._draft, self._verify = _PassTimes(), _PassTimes()
        self._position = 0

    def state(self) -> dict[str, dict[str, list[Any]]]:
        """Return the times of draft and target as JSON-serializable objects."""
        return {"draft": self._draft.state(), "verify": self._verify.state()}

    def begin(self, state: Mapping[str, Mapping[str, Sequence[Any]]]) -> None:
        """Load the times of an earlier process, from :meth:`state`, without validation."""
        for name, times in (("draft", self._draft), ("verify", self._verify)):
            if state[name]["times"]:
                times.begin(state[name]["growth"], state[name]["times"])

    def _seen(self, position: int) -> int:
        runs = self._cache.runs(position, 0, position + 1)
        return sum(stop - first for first, stop in runs)

    def draft(self, position: int, rows: int) -> float:
        """Return the seconds of one draft view pass, measured or estimated."""
        self._position = position
        seconds = self._draft.estimate(rows, self._seen(position))
        return self.DRAFT * self.verify(position, rows) if seconds is None else seconds

    def verify(self, position: int, rows: int) -> float:
        """Return the seconds of a verification, measured or estimated."""
        self._position = position
        seconds = self._verify.estimate(rows, position)
        return (
            1 + _Growth.START[1] * (rows - 1) if seconds is None else seconds
        )  # in one-row passes

    def wants_plain(self) -> bool:
        """Return True if a plain pass should be timed because no recent round had one."""
        return self._verify.rounds > 0 and not self._verify.measured(1, self.PLAIN)

    def observe(self, outcome: Outcome) -> None:
        """Record the times of a round at the position of the last query.

        The first round of all is ignored: it touches memory for the first time, and no estimate
        bounds its times.
        """
        self._verify.begin_round()
        self._draft.begin_round()
        if self._verify.rounds == 1 and not self._verify.known:
            return
        self._verify.add(outcome.drafted + 1, self._position, outcome.verify_seconds)
        seen = self._seen(self._position)
        for each in outcome.proposal.passes:
            guess = None if self._draft.known else self.draft(self._position, each.rows)
            self._draft.add(each.rows, seen, each.seconds, guess)
        self._verify.end_round()
        self._draft.end_round()
