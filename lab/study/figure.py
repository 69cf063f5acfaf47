"""Plot acceptance against the bits of the draft (the paper's Figure 7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from cassandra_spec.bench.study.figure import MARKS, finished
from cassandra_spec.lab.study.acceptance import Row


def draw(curves: Mapping[str, Sequence[Row]], *, title: str) -> bytes:
    """Draw an SVG with one curve per family; bars are the intervals over prompts."""
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    for mark, (family, rows) in zip(MARKS, curves.items(), strict=False):
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
    return finished(figure, axes)
