"""Measure the acceptance of drafts by setting, as text and as rows."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from cassandra_spec.bench.study.acceptance import (
    ACCEPTANCE,
    Counted,
    Ratio,
    count,
    count_best,
    speedup_ratio,
)
from cassandra_spec.bench.study.drafts import Measured, Study
from cassandra_spec.drafting import Report
from cassandra_spec.lab.study.intervals import Interval, bootstrap
from cassandra_spec.lab.study.settings import Setting, figure_settings
from cassandra_spec.toolkit.tables import text_table

PLOT_GAMMA = 5
"""Gamma of the plot of acceptance against bits."""

CONDITIONAL = Ratio(part={"accepted": 1}, whole={"tested": 1})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """A setting at one gamma."""

    label: str
    scheme: str
    gamma: int
    prompts: int
    acceptance: Interval  # accepted / drafted
    conditional: Interval  # accepted / drafted tokens whose predecessors were accepted
    speedup: Interval  # traffic, everything counted
    draft_bits: float  # per weight of linear layers and head
    target_bits: float
    report: Report

    def to_dict(self) -> dict[str, Any]:
        """Plain objects for JSON, with the figures that the system model reads at the top."""
        report = self.report
        return {
            **{k: v for k, v in dataclasses.asdict(self).items() if k != "report"},
            "drafted": report.drafted,
            "accepted": report.accepted,
            "acceptance_rate": report.acceptance_rate,
            "conditional_rate": report.conditional_rate,
            "tokens": report.tokens,
            "report": report.to_dict(),
        }


def row(measured: Measured, gamma: int) -> Row:
    """Return the figures of one setting at one gamma, up to the measured depth."""
    return _row(count(measured, gamma))


def best_row(measured: Measured, depth: int) -> Row:
    """Return the row of the gamma with the least total traffic; on ties, the smaller gamma."""
    return _row(count_best(measured, depth))


def _row(counted: Counted) -> Row:
    setting, replies = counted.measured.setting, counted.replies
    draft_bits, target_bits = counted.bits
    return Row(
        label=setting.name,
        scheme=setting.plan.default.format.scheme,
        gamma=counted.gamma,
        prompts=len(replies),
        acceptance=bootstrap(replies, ACCEPTANCE),
        conditional=bootstrap(replies, CONDITIONAL),
        speedup=bootstrap(replies, speedup_ratio(counted.measured.costs)),
        draft_bits=draft_bits,
        target_bits=target_bits,
        report=counted.report,
    )


def heading(gammas: Sequence[int]) -> str:
    """Return the header of the lines of :func:`measure_settings`."""
    names = ["setting".ljust(20), "draft", "whole"]
    names += [f"accepted, gamma {gamma}".rjust(19) for gamma in gammas]
    names += ["best", "linear", "weights", "all".rjust(17), "plain"]
    return "  ".join(names) + "\n" + "  ".join("-" * len(name) for name in names)


def measure_settings(
    study: Study, settings: Sequence[Setting], gammas: Sequence[int]
) -> Iterator[tuple[str, list[Row]]]:
    """Yield each setting's line and its rows: one per gamma, and the best."""
    for setting in settings:
        measured = study.measure(setting)
        at = [row(measured, gamma) for gamma in gammas]
        best = best_row(measured, study.depth)
        yield _line(at, best), [*at, *([best] if best.gamma not in gammas else [])]


def _line(at: Sequence[Row], best: Row) -> str:
    traffic = best.report.traffic
    cells = [at[0].label.ljust(20), f"{at[0].draft_bits:5.2f}", f"{at[0].target_bits:5.2f}"]
    cells += [_interval(each.acceptance).rjust(19) for each in at]
    cells += [
        f"{best.gamma:4}",
        f"{traffic['linear'].speedup:6.3f}",
        f"{traffic['weights'].speedup:7.3f}",
        _interval(best.speedup).rjust(17),
        f"{traffic['all'].plain_speedup:5.3f}",
    ]
    return "  ".join(cells)


def _interval(figure: Interval) -> str:
    return f"{figure.value:.3f} [{figure.low:.2f}, {figure.high:.2f}]"


def measure_curves(study: Study) -> dict[str, list[Row]]:
    """Measure the settings of the plot, by family."""
    curves: dict[str, list[Row]] = defaultdict(list)
    for family, setting in figure_settings():
        curves[family].append(row(study.measure(setting), PLOT_GAMMA))
    return curves


def curve_table(curves: dict[str, list[Row]]) -> str:
    """Format the result of :func:`measure_curves`."""
    lines = [
        [family, found.label, f"{found.draft_bits:.2f}", _interval(found.acceptance)]
        for family, some in curves.items()
        for found in some
    ]
    return text_table(["curve", "draft", "bits/weight", f"accepted, gamma {PLOT_GAMMA}"], lines)
