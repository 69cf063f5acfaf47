"""Keep measurements turn by turn, and compute figures from them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cassandra_spec.bench.decode.contenders import PLAIN, Contender, name_beside
from cassandra_spec.golden.errors import FileError

LLAMA = "llama.cpp BF16"
"""The other baseline."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Turn:
    """One contender's replies to the prompts of one round."""

    weights: str
    contender: str
    round: int
    replies: tuple[tuple[int, ...], ...]  # tokens
    seconds: float  # of all tokens but each reply's first, which comes with the prompt
    first: float  # seconds of the prompts and first tokens
    prompt: int  # tokens of the prompts
    probe: float  # bytes a second that memory gave just before
    resident: int  # bytes of the process afterwards
    held: int | None  # bytes of weights, keys and values, where the contender says so
    drafted: int | None = None
    accepted: int | None = None
    plans: dict[str, int] = dataclasses.field(default_factory=dict)  # rounds so far, if adaptive
    times: tuple[tuple[float, ...], ...] = ()  # seconds from the first token of a reply to others

    @property
    def rate(self) -> float:
        """Tokens a second."""
        return sum(len(reply) - 1 for reply in self.replies) / self.seconds

    @property
    def prompt_rate(self) -> float:
        """Tokens of prompts a second."""
        return self.prompt / self.first


class Turns:
    """Turns in a file, one per line, from which a run can be resumed."""

    def __init__(self, path: Path, about: Mapping[str, Any]) -> None:
        """``about``: what turns depend on; :class:`FileError` if the file is of something else."""
        self._path = path
        self._found: dict[tuple[str, str, int], Turn] = {}
        head = json.dumps({"about": about}, sort_keys=True)
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(head + "\n", encoding="utf-8")
            return
        first, *lines = path.read_text(encoding="utf-8").splitlines()
        if first != head:
            raise FileError(
                f"{path} must be of the same model, prompts and settings, and is of others:"
                " remove it to begin anew"
            )
        for line in lines:
            self._keep(_turn(json.loads(line), path))

    def __contains__(self, key: tuple[str, str, int]) -> bool:
        return key in self._found

    def __iter__(self) -> Any:
        return iter(self._found.values())

    def add(self, turn: Turn) -> None:
        """Keep a turn, in the file, too."""
        self._keep(turn)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(dataclasses.asdict(turn)) + "\n")

    def _keep(self, turn: Turn) -> None:
        self._found[turn.weights, turn.contender, turn.round] = turn


def _turn(body: dict[str, Any], path: Path) -> Turn:
    try:
        nested = {name: tuple(map(tuple, body.get(name, ()))) for name in ("replies", "times")}
        return Turn(**body | nested)
    except (KeyError, TypeError) as error:
        raise FileError(f"{path} must be turns of a benchmark ({error!r})") from error


@dataclasses.dataclass(frozen=True, kw_only=True)
class Spread:
    """A figure over rounds: its median and quartiles."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Compute the spread of one or more values."""
        low, median, high = np.quantile(values, [0.25, 0.5, 0.75]).tolist()
        return cls(median=median, low=low, high=high)


Figure = Spread | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Summary:
    """The figures of a contender with one set of weights."""

    weights: str
    contender: str
    rounds: int
    tokens: int  # after the first of each reply
    rate: Spread  # tokens a second
    prompt_rate: Spread  # of prompts
    prompt_to_llama: Figure
    to_plain: Figure  # ratios to plain native decoding and to llama.cpp in BF16, round by round
    to_llama: Figure
    to_beside: Figure  # to the same contender on the other checkout's code
    probe: Spread  # bytes a second of memory beside its turns
    resident: int  # most bytes of the process
    held: int | None
    accepted: int | None
    drafted: int | None
    compared: int  # replies that must be the same as another contender's
    identical: int  # and are
    plans: dict[str, int]  # rounds by the plan that an adaptive gamma chose
    alike: int | None  # replies that are plain native decoding's, where nothing says they must be


def summaries(turns: Sequence[Turn], contenders: Sequence[Contender]) -> list[Summary]:
    """Summarise all contenders with a turn, by weights, in the contenders' order."""
    by_weights = dict.fromkeys(turn.weights for turn in turns)
    return [
        _summary([t for t in turns if t.weights == weights], each)
        for weights in by_weights
        for each in contenders
        if any(t.weights == weights and t.contender == each.name for t in turns)
    ]


def _summary(turns: Sequence[Turn], contender: Contender) -> Summary:
    own = [turn for turn in turns if turn.contender == contender.name]
    compared, identical = _identical(turns, own, contender.same_as)
    free = contender.same_as is None and contender.name != PLAIN
    others, same = _identical(turns, own, PLAIN)
    alike = same if free and others else None
    return Summary(
        weights=own[0].weights,
        contender=contender.name,
        rounds=len(own),
        tokens=sum(len(reply) - 1 for turn in own for reply in turn.replies),
        rate=Spread.of([turn.rate for turn in own]),
        prompt_rate=Spread.of([turn.prompt_rate for turn in own]),
        prompt_to_llama=_ratio(turns, own, LLAMA, _prompt_rate),
        to_plain=_ratio(turns, own, PLAIN),
        to_llama=_ratio(turns, own, LLAMA),
        to_beside=_ratio(turns, own, name_beside(contender.name)),
        probe=Spread.of([turn.probe for turn in own]),
        resident=max(turn.resident for turn in own),
        held=own[-1].held,
        accepted=total([turn.accepted for turn in own]),
        drafted=total([turn.drafted for turn in own]),
        compared=compared,
        identical=identical,
        plans=max((turn.plans for turn in own), key=lambda plans: sum(plans.values())),
        alike=alike,
    )


def total(counts: Sequence[int | None]) -> int | None:
    """Return the sum of the known counts; None if all are unknown."""
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _rate(turn: Turn) -> float:
    return turn.rate


def _prompt_rate(turn: Turn) -> float:
    return turn.prompt_rate


def _ratio(
    turns: Sequence[Turn],
    own: Sequence[Turn],
    other: str,
    rate: Callable[[Turn], float] = _rate,
) -> Figure:
    """Return the ratio of rates to another contender's in the same round."""
    rates = {turn.round: rate(turn) for turn in turns if turn.contender == other}
    ratios = [rate(turn) / rates[turn.round] for turn in own if turn.round in rates]
    return Spread.of(ratios) if ratios else None


def _identical(turns: Sequence[Turn], own: Sequence[Turn], other: str | None) -> tuple[int, int]:
    """Count the replies comparable with another contender's, and the identical ones.

    A shorter reply is compared up to its end.
    """
    found = {turn.round: turn.replies for turn in turns if turn.contender == other}
    pairs = [
        (reply, expected[: len(reply)])
        for turn in own
        for reply, expected in zip(turn.replies, found.get(turn.round, ()), strict=False)
    ]
    return len(pairs), sum(mine == theirs for mine, theirs in pairs)
