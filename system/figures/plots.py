"""Plots as SVG, each with the baseline that it must be held to."""

from __future__ import annotations

import dataclasses
import io
import itertools
from collections.abc import Iterator
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from cassandra_spec.system.decoding import cache_tokens, estimate
from cassandra_spec.system.device import load_device
from cassandra_spec.system.figures.beyond import (
    CONTEXTS,
    gain,
    measured_setup,
    measured_setups,
    swings,
    tornado_setups,
)
from cassandra_spec.system.figures.figure_13 import bounds
from cassandra_spec.system.figures.figure_14 import capacity
from cassandra_spec.system.figures.paper import EQUAL, decode_share, paper_cells
from cassandra_spec.system.figures.paper_file import claim, paper
from cassandra_spec.system.workload import Workload, load_model

BEYOND = "more than the memory holds"
"""What hollow marks of curves are called."""

BASELINE = "compressed target, no speculation"
"""What the marks and lines of the honest baseline are called in every legend."""

_COLOURS = ("#4477aa", "#ee9944", "#66aa77", "#aa4477", "#777777")
_BAR = 0.22  # inches for a bar
_STYLE: Any = {
    "svg.hashsalt": "cassandra",  # the same plot is the same file
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bar:
    """One bar."""

    label: str  # to its left; neighbours of one label make a group
    value: float  # where it ends
    start: float = 0.0  # where it begins
    mark: float | None = None  # where the baseline is, or None
    series: str = ""  # what its colour stands for


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plot:
    """Bars below each other, or curves."""

    name: str  # of the file, without its ending
    title: str  # above
    axis: str  # what is measured, with its unit
    bars: tuple[Bar, ...] = ()  # from top to bottom
    curves: tuple[tuple[str, tuple[tuple[float, float], ...]], ...] = ()  # instead of bars
    across: str = ""  # what a curve runs over
    room: tuple[float, ...] = ()  # the largest place of each curve that memory has room for
    lines: tuple[tuple[str, float], ...] = ()  # values with a line, by what they are
    zoom: bool = False  # whether the scale may start above 0

    def figure(self) -> Figure:
        """The plot, drawn."""
        height = 1.5 + _BAR * len(self.bars) if self.bars else 4.0
        figure = Figure(figsize=(8, height), layout="constrained")
        axes = figure.add_subplot()
        axes.set_title(self.title, loc="left", fontsize=11)
        axes.spines[["top", "right"]].set_visible(False)
        if self.bars:
            self._draw_bars(axes)
        else:
            self._draw_curves(axes)
        figure.legend(loc="outside lower left", ncols=2, frameon=False)
        return figure

    def svg(self) -> str:
        """The plot as an SVG document."""
        with mpl.rc_context(_STYLE):
            file = io.StringIO()
            canvas = FigureCanvasSVG(self.figure())
            canvas.print_svg(file, metadata={"Title": self.title, "Date": None})
        return file.getvalue()

    def _draw_bars(self, axes: Axes) -> None:
        places = _places(self.bars)
        names = list(dict.fromkeys(bar.series for bar in self.bars))
        for name, colour in zip(names, itertools.cycle(_COLOURS), strict=False):
            _draw_series(axes, name, colour, self.bars, places)
        marks = [
            (bar.mark, place)
            for bar, place in zip(self.bars, places, strict=True)
            if bar.mark is not None
        ]
        if marks:
            across, down = zip(*marks, strict=True)
            axes.scatter(across, down, 90, "black", marker="|", label=BASELINE, zorder=3)
        for (label, value), style in zip(self.lines, itertools.cycle(("--", ":", "-."))):
            axes.axvline(
                value, linestyle=style, color="#cc3311", label=f"{label}: {_number(value)}"
            )
        groups: dict[str, list[float]] = {}
        for bar, place in zip(self.bars, places, strict=True):
            groups.setdefault(bar.label, []).append(place)
        axes.set_yticks([sum(rows) / len(rows) for rows in groups.values()], list(groups))
        axes.invert_yaxis()
        axes.set_xlabel(self.axis)
        axes.margins(x=0.08, y=0.01)
        if not self.zoom:
            axes.set_xlim(left=0)

    def _draw_curves(self, axes: Axes) -> None:
        for (label, points), colour in zip(self.curves, itertools.cycle(_COLOURS), strict=False):
            axes.plot(*zip(*points, strict=True), ".-", label=label, color=colour)
        for (_, points), most, colour in zip(
            self.curves, self.room, itertools.cycle(_COLOURS), strict=False
        ):
            beyond = [point for point in points if point[0] > most]
            if beyond:
                places = zip(*beyond, strict=True)
                axes.plot(*places, "o", color=colour, markerfacecolor="white", zorder=4)
        if self.room:
            axes.plot([], [], "o", color="black", markerfacecolor="white", label=BEYOND)
        for label, value in self.lines:
            axes.axhline(value, linestyle="--", color="black", label=label)
        axes.set_xscale("log", base=2)
        axes.set_xlabel(self.across)
        axes.set_ylabel(self.axis)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3f}".rstrip("0").rstrip(".")


