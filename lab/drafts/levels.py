"""Levels of drafting by kind of text: traffic, tokens per pass, speed, replies compared.

Every turn of every question is answered by all variants, one after the other, beginning with
another one each time; questions of two turns are conversations on the plain replies.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import statistics
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from cassandra_spec.bench.equal import first_difference
from cassandra_spec.bench.questions import Question, ask_all
from cassandra_spec.bench.study.acceptance import Ratio, speedup_ratio
from cassandra_spec.drafting import (
    ADAPTIVE,
    DRAFT_VIEW,
    Costs,
    Counters,
    Levels,
    NgramTable,
    Settings,
    stop_tokens,
)
from cassandra_spec.drafting.counters import SourceCounters
from cassandra_spec.lab.questions import ALL, Conversation
from cassandra_spec.lab.study.intervals import Interval, bootstrap
from cassandra_spec.model.baking import open_table
from cassandra_spec.model.pretrained import load_tokenizer
from cassandra_spec.native.engine import Engine
from cassandra_spec.toolkit import globs
from cassandra_spec.toolkit.tables import text_table

PLAIN = "plain"
_VIEW_MARGIN = 0.75
_CHAINS = Levels(branches=1, alternatives=0)


@dataclasses.dataclass(frozen=True)
class Variant:
    """One way to draft."""

    name: str
    settings: Settings
    table: bool = False  # whether low drafters have the table


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sizes:
    """Settings shared by all variants."""

    max_tokens: int = 128
    gamma: int = 7  # of all but the adaptive ones
    min_margin: float = 1.1  # of the hybrid variants


def variants(sizes: Sizes) -> list[Variant]:
    """Return variants with one level more each, at a fixed gamma and with the policy."""

    def make(draft: Any, levels: Levels | None = None, *, gamma: Any = sizes.gamma) -> Settings:
        margin = {"model": _VIEW_MARGIN, "hybrid": sizes.min_margin}.get(draft, 0.0)
        return Settings(
            gamma=gamma,
            draft=draft,
            min_margin=margin,
            levels=levels or Levels(),
            max_tokens=sizes.max_tokens,
        )

    return [
        Variant(PLAIN, make("none", gamma=0)),
        Variant("draft view", make("model")),
        Variant("copies, chains", make("hybrid", _CHAINS)),
        Variant("table, chains", make("hybrid", _CHAINS), table=True),
        Variant("trees of 3", make("hybrid"), table=True),
        Variant("trees of 7", make("hybrid", Levels(low=7)), table=True),
        Variant("low chain alone", make("lookup", _CHAINS), table=True),
        Variant("low tree alone", make("lookup"), table=True),
        Variant("draft view, adaptive", make("model", gamma=ADAPTIVE)),
        Variant("levels, adaptive", make("hybrid", gamma=ADAPTIVE), table=True),
    ]


def choose(patterns: Sequence[str], sizes: Sizes) -> list[Variant]:
    """Plain decoding, and the variants whose names match a glob."""
    return globs.choose("variants", [PLAIN, *patterns], variants(sizes))


@dataclasses.dataclass(frozen=True)
class Answer:
    """A variant's reply to one turn."""

    category: str
    variant: str
    identical: bool
    counters: Counters


class Run:
    """Answers to questions by all variants, on one engine."""

    def __init__(
        self,
        engine: Engine,
        tokenizer: Any,
        stops: frozenset[int],
        table: NgramTable | None,
        chosen: Sequence[Variant],
    ) -> None:
        self._engine, self._tokenizer, self._stops = engine, tokenizer, stops
        self._table = table
        self._variants = [each for each in chosen if table is not None or not each.table]

    def answer(self, question: Question, first: int) -> Iterator[Answer]:
        """Answer the turns that fit the engine; ``first`` is the variant that begins."""
        talk = Conversation(question, self._tokenizer)
        room = self._engine.context - self._variants[0].settings.max_tokens
        for prompt in talk.prompts(room):
            replies = {}
            first %= len(self._variants)
            for each in [*self._variants[first:], *self._variants[:first]]:
                replies[each] = self._reply(each, prompt)
            plain = next(tokens for each, (tokens, _) in replies.items() if each.name == PLAIN)
            for each, (tokens, counters) in replies.items():
                same = first_difference(tokens, plain) is None
                yield Answer(question.category, each.name, same, counters)
            talk.reply(plain)

    def _reply(self, variant: Variant, prompt: Sequence[int]) -> tuple[list[int], Counters]:
        self._engine.use_table(self._table if variant.table else None)
        settings = dataclasses.replace(variant.settings, stop_tokens=self._stops)
        counters = Counters()
        rounds = self._engine.rounds(prompt, settings, counters)
        tokens = list(itertools.chain.from_iterable(rounds))
        counters.kv = counters.key_values(self._engine.costs.position if self._engine.costs else 0)
        return tokens, counters

    def figures(self, answers: Sequence[Answer]) -> list[Figures]:
        """Return figures per variant: total, then by category."""
        assert self._engine.costs is not None, "the engine is of a packed file"
        return figures(self._engine.costs, answers)

    def run(
        self, questions: Sequence[Question], say: Callable[[str], object]
    ) -> tuple[list[Answer], bool]:
        """Return all answers, and whether all questions were asked; Ctrl-C ends the run."""
        found, first = list[Answer](), itertools.count()
        asked = ask_all(questions, lambda one: found.extend(self.answer(one, next(first))), say)
        return found, asked == len(questions)


