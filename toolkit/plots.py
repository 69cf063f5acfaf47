"""Draw bars and curves as SVG, with a description for readers who cannot see them."""

from __future__ import annotations

import dataclasses
import io
import itertools
from collections.abc import Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

BEYOND = "more than the memory holds"
"""Legend of hollow marks."""

BASELINE = "compressed target, no speculation"
"""Legend of the marks and lines of the baseline."""

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
    """A bar."""

    label: str  # left of the bar; neighbours with the same label form a group
    value: float  # right end
    start: float = 0.0  # left end
    mark: float | None = None  # position of the baseline, or None
    series: str = ""  # group of bars with one colour


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plot:
    """A plot of horizontal bars or of curves."""

    name: str  # of the file, without suffix
    title: str  # above
    axis: str  # label of the values' axis, with the unit
    bars: tuple[Bar, ...] = ()  # from top to bottom
    curves: tuple[tuple[str, tuple[tuple[float, float], ...]], ...] = ()  # instead of bars
    across: str = ""  # label of the horizontal axis of curves
    room: tuple[float, ...] = ()  # last point of each curve that fits the memory
    lines: tuple[tuple[str, float], ...] = ()  # labelled lines at values
    zoom: bool = False  # the scale may start above 0
    linear: bool = False  # horizontal scale of curves: linear, not logarithmic

    def figure(self) -> Figure:
        """Draw the plot."""
        height = 1.5 + _BAR * len(self.bars) if self.bars else 4.0
        figure = Figure(figsize=(8, height), layout="constrained")
        axes = figure.add_subplot()
        axes.set_title(self.title, loc="left", fontsize=11)
        axes.spines[["top", "right"]].set_visible(False)
        if self.bars:
            self._draw_bars(axes)
        else:
            self._draw_curves(axes)
        if axes.get_legend_handles_labels()[0]:
            figure.legend(loc="outside lower left", ncols=2, frameon=False)
        return figure

    def svg(self) -> str:
        """Return the plot as an SVG document."""
        with mpl.rc_context(_STYLE):
            file = io.StringIO()
            canvas = FigureCanvasSVG(self.figure())
            canvas.print_svg(file, metadata={"Title": self.title, "Date": None})
        return _with_description(file.getvalue(), self.description())

    def description(self) -> str:
        """Describe the values of the plot in words, for readers who do not see it."""
        bars = [
            f"{bar.label} {bar.series}".strip() + f": {_number(bar.value)}" for bar in self.bars
        ]
        curves = [
            f"{name}: " + ", ".join(f"{_number(y)} at {_number(x)}" for x, y in points)
            for name, points in self.curves
        ]
        return f"{self.axis}. {'; '.join(bars + curves)}."

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
        if not self.linear:
            axes.set_xscale("log", base=2)
        axes.set_xlabel(self.across)
        axes.set_ylabel(self.axis)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3f}".rstrip("0").rstrip(".")


def _places(bars: tuple[Bar, ...]) -> list[float]:
    """Return the vertical positions of the bars, with a gap between groups."""
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


def described_svg(figure: Figure, *, title: str, text: str) -> bytes:
    """Return a plot as SVG with title and description; the same plot gives the same file."""
    out = io.BytesIO()
    with mpl.rc_context(  # text stays text
        {"svg.hashsalt": "cassandra", "svg.fonttype": "none", "font.sans-serif": ["DejaVu Sans"]}
    ):
        figure.savefig(out, format="svg", metadata={"Title": title, "Date": None})
    return _with_description(out.getvalue().decode(), text).encode()


def _with_description(svg: str, text: str) -> str:
    head, mark, rest = svg.partition("</title>")
    return f"{head}{mark}\n <desc>{escape(text)}</desc>{rest}"


def draw_bars(names: Sequence[str], columns: Mapping[str, Sequence[float]], *, title: str) -> bytes:
    """Draw an SVG with one bar per name and column, and a line at 1."""
    width = 3 * len(columns) + 0.09 * max(map(len, names), default=0)
    figure = Figure(figsize=(width, 1 + 0.35 * len(names)), layout="constrained")
    panels = figure.subplots(1, len(columns), sharey=True)
    for axes, (label, values) in zip(panels, columns.items(), strict=True):
        axes.barh(range(len(names)), values)
        axes.set(xlabel=label, yticks=list(range(len(names))), yticklabels=names)
        axes.axvline(1.0, color="grey", linestyle="--")
    axes.invert_yaxis()  # of all
    figure.suptitle(title)
    rows = zip(names, *columns.values(), strict=True)
    text = "; ".join(f"{name}: {', '.join(f'{v:.2f}' for v in found)}" for name, *found in rows)
    return described_svg(figure, title=title, text=f"{', '.join(columns)}. {text}.")
