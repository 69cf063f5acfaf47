"""Decoding speed by context, and along a long reply."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from cassandra_spec.bench.decode.contenders import PLAIN
from cassandra_spec.bench.decode.report import spread_cell
from cassandra_spec.bench.decode.results import LLAMA, Figure, Spread, Summary, Turn, summaries
from cassandra_spec.bench.decode.run import DEQUANTISED, Bench
from cassandra_spec.bench.decode.setup import open_turns, prepare
from cassandra_spec.golden import CassandraError
from cassandra_spec.lab.decode.rivals import FLASH
from cassandra_spec.model.packing.calibration import Norms
from cassandra_spec.model.weights.sources import Source
from cassandra_spec.toolkit.plots import Plot
from cassandra_spec.toolkit.tables import text_table

CONTENDERS = (PLAIN, "native exact, 4 bits", "native hybrid, exact, 4 bits", LLAMA, FLASH)
"""Compared contenders: plain decoding, the draft view, the hybrid, and llama.cpp twice."""

WINDOW = 256
"""Tokens per timed window of a long reply."""

_MAX_CONTEXT = 1 << 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class AtContext:
    """The figures of a contender behind prompts of one length."""

    context: int  # tokens of each prompt
    summary: Summary
    to_best_llama: Figure  # ratio to the faster of both settings of llama.cpp, round by round


@dataclasses.dataclass(frozen=True, kw_only=True)
class AlongReply:
    """A contender's speed in one window of a long reply."""

    contender: str
    first: int  # token of the reply
    rate: Spread  # tokens per second
    to_plain: Figure  # ratio to plain decoding, round by round


def check_contexts(contexts: Sequence[int]) -> None:
    """Raise :class:`CassandraError` unless contexts are ascending numbers of tokens."""
    if list(contexts) != sorted(set(contexts)) or not 1 <= contexts[0] <= _MAX_CONTEXT:
        raise CassandraError(f"contexts must be ascending, from 1 on, not {list(contexts)}")


def measure_contexts(
    bench: Bench, source: Source, norms: Norms, contexts: Sequence[int], rounds: int
) -> list[AtContext]:
    """Let all contenders reply behind prompts of each length; turns are kept by length."""
    found = []
    for context in contexts:
        ready = prepare(bench, source, norms, rounds=rounds, prompts=rounds, context=context)
        turns = _run(ready, source, norms, Path(f"context-{context}.jsonl"))
        found += [
            AtContext(
                context=context, summary=each, to_best_llama=_to_best_llama(turns, each.contender)
            )
            for each in summaries(turns, bench.contenders)
        ]
    return found


def measure_reply(
    bench: Bench, source: Source, norms: Norms, tokens: int, rounds: int
) -> tuple[list[AlongReply], list[Summary]]:
    """Let all contenders write replies of ``tokens``, which no stop token ends."""
    bench = dataclasses.replace(bench, max_tokens=tokens)
    ready = prepare(bench, source, norms, rounds=rounds, prompts=rounds, context=None)
    ready = dataclasses.replace(ready, stops=())
    turns = _run(ready, source, norms, Path("reply.jsonl"))
    names = dict.fromkeys(turn.contender for turn in turns)
    windows = [_windows(turns, name) for name in names]
    return [each for part in windows for each in part], summaries(turns, bench.contenders)


def _run(bench: Bench, source: Source, norms: Norms, name: Path) -> list[Turn]:
    turns = open_turns(bench, source, name)
    bench.run(DEQUANTISED, source, norms, turns)
    chosen = {each.name for each in bench.contenders}
    return [turn for turn in turns if turn.contender in chosen]


def _to_best_llama(turns: Sequence[Turn], contender: str) -> Figure:
    best: dict[int, float] = {}
    for turn in turns:
        if turn.contender in (LLAMA, FLASH):
            best[turn.round] = max(turn.rate, best.get(turn.round, 0.0))
    own = [turn for turn in turns if turn.contender == contender and turn.round in best]
    return Spread.of([turn.rate / best[turn.round] for turn in own]) if own else None