@contextlib.contextmanager
def open_run(
    source: Path, table: Path | None, threads: int | None, chosen: Sequence[Variant]
) -> Iterator[Run]:
    """Open a run on a packed model, with a table of n-grams if given."""
    tokenizer = load_tokenizer(source)
    with Engine.from_packed(source, threads=threads) as engine:
        stops = stop_tokens(tokenizer, source)
        loaded = None if table is None else open_table(table, source)
        yield Run(engine, tokenizer, stops, loaded, chosen)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Figures:
    """The figures of a variant in a category, or in all."""

    variant: str
    category: str
    turns: int
    identical: int
    tokens_per_verification: float
    tokens_per_pass: float | None  # tokens drafted per pass of the draft view
    acceptance: float | None  # accepted / drafted of the draft view
    speedup: Interval  # traffic over BF16, everything counted
    to_plain: tuple[float, float, float]  # tokens a second over plain, by turn: quartiles


def figures(costs: Costs, answers: Sequence[Answer]) -> list[Figures]:
    """Return figures per variant: total, then by category."""
    ratio = speedup_ratio(costs)
    categories = [ALL, *dict.fromkeys(answer.category for answer in answers)]
    names = list(dict.fromkeys(answer.variant for answer in answers))
    found = []
    for category in categories:
        some = [a for a in answers if category in (ALL, a.category)]
        plain = [a.counters for a in some if a.variant == PLAIN]
        for name in names:
            own = [a for a in some if a.variant == name]
            found.append(_figures(name, category, own, plain, ratio))
    return found


def _figures(
    name: str, category: str, own: Sequence[Answer], plain: Sequence[Counters], ratio: Ratio
) -> Figures:
    total = Counters()
    for answer in own:
        total.add(answer.counters)
    view = total.sources.get(DRAFT_VIEW, SourceCounters())
    rates = [
        _rate(answer.counters) / _rate(other)
        for answer, other in zip(own, plain, strict=True)
        if answer.counters.tokens
    ]
    low, median, high = statistics.quantiles(rates, n=4) if len(rates) > 1 else rates * 3
    return Figures(
        variant=name,
        category=category,
        turns=len(own),
        identical=sum(answer.identical for answer in own),
        tokens_per_verification=total.tokens / max(total.rounds, 1),
        tokens_per_pass=view.drafted / total.passes if total.passes else None,
        acceptance=view.accepted / view.drafted if view.drafted else None,
        speedup=bootstrap([answer.counters for answer in own], ratio),
        to_plain=(low, median, high),
    )


def _rate(counters: Counters) -> float:
    return counters.tokens / counters.decode_seconds


_COLUMNS = (
    *("variant", "identical", "per verification", "per draft pass", "accepted"),
    *("traffic speed-up", "speed, of plain"),
)


def lines(found: Sequence[Figures]) -> str:
    """Format a table of all turns, and tables of two figures by category."""
    whole = [each for each in found if each.category == ALL]
    parts = [text_table(_COLUMNS, [_cells(each) for each in whole])]
    shown = [each.variant for each in whole]
    for title, cell in (("traffic speed-up", _speedup), ("tokens a second, of plain", _speed)):
        rows = []
        for category in dict.fromkeys(each.category for each in found):
            own = {each.variant: each for each in found if each.category == category}
            rows.append([category, str(own[PLAIN].turns), *(cell(own[name]) for name in shown)])
        parts.append(f"{title}\n\n" + text_table(["category", "turns", *shown], rows))
    return "\n\n".join(parts)


def _cells(one: Figures) -> list[str]:
    low, median, high = one.to_plain
    return [
        one.variant,
        f"{one.identical}/{one.turns}",
        f"{one.tokens_per_verification:.2f}",
        "-" if one.tokens_per_pass is None else f"{one.tokens_per_pass:.2f}",
        "-" if one.acceptance is None else f"{one.acceptance:.3f}",
        str(one.speedup),
        f"{median:.2f} [{low:.2f}, {high:.2f}]",
    ]


def _speedup(one: Figures) -> str:
    return f"{one.speedup.value:.2f}"


def _speed(one: Figures) -> str:
    return f"{one.to_plain[1]:.2f}"


def draw(found: Sequence[Figures], *, title: str) -> bytes:
    """Draw speed and traffic by level added as an SVG."""
    from cassandra_spec.toolkit.plots import draw_bars

    whole = [each for each in found if each.category == ALL]
    columns = {
        "traffic speed-up over BF16": [each.speedup.value for each in whole],
        "tokens a second, of plain (median)": [each.to_plain[1] for each in whole],
    }
    return draw_bars([each.variant for each in whole], columns, title=title)
