"""Plots: well-formed, the same every time, and as long as what they show."""

from __future__ import annotations

import dataclasses
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from cassandra_spec.lab.system.decoding import cache_tokens
from cassandra_spec.lab.system.figures.beyond import measured_setup
from cassandra_spec.lab.system.figures.plots import plots
from cassandra_spec.toolkit.plots import BASELINE, BEYOND, Bar, Plot

EXAMPLE = Plot(
    name="x",
    title="a < b",
    axis="c & d",
    bars=(
        Bar(label="one", value=1.0, mark=0.5, series="first"),
        Bar(label="one", value=1.5, series="second"),
        Bar(label="two", value=2.0, start=3.0, series="first"),
    ),
    lines=(("the paper", 4.0),),
)
CURVES = Plot(
    name="y",
    title="t",
    axis="y",
    across="x",
    curves=(("a curve", ((1.0, 2.0), (2.0, 3.0))),),
    lines=((BASELINE, 1.0),),
)


def axes_of(figure: Figure) -> Axes:
    (axes,) = figure.axes
    return axes


def legend_of(figure: Figure) -> set[str]:
    (legend,) = figure.legends
    return {text.get_text() for text in legend.get_texts()}


def drawn(axes: Axes) -> list[tuple[float, float]]:
    """Return both ends of every bar, from top to bottom."""
    bars = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    bars.sort(key=lambda bar: bar.get_y())
    return [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in bars]


def test_bars_are_as_long_as_their_values() -> None:
    axes = axes_of(EXAMPLE.figure())
    assert drawn(axes) == [(0.0, 1.0), (0.0, 1.5), (3.0, 2.0)]
    assert [text.get_text() for text in axes.texts] == ["1", "2", "1.5"]  # by series
    assert axes.get_xlim()[0] == 0


def test_neighbours_of_one_label_make_a_group() -> None:
    axes = axes_of(EXAMPLE.figure())
    assert [text.get_text() for text in axes.get_yticklabels()] == ["one", "two"]
    first, second, other = sorted(bar.get_y() for bar in axes.patches)  # type: ignore[attr-defined]
    assert second - first < other - second


def test_marks_and_lines_are_in_the_legend() -> None:
    figure = EXAMPLE.figure()
    assert legend_of(figure) == {BASELINE, "the paper: 4", "first", "second"}
    (mark,) = axes_of(figure).collections
    assert np.asarray(mark.get_offsets()).tolist() == [[0.5, 0.0]]


def test_curves_run_through_their_points() -> None:
    figure = CURVES.figure()
    curve, line = axes_of(figure).lines
    assert np.asarray(curve.get_data()).tolist() == [[1.0, 2.0], [2.0, 3.0]]
    assert set(np.asarray(line.get_ydata()).tolist()) == {1.0}
    assert legend_of(figure) == {BASELINE, "a curve"}


def test_points_beyond_the_memory_are_hollow() -> None:
    figure = dataclasses.replace(CURVES, room=(1.5,)).figure()
    curve, beyond, *_ = axes_of(figure).lines
    assert np.asarray(curve.get_data()).tolist() == [[1.0, 2.0], [2.0, 3.0]]
    assert np.asarray(beyond.get_data()).tolist() == [[2.0], [3.0]]
    assert (beyond.get_markerfacecolor(), beyond.get_color()) == ("white", curve.get_color())
    assert BEYOND in legend_of(figure)


def test_the_limits_mark_what_exceeds_the_memory() -> None:
    found = {plot.name: plot for plot in plots() if plot.curves}
    assert set(found) == {"limits-unary", "limits-exact"}
    for plot in found.values():
        setup = measured_setup("rtx4090", "llama3-8b", plot.name.removeprefix("limits-"))
        tokens = cache_tokens(setup.device, setup.model, setup.cost)
        assert list(plot.room) == [tokens, tokens / 4, tokens / 16]
        lines = axes_of(plot.figure()).lines
        hollow = [line for line in lines if str(line.get_markerfacecolor()) == "white"]
        shown = sum(len(np.asarray(line.get_xdata())) for line in hollow)
        assert shown == sum(
            x > most
            for (_, points), most in zip(plot.curves, plot.room, strict=True)
            for x, _ in points
        )
        assert shown > 0


@pytest.mark.parametrize(
    "plot", [plot for plot in plots() if plot.name.startswith("figure-12")], ids=lambda p: p.name
)
def test_no_label_of_a_bar_overlaps_a_line(plot: Plot) -> None:
    figure = plot.figure()
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    axes = axes_of(figure)
    lines = [line.get_window_extent().x0 for line in axes.lines]
    assert lines
    for text in axes.texts:
        box = text.get_window_extent(canvas.get_renderer())
        assert box.x0 > max(lines)
        assert box.x1 <= figure.bbox.x1


@pytest.mark.parametrize("plot", [EXAMPLE, CURVES], ids=lambda plot: plot.name)
def test_a_plot_is_the_same_file_every_time(plot: Plot) -> None:
    text = plot.svg()
    assert plot.svg() == text
    assert ET.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg"
    assert plot.title in "".join(ET.fromstring(text).itertext())


@pytest.mark.parametrize("plot", list(plots()), ids=lambda plot: plot.name)
def test_every_plot_shows_all_it_has_and_a_baseline(plot: Plot) -> None:
    figure = plot.figure()
    axes = axes_of(figure)
    low, high = axes.get_xlim()
    assert len(drawn(axes)) == len(plot.bars)
    assert all(low <= end <= high for bar in drawn(axes) for end in bar)
    assert bool(plot.bars) != bool(plot.curves)
    assert BASELINE in legend_of(figure)


def test_every_plot_has_a_name_of_its_own() -> None:
    names = [plot.name for plot in plots()]
    assert len(set(names)) == len(names)