def _places(bars: tuple[Bar, ...]) -> list[float]:
    """Heights of the bars, with a gap between groups."""
    places, here = [], 0.0
    for before, bar in itertools.pairwise((None, *bars)):
        if before is not None and bar is not None:
            here += 1.0 if before.label == bar.label else 1.4
        places.append(here)
    return places


def _draw_series(
    axes: Axes, name: str, colour: str, bars: tuple[Bar, ...], places: list[float]
) -> None:
    mine = [(bar, place) for bar, place in zip(bars, places, strict=True) if bar.series == name]
    drawn = axes.barh(
        [place for _, place in mine],
        [bar.value - bar.start for bar, _ in mine],
        left=[bar.start for bar, _ in mine],
        height=0.85,
        color=colour,
        label=name or None,
    )
    for bar, patch in zip((bar for bar, _ in mine), drawn, strict=True):
        axes.annotate(
            _number(bar.value),
            (1, patch.get_y() + patch.get_height() / 2),  # a column of its own, beside all lines
            xycoords=("axes fraction", "data"),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=7,
        )


# --- the plots ----------------------------------------------------------------------------------

_SPEED = "decoding, times BF16"


def plots() -> Iterator[Plot]:
    """Every plot of ``casspec system reproduce``."""
    yield _figure_3()
    yield from _figure_12()
    yield _figure_13()
    yield _figure_14()
    yield from _our_schemes()
    yield from _tornados()
    yield from _limits()


def _figure_3() -> Plot:
    device, model = load_device("rtx4090"), load_model("llama3-8b")
    lengths = [(EQUAL.prompt, EQUAL.output), *paper()["lengths"].values()]
    bars = []
    for prompt, output in lengths:
        workload = Workload(prompt=prompt, output=output)
        share = 100 * decode_share(device, model, workload)
        packed = 100 * decode_share(device, model, workload, "cassandra-1")
        bars.append(Bar(label=f"{prompt}:{output}", value=share, mark=packed, series="BF16"))
    return Plot(
        name="figure-3",
        title="Figure 3: share of decoding, Llama3-8B on RTX 4090, by tokens in:out",
        axis="time of decoding, percent of all",
        bars=tuple(bars),
        lines=(("the paper, as many in as out", 100 * claim("decode_share")),),
    )


def _figure_12() -> Iterator[Plot]:
    cells = sorted(paper_cells(), key=lambda cell: (cell.device, cell.model, cell.benchmark))
    for device, group in itertools.groupby(cells, key=lambda cell: cell.device):
        bars = [
            Bar(
                label=f"{cell.answer.setup.model.name}, {cell.benchmark}",
                value=cell.answer.speedup,
                mark=cell.answer.speedup_compressed,
                series=cell.scheme,
            )
            for cell in group
        ]
        yield Plot(
            name=f"figure-12-{device}",
            title=f"Figure 12: {load_device(device).name}, acceptance of Table IV",
            axis=_SPEED,
            bars=tuple(bars),
            lines=(
                ("the paper's lowest", claim("speedup_lowest")),
                ("its highest", claim("speedup_highest")),
            ),
        )


