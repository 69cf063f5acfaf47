"""Compute the figures of servers under load; format their table and draw them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np

from cassandra_spec.bench.decode.report import spread_cell
from cassandra_spec.bench.decode.results import Figure, Spread
from cassandra_spec.lab.serving.contenders import PLAIN, Contender
from cassandra_spec.lab.serving.run import Load
from cassandra_spec.toolkit.tables import text_table

_MS = 1e3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tail:
    """Median and 95th percentile of times, in seconds."""

    median: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Tail | None:
        """Compute both; None without values."""
        found = list(values)
        if not found:
            return None
        median, high = np.quantile(found, [0.5, 0.95]).tolist()
        return cls(median=median, high=high)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Summary:
    """The figures of a contender at one temperature and number of clients."""

    contender: str
    temperature: float
    clients: int
    rate: Spread  # tokens per second of all replies, over rounds
    to_plain: Figure  # ratios within a round
    to_llama: Figure  # to the first contender of llama.cpp
    first: Tail | None  # seconds to the first text, over replies
    per_token: Tail | None  # seconds per token after the first text, over replies
    between: Tail | None  # seconds between parts with text, over all parts
    prompt_tokens: int
    tokens: int
    drafted: int
    accepted: int
    resident: int  # bytes of memory, in the last round
    compared: int  # replies that are compared with those without drafts
    differing: int


def summaries(loads: Sequence[Load], contenders: Sequence[Contender]) -> list[Summary]:
    """Return figures by temperature, clients and contender."""
    keys = dict.fromkeys((each.temperature, each.clients) for each in loads)
    llama = next((each.name for each in contenders if each.peer), None)
    found = []
    for temperature, clients in sorted(keys):
        here = [e for e in loads if (e.temperature, e.clients) == (temperature, clients)]
        by_name = {c.name: [e for e in here if e.contender == c.name] for c in contenders}
        for each in contenders:
            other = by_name[each.same_as] if each.same_as else []
            if each.peer and temperature:
                other = []
            bases = by_name.get(PLAIN, []), by_name[llama] if llama else []
            found.append(_summary(by_name[each.name], *bases, other))
    return found


def _summary(
    own: Sequence[Load], plain: Sequence[Load], llama: Sequence[Load], other: Sequence[Load]
) -> Summary:
    replies = [reply for load in own for reply in load.replies]
    pairs = [
        (one.text, one.finish_reason) != (two.text, two.finish_reason)
        for load, base in zip(own, other, strict=False)
        for one, two in zip(load.replies, base.replies, strict=True)
    ]
    gaps = [np.diff(reply.times) for reply in replies]
    per_token = (reply.per_token for reply in replies)
    return Summary(
        contender=own[0].contender,
        temperature=own[0].temperature,
        clients=own[0].clients,
        rate=Spread.of([load.rate for load in own]),
        to_plain=_ratio(own, plain),
        to_llama=_ratio(own, llama),
        first=Tail.of(reply.first for reply in replies),
        per_token=Tail.of(value for value in per_token if value is not None),
        between=Tail.of(np.concatenate(gaps).tolist()),
        prompt_tokens=sum(reply.prompt_tokens for reply in replies),
        tokens=sum(reply.tokens for reply in replies),
        drafted=sum(load.drafted for load in own),
        accepted=sum(load.accepted for load in own),
        resident=own[-1].resident,
        compared=len(pairs),
        differing=sum(pairs),
    )


def _ratio(own: Sequence[Load], base: Sequence[Load]) -> Figure:
    """Return the ratio of rates, round by round; None without a base or to itself."""
    if not base or base[0].contender == own[0].contender:
        return None
    return Spread.of([one.rate / two.rate for one, two in zip(own, base, strict=True)])


_HEADER = (
    *("contender", "clients", "tokens/s", "of plain", "of llama.cpp"),
    *("first ms", "token ms", "part ms", "drafted", "accepted", "differing"),
)


def table(found: Sequence[Summary]) -> str:
    """Format a table for each temperature; times are medians, a slash and 95th percentiles."""
    blocks = []
    for temperature in dict.fromkeys(each.temperature for each in found):
        rows = [_cells(each) for each in found if each.temperature == temperature]
        title = f"temperature {temperature:g}" if temperature else "greedy"
        blocks.append(f"{title}\n\n{text_table(_HEADER, rows)}")
    return "\n\n".join(blocks)


def _cells(one: Summary) -> list[str]:
    return [
        one.contender,
        str(one.clients),
        spread_cell(one.rate, 0),
        spread_cell(one.to_plain, 2),
        spread_cell(one.to_llama, 2),
        *(_tail_cell(each) for each in (one.first, one.per_token, one.between)),
        str(one.drafted) if one.drafted else "-",
        f"{one.accepted / one.drafted:.3f}" if one.drafted else "-",
        f"{one.differing}/{one.compared}" if one.compared else "-",
    ]


def _tail_cell(tail: Tail | None) -> str:
    return "-" if tail is None else f"{_MS * tail.median:.0f} / {_MS * tail.high:.0f}"


def faults(found: Sequence[Summary], contenders: Sequence[Contender]) -> int:
    """Count the differing replies of this project's servers, whose drafts must not change any."""
    own = {each.name for each in contenders if not each.peer}
    return sum(each.differing for each in found if each.contender in own)


def draw(found: Sequence[Summary], *, title: str) -> bytes:
    """Draw an SVG: tokens per second by clients, a panel per temperature, quartiles as bars."""
    from matplotlib.figure import Figure as Plot

    from cassandra_spec.toolkit.plots import described_svg

    kinds = list(dict.fromkeys(each.temperature for each in found))
    clients = sorted({each.clients for each in found})
    plot = Plot(figsize=(1 + 4.5 * len(kinds), 4.5), layout="constrained")
    panels = plot.subplots(1, len(kinds), sharey=True, squeeze=False)[0]
    for axes, temperature in zip(panels, kinds, strict=True):
        for name in dict.fromkeys(each.contender for each in found):
            some = [e for e in found if (e.contender, e.temperature) == (name, temperature)]
            rates = [each.rate for each in some]
            errors = [[r.median - r.low for r in rates], [r.high - r.median for r in rates]]
            across = [each.clients for each in some]
            middle = [rate.median for rate in rates]
            axes.errorbar(across, middle, yerr=errors, marker=".", capsize=2, label=name)
        axes.set_xscale("log", base=2)
        axes.set_xticks(clients, [str(each) for each in clients])
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
        axes.set(title=f"temperature {temperature:g}" if temperature else "greedy")
        axes.set_xlabel("clients")
    panels[0].set_ylabel("tokens per second of all clients")
    names = len(dict.fromkeys(each.contender for each in found))
    plot.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=names)
    text = "; ".join(
        f"{each.contender}, {each.clients} clients, temperature {each.temperature:g}:"
        f" {each.rate.median:.0f}"
        for each in found
    )
    return described_svg(plot, title=title, text=f"Tokens per second. {text}.")
