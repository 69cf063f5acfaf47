"""The page that the main job leaves: everything that it found, in one file."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cassandra_spec.toolkit.page import Page
from cassandra_spec.toolkit.plots import described_svg
from cassandra_spec.toolkit.tables import Table
from cassandra_spec.verif.decoder.diagrams import segment_diagram
from cassandra_spec.verif.end_to_end.key_values import KeyValueCheck, key_value_table
from cassandra_spec.verif.end_to_end.results import STREAMS, weight_tables
from cassandra_spec.verif.end_to_end.weights import LOSSLESS, RECIPES, Checked, describe
from cassandra_spec.verif.library.coverage import report_saved
from cassandra_spec.verif.library.drawing import picture

PAGE = Path(__file__).resolve().parents[2] / "build" / "sim" / "report.html"
"""Path of the page."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Replies:
    """Replies to a prompt with original weights and with those of the gateware."""

    prompt: str
    original: str
    gateware: str
    same: bool  # token for token


@dataclasses.dataclass(kw_only=True)
class Run:
    """The results of a run so far."""

    model: str
    weights: dict[str, Checked] = dataclasses.field(default_factory=dict)  # by scheme
    exponents: str = ""  # a line about them
    replies: Replies | None = None
    key_values: Sequence[KeyValueCheck] = ()
    verdict: str = ""

    @property
    def good(self) -> bool:
        """Return whether every bit was right."""
        totals = {scheme: checked.total for scheme, checked in self.weights.items()}
        right = all(total.mismatches == 0 for total in totals.values())
        kept = all(total.lost == 0 for scheme, total in totals.items() if scheme in LOSSLESS)
        same = self.replies is None or self.replies.same
        return right and kept and same and all(check.good for check in self.key_values)


def page(run: Run) -> str:
    """Format a run as an HTML page."""
    out = Page(f"{run.model} through the gateware")
    out.paragraph(run.verdict)
    if run.weights:
        _add_weights(out, run)
    if run.replies is not None:
        _add_replies(out, run.replies)
    out.heading("Keys and values")
    _add_table(out, key_value_table(run.key_values))
    out.heading("Coverage of the suites")
    out.paragraph("Bins of the plan that the suites under build/coverage have hit.")
    out.text(report_saved())
    out.heading("One segment, cycle by cycle")
    out.plot("Traced in Amaranth's simulator, not in this run.", picture(segment_diagram()))
    return out.html()


def _add_table(out: Page, table: Table) -> None:
    out.table(table.title, table.header, table.rows)


def _add_weights(out: Page, run: Run) -> None:
    out.heading("Weights")
    for table in weight_tables(run.weights):
        _add_table(out, table)
    out.paragraph(run.exponents)
    for scheme, checked in run.weights.items():
        caption = f"Scheme {scheme}: {describe(RECIPES[scheme])}. Tensors in the order of the file."
        out.plot(caption, _plot(scheme, checked).decode())


def _add_replies(out: Page, replies: Replies) -> None:
    out.heading("Replies")
    out.paragraph(f"Prompt: {replies.prompt}")
    out.beside({"Original weights": replies.original, "Gateware weights": replies.gateware})
    out.paragraph("The tokens are identical." if replies.same else "The tokens DIFFER.")


def _plot(scheme: str, checked: Checked) -> bytes:
    """Plot values per cycle and bits by stream, for each tensor."""
    from matplotlib.figure import Figure  # slow to import

    edges = np.arange(len(checked.checks) + 1)
    figure = Figure(figsize=(9, 5), layout="constrained")
    rates, bits = figure.subplots(2, 1, sharex=True)
    for mode in ("draft", "target"):
        costs = [getattr(check, mode).values_per_cycle for check in checked.checks.values()]
        rates.stairs(costs, edges, label=mode)
    rates.set(ylabel="values per cycle", ylim=(0, None), title=f"scheme {scheme}")
    below = np.zeros(len(checked.bits))
    for stream in (*STREAMS, "padding"):
        share = np.array([own.get(stream, 0.0) for own in checked.bits.values()])
        if share.any():
            bits.stairs(below + share, edges, baseline=below, fill=True, label=stream)
            below += share
    bits.set(ylabel="bits per weight", xlabel="tensor", xlim=(0, edges[-1]))
    for axes in (rates, bits):
        axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
        axes.grid(alpha=0.3)
    total, mean = checked.total, checked.mean_bits
    text = (
        f"{len(checked.checks)} tensors; on average {total.draft.values_per_cycle:.2f} draft and"
        f" {total.target.values_per_cycle:.2f} target values in a cycle,"
        f" {mean['total']:.2f} bits per weight."
    )
    return described_svg(figure, title=f"Scheme {scheme} by tensor", text=text)
