"""Plot speed against memory."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cassandra_spec.bench.study.tuning import Score, front
from cassandra_spec.toolkit.plots import described_svg

MARKS = "osD^v<>"
"""The marks of curves, in turn."""


def draw_front(scores: Sequence[Score], *, title: str) -> bytes:
    """Draw an SVG of traffic speed-up against memory, by scheme, with the Pareto front as a line.

    The points of the front have the names of their candidates.
    """
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    for mark, scheme in zip(MARKS, sorted({s.candidate.scheme for s in scores}), strict=False):
        some = [s for s in scores if s.candidate.scheme == scheme]
        axes.plot([s.target_bits for s in some], [s.speedup for s in some], mark, label=scheme)
    best = front(scores)
    axes.step([s.target_bits for s in best], [s.speedup for s in best], where="post", color="grey")
    for number, score in enumerate(best):
        below = number % 2  # neighbours on different sides of the line
        axes.annotate(
            score.candidate.name,
            (score.target_bits, score.speedup),
            xytext=(4, -10 if below else 5),
            textcoords="offset points",
            fontsize=7,
        )
    plain = [s.plain_speedup for s in best]
    axes.plot([s.target_bits for s in best], plain, "k--", label="without speculation")
    axes.set(xlabel="bits per weight stored", ylabel="traffic speed-up over BF16", title=title)
    return finished(figure, axes)


def finished(figure: Figure, axes: Axes) -> bytes:
    """Return the SVG with a title, and a description for readers who cannot see it."""
    axes.grid(alpha=0.3)
    axes.legend()
    title = axes.get_title()
    lines = ", ".join(axes.get_legend_handles_labels()[1])
    text = f"{axes.get_ylabel()} against {axes.get_xlabel()}: {lines}."
    return described_svg(figure, title=title, text=text)
