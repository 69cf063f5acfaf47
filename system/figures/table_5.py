"""Table V: area and power of the decoders, the paper's and ours at its node."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from cassandra_spec.report.tables import Row, Table, difference
from cassandra_spec.system.device import load_device
from cassandra_spec.system.figures.paper_file import claim, paper
from cassandra_spec.system.figures.silicon import (
    Synthesis,
    classical_factor,
    energy_factor,
    load_reports,
    mm2,
)
from cassandra_spec.system.measured import Rates, load_rates


def decoders_needed(rate: float) -> int:
    """Decoders of ``rate`` values per cycle that fill the paper's scratchpad with BF16 values."""
    return math.ceil(claim("scratchpad") / 2 / rate)


def rate_of(report: Synthesis, rates: dict[str, Rates]) -> float:
    """Values per cycle in drafts: the lanes, less what was measured to be lost with 16 of them."""
    return report.lanes * min(rates[scheme].draft for scheme in report.schemes) / 16


def area(report: Synthesis, count: int) -> float:
    """mm2 of some decoders at the paper's node."""
    return mm2(report.gates) * count


def power(report: Synthesis, count: int, *, classical: bool = False) -> float | None:
    """W of some decoders at the paper's node and the NPU's clock; None if the report has none."""
    if report.energy is None:
        return None
    factor = classical_factor(report.library) if classical else energy_factor(report.library)
    return report.energy * factor * load_device("npu").clock * count


def decoders_of(reports: Sequence[Synthesis] | None = None) -> tuple[float, float | None]:
    """mm2 and W of the decoders that stand for ours beside the paper's.

    Those with most schemes, and of them those nearest to 16 lanes, which were measured.
    """
    known = load_reports() if reports is None else reports
    best = max(known, key=lambda report: (len(report.schemes), -abs(report.lanes - 16)))
    count = decoders_needed(rate_of(best, load_rates()))
    return area(best, count), power(best, count)


def table_5(reports: Sequence[Synthesis] | None = None) -> tuple[Table, ...]:
    """Table V: the paper's sums, and our decoders (default: as packaged) scaled to its process."""
    return _of_paper(), _of_ours(load_reports() if reports is None else reports)


def _of_paper() -> Table:
    modules = paper()["table_5"]
    total = sum(part["area"] for part in modules.values())
    rows = [
        (
            name,
            f"{part['area']:.2f}",
            f"{part['ratio']:.1f}",
            f"{100 * part['area'] / total:.1f}",
            f"{part['power']:.3f}",
        )
        for name, part in modules.items()
    ]
    watts = sum(part["power"] for part in modules.values())
    ratio = sum(part["ratio"] for part in modules.values())
    rows.append(("total", f"{total:.2f}", f"{ratio:.1f}", "100.0", f"{watts:.3f}"))
    by_mac = modules["BF16 MAC"]["area"] / modules["BF16 MAC"]["ratio"] * 100
    sram = modules["SRAM"]["area"] - (total - by_mac)
    return Table(
        title="Table V: the paper's areas and ratios against each other",
        header=("module", "mm2", "ratio %, stated", "ratio %, of its areas", "W"),
        rows=tuple(rows),
        notes=(
            f"The ratios are not of the stated areas: 70.3 % for the MACs is a total of"
            f" {by_mac:.1f} mm2, as if the SRAM had {sram:.1f} mm2.",
        ),
    )


def _of_ours(reports: Sequence[Synthesis]) -> Table:
    theirs, count = paper()["table_5"]["Cassandra Decoder"], int(claim("decoders"))
    each = theirs["area"] / count / mm2(1000)
    papers = ("the paper's", f"{each:.1f}", "in it", f"{count}")
    figures = (f"{theirs['area']:.2f}", "", f"{theirs['power']:.3f}", "", "")
    rates = load_rates()
    rows = [_row(report, decoders_needed(rate_of(report, rates)), theirs) for report in reports]
    return Table(
        title="Table V: decoders that fill the scratchpad, scaled to 28 nm",
        header=(
            "decoder",
            "kGE",
            "buffers kGE",
            "number",
            "mm2",
            "difference",
            "W",
            "difference",
            "W, classical",
        ),
        rows=((*papers, *figures), *rows),
        notes=tuple(_notes(reports)),
    )


def _row(report: Synthesis, count: int, theirs: dict[str, float]) -> Row:
    silicon, watts = area(report, count), power(report, count)
    cells = (
        report.name,
        f"{report.gates / 1000:.1f}",
        f"{report.buffers / 1000:.1f}",
        f"{count}",
        f"{silicon:.2f}",
        difference(silicon, theirs["area"]),
    )
    if watts is None:
        return (*cells, "not in it", "", "")
    classical = power(report, count, classical=True)
    return (*cells, f"{watts:.3f}", difference(watts, theirs["power"]), f"{classical:.3f}")


def _notes(reports: Sequence[Synthesis]) -> Iterator[str]:
    yield (
        f"A gate is {mm2(1e6):.2g} um2. Number: those that make"
        f" {claim('scratchpad') / 2:.0f} values a cycle in drafts at the measured rate."
    )
    yield (
        f"W: energy of a cycle at the report's activity, scaled by Stillmaker and Baas, at"
        f" {load_device('npu').clock / 1e9:.3f} GHz; classical: by capacitance and square of the"
        " voltage. No leakage."
    )
    for made in sorted({report.made for report in reports if report.made}):
        yield f"Made by make synth: {made}."
    for activity in sorted({report.activity for report in reports if report.activity}):
        yield f"Activity: {activity}."
