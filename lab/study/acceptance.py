"""Measure the acceptance of drafts by setting, as text and as rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from cassandra_spec.bench.study.acceptance import Interval, Row, best_row, row
from cassandra_spec.bench.study.drafts import Study
from cassandra_spec.lab.study.settings import Setting, figure_settings
from cassandra_spec.toolkit.tables import text_table

PLOT_GAMMA = 5
"""Gamma of the plot of acceptance against bits."""


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
