"""Plots: acceptance against the bits of the draft (the paper's Figure 7), speed against memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cassandra_spec.bench.study.acceptance import Row
from cassandra_spec.bench.study.tuning import Score, front
from cassandra_spec.toolkit.plots import described_svg

_MARKS = "osD^v<>"


def draw(curves: Mapping[str, Sequence[Row]], *, title: str) -> bytes:
    """Draw an SVG with one curve per family; bars are the intervals over prompts."""
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    for mark, (family, rows) in zip(_MARKS, curves.items(), strict=False):
        ordered = sorted(rows, key=lambda row: row.draft_bits)
        values = [row.acceptance.value for row in ordered]
        below = [row.acceptance.value - row.acceptance.low for row in ordered]
        above = [row.acceptance.high - row.acceptance.value for row in ordered]
        axes.errorbar(
            [row.draft_bits for row in ordered],
            values,
            yerr=[below, above],
            marker=mark,
            capsize=3,
            label=family,
        )
    axes.set(xlabel="bits per weight that the draft reads", title=title, ylim=(0, 1))
    axes.set_ylabel("accepted / drafted")
    return _finished(figure, axes)


def draw_front(scores: Sequence[Score], *, title: str) -> bytes:
    """Draw an SVG of traffic speed-up against memory, by scheme, with the Pareto front as a line.

    The points of the front have the names of their candidates.
    """
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    for mark, scheme in zip(_MARKS, sorted({s.candidate.scheme for s in scores}), strict=False):
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
    return _finished(figure, axes)


def _finished(figure: Figure, axes: Axes) -> bytes:
    """Return the SVG with a title, and a description for readers who cannot see it."""
    axes.grid(alpha=0.3)
    axes.legend()
    title = axes.get_title()
    lines = ", ".join(axes.get_legend_handles_labels()[1])
    text = f"{axes.get_ylabel()} against {axes.get_xlabel()}: {lines}."
    return described_svg(figure, title=title, text=text)
