"""Search the best settings of a model (paper, VII.B.2).

Coarse to fine: a grid over scheme, pruning and truncation; then, around the best of the grid, their
neighbours, the group, and how the head, keys and values are treated; at last, fewer bits in the
first layers and more in the last ones. Every candidate is measured on a development set by
evaluating its draft along the target's replies, for every gamma at once.

The minimum margin of drafted tokens (``min_margin``) is chosen for every candidate from the same
measurement, which has the draft's margins at every position.

Two objectives are reported. Eq. 2 of the paper, as printed, is acceptance over the bits that a
draft reads; it includes neither gamma, nor masks and exponents, nor the verification. The full
model is the traffic of a round, docs/software/runtime.md; it decides.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cassandra_spec.bench.study.acceptance import Counted, count, count_best
from cassandra_spec.bench.study.drafts import Measured, Setting
from cassandra_spec.golden import CassandraError, Format
from cassandra_spec.golden.errors import FileError
from cassandra_spec.golden.format import SCHEMES
from cassandra_spec.golden.model_types import HEAD
from cassandra_spec.model.output import write_file
from cassandra_spec.model.packing.packer import Override, PackPlan, Recipe
from cassandra_spec.model.speculative import KeyValueFormat

EQ_2_GAMMA = 5
"""The gamma of the acceptance in Eq. 2; the paper does not state it."""

MARGINS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0)
"""Values of ``min_margin`` that are tried."""

_TARGET_BITS = 16
_COARSE: Mapping[str, tuple[tuple[float, int], ...]] = {  # (prune, truncated)
    "unary": ((0.0, 4), (0.0, 5), (0.2, 4), (0.2, 5), (0.4, 4), (0.4, 5)),
    "mx": ((0.0, 4), (0.0, 5)),
    "exact": ((0.0, 4), (0.0, 5)),
}
_COARSE_BEST = 2  # of the grid, whose neighbours are looked at
_EARLY, _LATE = (1 / 6, 1 / 3, 1 / 2), 1 / 6  # shares of the layers with other bits


@dataclasses.dataclass(frozen=True, kw_only=True)
class Candidate:
    """One point of the search."""

    scheme: str
    prune: float = 0.0
    truncated: int = 4
    group: int = 64
    head: int | None = 0  # bits that the draft's head has more than its layers; None: BF16
    kv: int | None = 4  # bits truncated from keys and values; None: BF16
    early: int = 0  # first layers, whose draft has one bit less
    late: int = 0  # last layers, whose draft has one bit more
    layers: int = 0  # of the model, where there are late ones

    @property
    def name(self) -> str:
        """Short, and different for each candidate."""
        size = f" pruned {self.prune:.0%}" if self.scheme == "unary" else f" G{self.group}"
        head = {0: "", None: ", head BF16"}.get(self.head, f", head +{self.head}")
        kv = ", KV BF16" if self.kv is None else f", KV -{self.kv}"
        early = f", first {self.early} -1" if self.early else ""
        late = f", last {self.late} +1" if self.late else ""
        return f"{self.scheme}{size} -{self.truncated}{head}{kv}{early}{late}"

    def plan(self) -> PackPlan:
        """Return the plan of the weights."""
        exact = self.scheme == "exact"
        format = Format(
            scheme=self.scheme,  # type: ignore[arg-type]
            truncated=self.truncated,
            fill="midpoint",
            group=self.group if self.scheme != "unary" else Format().group,
        )
        recipe = Recipe(
            format=format, prune=self.prune, group_exponents="weighted" if exact else "largest"
        )
        return PackPlan(default=recipe, overrides=self._overrides())

    def _overrides(self) -> tuple[Override, ...]:
        late = range(self.layers - self.late, self.layers)
        by_layer = [(layer, 1) for layer in range(self.early)] + [(layer, -1) for layer in late]
        found = [
            Override(
                tensors=f"model.layers.{layer}.*", changes={"truncated": self.truncated + more}
            )
            for layer, more in by_layer
        ]
        if self.head is None:
            found.append(Override(tensors=HEAD, keep=True))
        elif self.head:
            changes = {"truncated": self.truncated - self.head, "prune": 0.0}
            found.append(Override(tensors=HEAD, changes=changes))
        return tuple(found)

    def setting(self) -> Setting:
        """Return the setting to measure."""
        kv = None
        if self.kv is not None:
            format = Format(scheme="unary", truncated=self.kv, fill="midpoint")
            kv = KeyValueFormat(format=format)
        return Setting(name=self.name, plan=self.plan(), kv=kv)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Score:
    """The results of a candidate."""

    candidate: Candidate
    gamma: int  # with the least traffic, at the best margin
    min_margin: float  # likewise
    acceptance: float  # at that gamma
    speedup: float  # of traffic, everything counted
    speedup_without: float  # the same of the best gamma without a minimum margin
    plain_speedup: float  # of the compressed target without speculation
    draft_bits: float
    target_bits: float
    eq_2: float  # times the bytes of the weights in BF16, so that 16 bits and acceptance 1 make 1
    draft: str = "model"  # as of cassandra_spec.drafting.Settings

    def to_dict(self) -> dict[str, Any]:
        """Plain objects for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, body: Mapping[str, Any]) -> Score:
        """Build a score from the output of :meth:`to_dict`."""
        return cls(**{**body, "candidate": Candidate(**body["candidate"])})