def _figure_13() -> Plot:
    bars = [
        Bar(
            label=bound.name,
            value=bound.best,
            mark=1 / bound.target,
            series="if every drafted token is accepted",
        )
        for bound in bounds()
    ]
    return Plot(
        name="figure-13",
        title="Figure 13: bounds by traffic, DS-Llama-8B, gamma 5",
        axis=_SPEED,
        bars=tuple(bars),
        lines=(
            ("the paper's Lookahead, AIME2025", claim("lookahead_aime")),
            ("GPQA-Diamond", claim("lookahead_gpqa")),
        ),
    )


def _figure_14() -> Plot:
    found = capacity(load_device("rtx4090"))
    names = ("BF16", "Cassandra-1", "EAGLE-3", "Llama-3.2-3B as drafter")
    return Plot(
        name="figure-14",
        title="Figure 14: tokens of Llama3-8B that fit on an RTX 4090",
        axis="tokens in the cache",
        bars=tuple(
            Bar(label=name, value=float(value), mark=float(value) if name == names[1] else None)
            for name, value in zip(names, dataclasses.astuple(found), strict=True)
        ),
        lines=(
            ("the paper's 1.81 times EAGLE-3's", claim("tokens_eagle") * found.eagle),
            ("its 11.59 times a Llama draft's", claim("tokens_llama") * found.llama),
        ),
    )


def _our_schemes() -> Iterator[Plot]:
    for device, model in (
        ("rtx4090", "smollm2-135m"),
        ("npu", "smollm2-135m"),
        ("rtx4090", "llama3-8b"),
    ):
        bars = []
        for setup in measured_setups(device, model):
            answer = estimate(setup)
            bars.append(
                Bar(
                    label=setup.cost.name,
                    value=answer.speedup,
                    mark=answer.speedup_compressed,
                    series=f"gamma {setup.gamma}",
                )
            )
        yield Plot(
            name=f"schemes-{model}-{device}",
            title=f"Our schemes: {load_model(model).name} on {load_device(device).name},"
            " acceptance of SmolLM2",
            axis=_SPEED,
            bars=tuple(bars),
        )


def _tornados() -> Iterator[Plot]:
    for setup in tornado_setups():
        answer = estimate(setup)
        here, plain = answer.speedup, answer.speedup_compressed
        bars = [
            Bar(label=swing.name, start=here, value=value, mark=plain, series=series)
            for swing in swings(setup)
            for series, value in (("first change", swing.low), ("second change", swing.high))
        ]
        yield Plot(
            name=f"tornado-{setup.cost.name}",
            title=f"Sensitivity: {setup.cost.name}, {setup.model.name} on {setup.device.name},"
            f" {here:.3f} as it is",
            axis=_SPEED,
            bars=tuple(bars),
            zoom=True,
        )


def _limits() -> Iterator[Plot]:
    for scheme in ("unary", "exact"):
        setup = measured_setup("rtx4090", "llama3-8b", scheme)
        curves, room = [], []
        tokens = cache_tokens(setup.device, setup.model, setup.cost)
        for batch in (1, 4, 16):
            used = dataclasses.replace(
                setup, workload=dataclasses.replace(setup.workload, batch=batch)
            )
            points = tuple((float(context), gain(used, context)) for context in CONTEXTS)
            curves.append((f"{batch} at once", points))
            room.append(tokens / batch)
        yield Plot(
            name=f"limits-{scheme}",
            title=f"Where speculation pays: {scheme}, {setup.model.name} on {setup.device.name}",
            axis=f"times the {BASELINE}",
            across="tokens in the cache",
            curves=tuple(curves),
            room=tuple(room),
            lines=((BASELINE, 1.0),),
        )
