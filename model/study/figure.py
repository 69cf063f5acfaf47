"""Acceptance against the bits of the draft, as a plot (the paper's Figure 7)."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from model.study.acceptance import Row

__all__ = ["draw"]

_MARKS = "osD^v<>"


def draw(curves: Mapping[str, Sequence[Row]], *, title: str) -> bytes:
    """An SVG with one curve for each family; bars are the intervals over prompts."""
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
    axes.grid(alpha=0.3)
    axes.legend()
    out = io.BytesIO()
    figure.savefig(out, format="svg", metadata={"Date": None})
    return out.getvalue()
