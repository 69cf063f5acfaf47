"""Table V: area and power of the decoders, the paper's and ours at its node."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from cassandra_spec.lab.system.device import load_device
from cassandra_spec.lab.system.figures.paper_file import claim, paper
from cassandra_spec.lab.system.figures.silicon import (
    Synthesis,
    classical_factor,
    energy_factor,
    load_reports,
    mm2,
    scan_gates,
)
from cassandra_spec.lab.system.measured import Rates, load_rates
from cassandra_spec.toolkit.tables import Row, Table, difference

MODES = ("draft", "target")


def decoders_needed(rate: float) -> int:
    """Return how many decoders of ``rate`` values per cycle fill the paper's scratchpad with
    BF16.
    """
    return math.ceil(claim("scratchpad") / 2 / rate)


def rate_of(report: Synthesis, rates: dict[str, Rates], mode: str = "draft") -> float:
    """Return the values per cycle of drafts or targets: the lanes times the share measured with
    16.
    """
    return report.lanes * min(getattr(rates[scheme], mode) for scheme in report.schemes) / 16


def area(report: Synthesis, count: int, *, scan: bool = True) -> float:
    """mm2 of some decoders at the paper's node, with scan flip-flops or with the library's."""
    more = scan_gates(report.flip_flops, report.library) if scan else 0
    return mm2(report.gates + more) * count


def power(report: Synthesis, mode: str = "draft", *, classical: bool = False) -> float | None:
    """W of the decoders that fill the scratchpad, at the paper's node and the NPU's clock.

    From energies of values on real weights, else of cycles; None if the report has neither.
    """
    factor = classical_factor(report.library) if classical else energy_factor(report.library)
    if mode in report.values:
        return report.values[mode] * claim("scratchpad") / 2 * factor * load_device("npu").clock
    if report.energy is None:
        return None
    count = decoders_needed(rate_of(report, load_rates(), mode))
    return report.energy * factor * load_device("npu").clock * count


def decoders_of(reports: Sequence[Synthesis] | None = None) -> tuple[float, float | None]:
    """mm2 and W, in drafts, of the decoders that stand for ours beside the paper's.

    Those with most schemes, and of them those nearest to 16 lanes, which were measured.
    """
    known = load_reports() if reports is None else reports
    best = max(known, key=lambda report: (len(report.schemes), -abs(report.lanes - 16)))
    count = decoders_needed(rate_of(best, load_rates()))
    return area(best, count), power(best)


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
    papers = ("the paper's", "not said", f"{each:.1f}", f"{count}")
    figures = ("", f"{theirs['area']:.2f}", "", f"{theirs['power']:.3f}", "", "")
    rows = [_row(report, mode, theirs) for report in reports for mode in MODES]
    return Table(
        title="Table V: decoders that fill the scratchpad, scaled to 28 nm",
        header=(
            "decoder",
            "mode",
            "kGE",
            "number",
            "mm2",
            "mm2, scan",
            "difference",
            "W",
            "difference",
            "W, classical",
        ),
        rows=((*papers, *figures), *rows),
        notes=tuple(_notes(reports)),
    )


def _row(report: Synthesis, mode: str, theirs: dict[str, float]) -> Row:
    count = decoders_needed(rate_of(report, load_rates(), mode))
    silicon, watts = area(report, count), power(report, mode)
    cells = (
        report.name,
        mode,
        f"{report.gates / 1000:.1f}",
        f"{count}",
        f"{area(report, count, scan=False):.2f}",
        f"{silicon:.2f}",
        difference(silicon, theirs["area"]),
    )
    if watts is None:
        return (*cells, "not in it", "", "")
    classical = power(report, mode, classical=True)
    measured = "*" if mode in report.values else ""
    watt = f"{watts:.3f}{measured}"
    return (*cells, watt, difference(watts, theirs["power"]), f"{classical:.3f}")


def _notes(reports: Sequence[Synthesis]) -> Iterator[str]:
    yield (
        f"A gate is {mm2(1e6):.2g} um2. Scan: flip-flops at a price of 28 nm, not the library's."
        f" Number: those that make {claim('scratchpad') / 2:.0f} values a cycle at the measured"
        " rate, of targets at half rate."
    )
    yield (
        "W: energy of a cycle at the report's activity (*: of a value of real weights, in the"
        f" worst scheme), scaled by Stillmaker and Baas, at {load_device('npu').clock / 1e9:.3f}"
        " GHz; classical: by capacitance and square of the voltage. No wires, no clock tree."
    )
    for made in sorted({report.made for report in reports if report.made}):
        names = "; ".join(report.name for report in reports if report.made == made)
        yield f"Made by make synth: {made} ({names})."
    for activity in sorted({report.activity for report in reports if report.activity}):
        yield f"Activity: {activity}."
