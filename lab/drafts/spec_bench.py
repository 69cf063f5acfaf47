"""Spec-Bench's protocol: any backend and draft beside plain decoding of the same backend.

Batch 1, greedy; questions of two turns are conversations on the plain replies. Each turn is
answered in both ways, one after the other, and the ways take turns in beginning, so what disturbs
the machine disturbs both. A reply's time is the whole request's, the prompt included.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.bench.answers import ROOMS, Answers
from cassandra_spec.bench.decode.serve import timed
from cassandra_spec.bench.equal import first_difference
from cassandra_spec.bench.questions import Question, ask_all
from cassandra_spec.bench.study.acceptance import ACCEPTANCE, Ratio, speedup_ratio
from cassandra_spec.drafting import Costs, Counters, Settings
from cassandra_spec.golden import CassandraError
from cassandra_spec.lab.questions import Conversation
from cassandra_spec.lab.study.intervals import Interval, bootstrap, interval
from cassandra_spec.model.backends import CheckedBackend
from cassandra_spec.toolkit.tables import Table

OVERALL = "overall"
TOKENS_PER_VERIFICATION = Ratio(part={"tokens": 1}, whole={"rounds": 1})
_CHAT = "multi-turn conversation"
_CHAT_CATEGORIES = (
    *("writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities"),
)
"""MT-bench's categories, which the leaderboard has as one."""
_WARM_UP = 8  # tokens


@dataclasses.dataclass(frozen=True, kw_only=True)
class Timed:
    """The tokens of a reply, and its seconds up to the first of them and after it."""

    tokens: list[int]
    first: float
    seconds: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Turn:
    """Both replies to one turn."""

    plain: Timed
    drafted: Timed
    counters: Counters  # of the drafted reply

    @property
    def identical(self) -> bool:
        """Return whether the replies have the same tokens."""
        return first_difference(self.plain.tokens, self.drafted.tokens) is None

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> Turn:
        """Invert ``dataclasses.asdict``, also after JSON."""
        fields = [field.name for field in dataclasses.fields(Timed)]
        replies = {
            name: Timed(**{field: body[name][field] for field in fields})
            for name in ("plain", "drafted")
        }
        return cls(**replies, counters=Counters.of(body["counters"]))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answered:
    """A question with its turns that fit the model."""

    category: str
    turns: list[Turn]

    @property
    def counters(self) -> Counters:
        """Return the counters of the drafted replies."""
        total = Counters()
        for turn in self.turns:
            total.add(turn.counters)
        return total

    @property
    def speeds(self) -> list[float]:
        """Tokens a second, drafted and plain: of whole requests, then behind first tokens."""
        ways = [[turn.drafted for turn in self.turns], [turn.plain for turn in self.turns]]
        return [_rate(some, skipped) for skipped in (0, 1) for some in ways]


def _rate(replies: Sequence[Timed], skipped: int) -> float:
    """Return the tokens per second of all replies, without the first ``skipped`` tokens of each."""
    tokens = sum(len(each.tokens) - skipped for each in replies)
    seconds = sum(each.seconds + (0 if skipped else each.first) for each in replies)
    return tokens / seconds if tokens else 0.0