def with_margin(measured: Measured, min_margin: float) -> Measured:
    """Return the same drafts with another minimum margin."""
    setting = dataclasses.replace(measured.setting, min_margin=min_margin)
    return dataclasses.replace(measured, setting=setting)


def score(candidate: Candidate, measured: Measured, depth: int) -> Score:
    """Compute both objectives of a measured candidate, with its best gamma and margin.

    Of margins that are equally good the smallest one is taken. Eq. 2 knows no margins.
    """
    by_margin = {margin: count_best(with_margin(measured, margin), depth) for margin in MARGINS}
    margin = max(by_margin, key=lambda margin: by_margin[margin].speedup)
    best = by_margin[margin]
    draft_bits, target_bits = best.bits
    return Score(
        candidate=candidate,
        gamma=best.gamma,
        min_margin=margin,
        acceptance=best.acceptance,
        speedup=best.speedup,
        speedup_without=by_margin[0.0].speedup,
        plain_speedup=best.report.traffic["all"].plain_speedup or 0.0,
        draft_bits=draft_bits,
        target_bits=target_bits,
        eq_2=eq_2(candidate, count(measured, min(EQ_2_GAMMA, depth))),
        draft=measured.asked.draft,
    )


def eq_2(candidate: Candidate, at: Counted) -> float:
    """Eq. 2 as printed, scaled: acceptance / (share of bits kept, by bytes of weights and KV).

    S_kv is the mean size of keys and values that a target pass of the run sees.
    """
    costs, report = at.measured.costs, at.report
    weights = costs.linear.bf16 + costs.head.bf16
    kv = report.kv.bf16
    kept = weights * (1 - candidate.prune) * (_TARGET_BITS - candidate.truncated)
    kept += kv * (_TARGET_BITS - (candidate.kv or 0))
    return at.acceptance * _TARGET_BITS * (weights + kv) / kept


