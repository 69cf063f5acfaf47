"""Area against period of one decoder: every recipe, at several target periods.

``python -m cassandra_spec.synth.report --curve``; docs/results/synthesis.md.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from cassandra_spec.synth.synthesis import RECIPES, Flow, Point
from cassandra_spec.toolkit.tables import markdown_table

PERIODS = (4.0, 4.8)
"""Target periods in ns for each recipe."""


def curve_flows(*, gated: bool) -> list[Flow]:
    """Return the flows of a curve."""
    both = itertools.product(RECIPES, PERIODS)
    return [Flow(recipe=recipe, period=period, gated=gated) for recipe, period in both]


def curve_table(points: Sequence[Point]) -> str:
    """Format the points as the document has them, fastest first; stars mark the Pareto front."""
    rows = [
        [
            point.flow.recipe,
            f"{point.flow.period:.1f}",
            f"{point.shortest_period:.2f}",
            f"{point.gates / 1000:.1f}",
            "" if any(_beats(other, point) for other in points) else "*",
        ]
        for point in sorted(points, key=lambda point: point.shortest_period)
    ]
    return markdown_table(["recipe", "period asked for", "period ns", "kGE", "best"], rows)


def _beats(one: Point, other: Point) -> bool:
    """Return True if a netlist is at most as large and as slow as another one, and not equal."""
    here, there = ((point.gates, point.shortest_period) for point in (one, other))
    return here != there and all(a <= b for a, b in zip(here, there, strict=True))


def curve_plot(points: Sequence[Point], *, title: str) -> str:
    """Draw the points as SVG."""
    from cassandra_spec.toolkit.plots import Plot, described_svg  # needs the extra `plots`

    curves = tuple(
        (f"recipe {recipe}", tuple(sorted(_places(points, recipe)))) for recipe in RECIPES
    )
    plot = Plot(
        name="curve",
        title=title,
        axis="kGE",
        curves=curves,
        across="shortest period, ns",
        linear=True,
    )
    text = "; ".join(
        f"{label}: {', '.join(f'{gates:.1f} kGE at {period:.2f} ns' for period, gates in places)}"
        for label, places in curves
    )
    return described_svg(plot.figure(), title=title, text=text).decode()


def _places(points: Sequence[Point], recipe: str) -> list[tuple[float, float]]:
    mine = (point for point in points if point.flow.recipe == recipe)
    return [(point.shortest_period, point.gates / 1000) for point in mine]