class Run:
    """Answers of a backend to questions, with a draft and plainly.

    ``about`` says what answers and their times depend on beside settings and prompts, as JSON;
    ``journal`` has those of earlier runs. Raises :class:`CassandraError` if no reply fits.
    """

    def __init__(
        self,
        backend: CheckedBackend,
        settings: Settings,
        *,
        about: object,
        journal: Path | None = None,
    ) -> None:
        assert backend.costs is not None, "the backend is of a packed file"
        self._backend, self._costs, self._about = backend, backend.costs, about
        self._settings = dataclasses.replace(settings, stop_tokens=backend.stop_tokens())
        self._room = backend.positions - settings.max_tokens  # of a prompt
        if self._room < 1:
            raise CassandraError(
                f"max-tokens must be below the model's {backend.positions} positions,"
                f" not {settings.max_tokens}"
            )
        self._kept = Answers(journal, (*ROOMS, "lab/drafts"))
        self.answered: list[Answered] = []
        self.left_out = 0  # turns
        self._warm = False

    def run(self, questions: Sequence[Question], say: Callable[[str], object]) -> int:
        """Ask all questions, as :func:`~cassandra_spec.bench.questions.ask_all` does.

        A turn whose prompt and longest reply do not fit the model is left out, with those after it.
        Raises :class:`CassandraError` if none fits.
        """
        asked = ask_all(questions, self._ask, say)
        if asked and not self.answered:
            raise CassandraError(f"questions must have a prompt of at most {self._room} tokens")
        return asked

    def _ask(self, question: Question) -> None:
        talk, turns = Conversation(question, self._backend.tokenizer), list[Turn]()
        before = sum(each.category == question.category for each in self.answered)
        for prompt in talk.prompts(self._room):
            turns.append(self._turn(prompt, drafted_first=(before + len(turns)) % 2 == 1))
            talk.reply(turns[-1].plain.tokens)
        self.left_out += len(question.turns) - len(turns)
        if turns:
            self.answered.append(Answered(category=question.category, turns=turns))

    def _turn(self, prompt: list[int], *, drafted_first: bool) -> Turn:
        def make() -> dict[str, Any]:
            self._warm_up(prompt)
            counters, plain = Counters(), dataclasses.replace(self._settings, gamma=0)
            ways = {"plain": (plain, Counters()), "drafted": (self._settings, counters)}
            order = sorted(ways, reverse=not drafted_first)
            replies = {name: timed(self._backend.rounds(prompt, *ways[name])) for name in order}
            counters.kv = counters.key_values(self._costs.position)
            return {**replies, "counters": dataclasses.asdict(counters)}

        settings = repr(self._settings)
        return Turn.of(self._kept.get([self._about, settings, drafted_first, prompt], make))

    def _warm_up(self, prompt: list[int]) -> None:
        """Decode a little in both ways, once."""
        if self._warm:
            return
        self._warm = True
        short = dataclasses.replace(self._settings, max_tokens=_WARM_UP)
        for settings in (dataclasses.replace(short, gamma=0), short):
            list(self._backend.rounds(prompt, settings, Counters()))

    def figures(self) -> list[Figures]:
        """Return figures by the leaderboard's categories, then over all questions."""
        groups: dict[str, list[Answered]] = {}
        for each in self.answered:
            name = _CHAT if each.category in _CHAT_CATEGORIES else each.category
            groups.setdefault(name, []).append(each)
        groups[OVERALL] = self.answered
        return [_figures(name, some, self._costs) for name, some in groups.items()]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Figures:
    """The figures of a category, or of all questions; intervals are of 95 %, over questions."""

    category: str
    questions: int
    turns: int
    identical: int  # turns
    tokens: int  # of the drafted replies
    accepted_tokens: Interval  # emitted in a verification: the leaderboard's mean accepted tokens
    speedup: Interval  # mean tokens a second of requests over the mean of plain decoding
    decode_speedup: Interval  # the same without prompts and first tokens
    speed: float  # tokens a second of requests, the mean over questions
    plain_speed: float
    acceptance: Interval  # accepted / drafted; 0 without drafted tokens
    traffic: Interval  # over plain decoding in BF16, everything counted


def _figures(category: str, some: Sequence[Answered], costs: Costs) -> Figures:
    turns = [turn for each in some for turn in each.turns]
    counted = [each.counters for each in some]
    speeds = np.array([each.speeds for each in some])
    return Figures(
        category=category,
        questions=len(some),
        turns=len(turns),
        identical=sum(turn.identical for turn in turns),
        tokens=sum(len(turn.drafted.tokens) for turn in turns),
        accepted_tokens=bootstrap(counted, TOKENS_PER_VERIFICATION),
        speedup=interval(speeds[:, :2], _ratio),
        decode_speedup=interval(speeds[:, 2:], _ratio),
        speed=speeds[:, 0].mean(),
        plain_speed=speeds[:, 1].mean(),
        acceptance=bootstrap(counted, ACCEPTANCE),
        traffic=bootstrap(counted, speedup_ratio(costs)),
    )


def _ratio(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the ratio of the first of two sums to the second, or 0: [..., 2]."""
    first, second = sums[..., 0], sums[..., 1]
    return np.divide(first, second, out=np.zeros_like(first), where=second != 0)


_HEADER = (
    *("category", "turns", "identical", "accepted tokens", "speed-up", "without prompts"),
    *("tokens/s", "plain", "accepted / drafted", "traffic speed-up"),
)


def tables(found: Sequence[Figures], *, title: str, left_out: int) -> list[Table]:
    """Format a line in the leaderboard's form, and all figures by category."""
    *groups, overall = found
    accepted = f"{overall.accepted_tokens.value:.2f}"
    line = [*(f"{each.speedup.value:.2f}x" for each in groups), accepted]
    board = Table(
        title=title,
        header=(*(each.category for each in groups), "#mean accepted tokens", OVERALL),
        rows=((*line, f"{overall.speedup.value:.2f}x"),),
    )
    fits = f" {left_out} turns did not fit the model and are left out." if left_out else ""
    details = Table(
        title="By category",
        header=_HEADER,
        rows=tuple(_cells(each) for each in found),
        notes=(f"Intervals are of 95 %, over questions.{fits}",),
    )
    return [board, details]


def _cells(one: Figures) -> tuple[str, ...]:
    return (
        one.category,
        str(one.turns),
        f"{one.identical}/{one.turns}",
        str(one.accepted_tokens),
        str(one.speedup),
        str(one.decode_speedup),
        f"{one.speed:.1f}",
        f"{one.plain_speed:.1f}",
        str(one.acceptance) if one.acceptance.high else "-",
        str(one.traffic),
    )


def draw(found: Sequence[Figures], *, title: str) -> bytes:
    """Draw bars by category as an SVG."""
    from cassandra_spec.toolkit.plots import draw_bars  # needs the extra `plots`

    columns = {
        "speed-up over plain decoding": [each.speedup.value for each in found],
        "mean accepted tokens": [each.accepted_tokens.value for each in found],
    }
    return draw_bars([each.category for each in found], columns, title=title)
