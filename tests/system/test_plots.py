"""Plots: well-formed, and as long as what they show."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from system.plots import Bar, Plot, plots

SVG = "{http://www.w3.org/2000/svg}"


def parts(plot: Plot, tag: str) -> list[ET.Element]:
    return list(ET.fromstring(plot.svg()).iter(f"{SVG}{tag}"))


def widths(plot: Plot) -> list[float]:
    return [float(part.attrib["width"]) for part in parts(plot, "rect") if "class" in part.attrib]


EXAMPLE = Plot(
    name="x",
    title="a < b",
    legend="c & d",
    bars=(Bar(label="one", value=1.0, mark=0.5), Bar(label="two", value=2.0, start=3.0)),
    lines=(4.0,),
)


def test_bars_marks_and_lines_are_on_one_scale() -> None:
    one, two = widths(EXAMPLE)
    assert one == pytest.approx(two, abs=0.02)  # 0 to 1, and 3 to 2 from right to left
    places = [float(part.attrib["x1"]) for part in parts(EXAMPLE, "line")]
    line, mark = places
    (left,) = {
        float(part.attrib["x"])
        for part in parts(EXAMPLE, "rect")
        if part.attrib.get("width") == f"{one:.2f}" and float(part.attrib["y"]) < 60
    }
    assert mark - left == pytest.approx(one / 2, abs=0.02)
    assert line - left == pytest.approx(4 * one, abs=0.05)


def test_both_ends_of_a_bar_are_written() -> None:
    assert [bar.shown for bar in EXAMPLE.bars] == ["1", "3 to 2"]


def test_text_is_escaped() -> None:
    (title, *_), (description,) = parts(EXAMPLE, "title"), parts(EXAMPLE, "desc")
    assert (title.text, description.text) == ("a < b", "c & d")


@pytest.mark.parametrize("plot", list(plots()), ids=lambda plot: plot.name)
def test_every_plot_has_its_bars_inside_and_a_baseline(plot: Plot) -> None:
    root = ET.fromstring(plot.svg())
    assert len(widths(plot)) == len(plot.bars) > 0
    bars = [part for part in parts(plot, "rect") if "class" in part.attrib]
    ends = [float(bar.attrib["x"]) + float(bar.attrib["width"]) for bar in bars]
    assert max(ends) <= float(root.attrib["width"])
    assert "no speculation" in plot.svg() or "without speculation" in plot.svg()


def test_every_plot_has_a_name_of_its_own() -> None:
    names = [plot.name for plot in plots()]
    assert len(set(names)) == len(names)