def _windows(turns: Sequence[Turn], contender: str) -> list[AlongReply]:
    plain = {turn.round: window_rates(turn) for turn in turns if turn.contender == PLAIN}
    own = {turn.round: window_rates(turn) for turn in turns if turn.contender == contender}
    found = []
    for window in range(min(map(len, own.values()), default=0)):
        pairs = [
            (rates[window], plain[number][window])
            for number, rates in own.items()
            if number in plain and window < len(plain[number])
        ]
        found.append(
            AlongReply(
                contender=contender,
                first=window * WINDOW,
                rate=Spread.of([rates[window] for rates in own.values()]),
                to_plain=Spread.of([mine / theirs for mine, theirs in pairs]) if pairs else None,
            )
        )
    return found


def window_rates(turn: Turn) -> list[float]:
    """Return tokens per second of each whole window of the first reply of a turn."""
    times = (0.0, *turn.times[0]) if turn.times else ()
    ends = range(WINDOW, len(times), WINDOW)
    return [WINDOW / (times[end] - times[end - WINDOW]) for end in ends]


# --- tables and plots ----------------------------------------------------------------------------


def context_lines(found: Sequence[AtContext]) -> str:
    """Return a table: a row for each length and contender."""
    columns = ("context", "contender", "tokens/s", "of plain", "of llama.cpp's better", "identical")
    beside = any(each.summary.to_beside for each in found)
    rows = [
        [
            f"{each.context:,}",
            each.summary.contender,
            spread_cell(each.summary.rate, 1),
            spread_cell(each.summary.to_plain, 2),
            spread_cell(each.to_best_llama, 2),
            f"{each.summary.identical}/{each.summary.compared}" if each.summary.compared else "-",
            *([spread_cell(each.summary.to_beside, 2)] if beside else []),
        ]
        for each in found
    ]
    return text_table((*columns, "of the other checkout") if beside else columns, rows)


def reply_lines(found: Sequence[AlongReply]) -> str:
    """Return a table: a row for each window, a column for each contender."""
    names = list(dict.fromkeys(each.contender for each in found))
    cells: Mapping[tuple[str, int], AlongReply] = {(e.contender, e.first): e for e in found}
    firsts = sorted({each.first for each in found})
    rows = []
    for first in firsts:
        row = [f"{first:,} to {first + WINDOW - 1:,}"]
        for name in names:
            one = cells.get((name, first))
            row.append("-" if one is None else f"{one.rate.median:.0f} ({_median(one.to_plain)})")
        rows.append(row)
    return text_table(("tokens of the reply", *(f"{name} (of plain)" for name in names)), rows)


def _median(figure: Figure) -> str:
    return "-" if figure is None else f"{figure.median:.2f}"


def context_plot(found: Sequence[AtContext], title: str) -> Plot:
    """Plot tokens per second by context."""
    points = [(e.summary.contender, e.context, e.summary.rate.median) for e in found]
    return _speeds("context", title, "tokens of the prompt", points)


def reply_plot(found: Sequence[AlongReply], title: str) -> Plot:
    """Plot tokens per second along a reply."""
    points = [(e.contender, e.first + WINDOW / 2, e.rate.median) for e in found]
    return _speeds("reply", title, "token of the reply", points)


def _speeds(name: str, title: str, across: str, points: Sequence[tuple[str, float, float]]) -> Plot:
    """Plot tokens per second; a point has a contender, a place and a speed."""
    contenders = dict.fromkeys(contender for contender, _, _ in points)
    curves = tuple(
        (each, tuple((at, speed) for contender, at, speed in points if contender == each))
        for each in contenders
    )
    return Plot(
        name=name,
        title=title,
        axis="tokens per second",
        across=across,
        curves=curves,
        linear=True,
    )