class State:
    """Scores by candidate in a file, from which a search can be resumed."""

    def __init__(self, path: Path, about: Mapping[str, Any]) -> None:
        """``about``: what the scores depend on; :class:`FileError` if the file has another."""
        self._path = path
        self._key = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()
        self._about = dict(about)
        self.scores: dict[Candidate, Score] = {}
        if path.exists():
            self._read()

    def add(self, found: Score) -> None:
        """Keep a score, in the file, too."""
        self.scores[found.candidate] = found
        body = {
            "key": self._key,
            "about": self._about,
            "scores": [each.to_dict() for each in self.scores.values()],
        }
        write_file(self._path, (json.dumps(body, indent=1) + "\n").encode())

    def _read(self) -> None:
        try:
            body = json.loads(self._path.read_text(encoding="utf-8"))
            key, scores = body["key"], [Score.from_dict(each) for each in body["scores"]]
        except (ValueError, KeyError, TypeError) as error:
            raise FileError(f"{self._path} must be the state of a search ({error!r})") from error
        if key != self._key:
            raise FileError(
                f"{self._path} must be of a search over the same model, prompts and calibration,"
                " and is of another: remove it to begin anew"
            )
        self.scores = {found.candidate: found for found in scores}


def tune(
    measure: Callable[[Sequence[Candidate]], Iterable[Score]],
    state: State,
    *,
    schemes: Sequence[str] = SCHEMES,
    layers: int = 0,
    update: Callable[[int, int], object] = lambda done, total: None,
) -> list[Score]:
    """Search; the scores, best traffic first. ``update`` is told of candidates done and in all.

    ``measure`` scores candidates, in their order; ``layers`` is how many the model has: with 0, all
    of them get the same bits.
    """
    for scheme in schemes:
        if scheme not in SCHEMES:
            raise CassandraError(f"schemes must be of {', '.join(SCHEMES)}, not {scheme!r}")

    def look(candidates: list[Candidate]) -> list[Score]:
        missing = [candidate for candidate in candidates if candidate not in state.scores]
        known = len(candidates) - len(missing)
        update(known, len(candidates))
        for number, found in enumerate(measure(missing), known + 1):
            state.add(found)
            update(number, len(candidates))
        return sorted((state.scores[c] for c in candidates), key=lambda s: -s.speedup)

    grid = [
        Candidate(scheme=scheme, prune=prune, truncated=truncated)
        for scheme in schemes
        for prune, truncated in _COARSE[scheme]
    ]
    best = look(grid)
    near = [c for found in best[:_COARSE_BEST] for c in _neighbours(found.candidate)]
    best = look(list(dict.fromkeys([*grid, *near])))
    treated = [*grid, *near, *_treatments(best[0].candidate)]
    best = look(list(dict.fromkeys(treated)))
    by_layer = _by_layer(best[0].candidate, layers)
    return look(list(dict.fromkeys([*treated, *by_layer])))


def _neighbours(candidate: Candidate) -> Iterator[Candidate]:
    """Yield candidates with a different pruning, truncation or group."""
    if candidate.scheme == "unary":
        for step in (-0.1, 0.1):
            prune = round(candidate.prune + step, 2)
            if 0 <= prune < 1:
                yield dataclasses.replace(candidate, prune=prune)
    else:
        yield dataclasses.replace(candidate, group=96 - candidate.group)  # 32 or 64
    for step in (-1, 1):
        if 0 <= candidate.truncated + step <= 7:
            yield dataclasses.replace(candidate, truncated=candidate.truncated + step)


def _treatments(candidate: Candidate) -> Iterator[Candidate]:
    """Yield the candidate with other treatments of its head, keys and values."""
    for head in (1, None):
        yield dataclasses.replace(candidate, head=head)
    for kv in (None, 3, 5):
        yield dataclasses.replace(candidate, kv=kv)


def _by_layer(candidate: Candidate, layers: int) -> Iterator[Candidate]:
    """Yield the candidate with fewer bits in its first layers, more in its last ones, and both."""
    for early in (0, *(round(layers * share) for share in _EARLY)):
        for late in (0, round(layers * _LATE)):
            known = layers if late else 0
            yield dataclasses.replace(candidate, early=early, late=late, layers=known)


def front(scores: Sequence[Score]) -> list[Score]:
    """Return the Pareto front of traffic and memory, by memory."""
    found: list[Score] = []
    for each in sorted(scores, key=lambda s: (s.target_bits, -s.speedup)):
        if not found or each.speedup > found[-1].speedup:
            found.append(each)
    return found
