"""Load measurements of other parts of the project from their files."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from cassandra_spec.lab.system.acceptance import MAX_GAMMA, Acceptance
from cassandra_spec.lab.system.costs import Bits, FormatCost
from cassandra_spec.lab.system.device import Device
from cassandra_spec.lab.system.errors import SystemModelError, check_count, check_number, unknown
from cassandra_spec.lab.system.files import HERE, read_json, read_text

SIM = HERE / "records" / "sim.txt"
"""Output of ``make sim`` for SmolLM2-135M: values per cycle, bits per weight."""


def load_measured(path: Path) -> tuple[Acceptance, int]:
    """Acceptance (accepted over drafted) and gamma of ``casspec generate --json``.

    Raises:
        SystemModelError: the file has no such report, or nothing was drafted.
        OSError: the file cannot be read.
    """
    report: Any = read_json(path).get("report")
    if not isinstance(report, dict) or not {"acceptance_rate", "gamma"} <= set(report):
        raise SystemModelError(f"{path} must have a report with acceptance_rate and gamma")
    gamma, rate = report["gamma"], report["acceptance_rate"]
    if rate is None:
        raise SystemModelError(f"{path} must be of a run that drafted tokens")
    try:
        check_count("gamma", gamma, 1, MAX_GAMMA)
        return Acceptance(rate=rate), gamma
    except SystemModelError as error:
        raise SystemModelError(f"{path}: {error}") from None


# --- acceptance by scheme -------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measured:
    """One row of a table of acceptance."""

    scheme: str  # of the draft: ``unary``, ``mx`` or ``exact``
    label: str  # which setting of the scheme
    gamma: int  # drafted tokens in a round
    acceptance: Acceptance  # accepted over drafted tokens
    bits: Bits  # bits per weight in that measurement, mean of linear layers and head
    drafted: float  # mean drafts of a round; ``gamma`` if the file does not say

    @property
    def stops_early(self) -> bool:
        """Return whether rounds end before ``gamma`` drafts more often than ends of replies
        explain.

        The model has rounds of ``gamma`` drafts alone.
        """
        return self.drafted < _FULL_ROUND * self.gamma

    def cost(self, base: FormatCost) -> FormatCost:
        """``base`` with the bits of weights and head as measured; its cache stays."""
        return dataclasses.replace(base, weight=self.bits, head=self.bits)


_FULL_ROUND = 0.9
_ROW = {"scheme", "label", "gamma", "acceptance_rate", "draft_bits", "target_bits"}


def load_acceptance(path: Path) -> list[Measured]:
    """Load the rows of ``casspec bench acceptance --json``.

    A JSON object with one list of rows, each with at least ``scheme``, ``label``, ``gamma``,
    ``acceptance_rate`` (accepted over drafted), ``draft_bits`` and ``target_bits``; where it has
    ``drafted`` and ``accepted``, too, the rate must be theirs.

    Raises:
        SystemModelError: the file has another form.
        OSError: the file cannot be read.
    """
    lists = [value for value in read_json(path).values() if _is_table(value)]
    if len(lists) != 1:
        raise SystemModelError(
            f"{path} must have one list of rows with {', '.join(sorted(_ROW))}, not {len(lists)}"
        )
    rows = [_measured(path, number, row) for number, row in enumerate(lists[0], 1)]
    return list(dict.fromkeys(rows))  # the best gamma of a setting may be there twice


def _is_table(value: Any) -> bool:
    return isinstance(value, list) and any(
        isinstance(row, dict) and "acceptance_rate" in row for row in value
    )


def _measured(path: Path, number: int, row: Any) -> Measured:
    where = f"{path}: row {number}"
    missing = sorted(_ROW - set(row)) if isinstance(row, dict) else sorted(_ROW)
    if missing:
        raise SystemModelError(f"{where} must have {', '.join(missing)}")
    try:
        check_count("gamma", row["gamma"], 1, MAX_GAMMA)
        _check_counts(row)
        return Measured(
            scheme=str(row["scheme"]),
            label=str(row["label"]),
            gamma=row["gamma"],
            acceptance=Acceptance(rate=row["acceptance_rate"]),
            bits=Bits(
                draft=row["draft_bits"],
                whole=row["target_bits"],
                source=f"measured, {path.name}: {row['label']}",
            ),
            drafted=_drafted(row),
        )
    except SystemModelError as error:
        raise SystemModelError(f"{where}: {error}") from None


def _drafted(row: Mapping[str, Any]) -> float:
    """Mean drafts of a round; a row may have the whole report of its run."""
    report = row.get("report")
    if not isinstance(report, dict) or not {"drafted", "rounds"} <= set(report):
        return float(row["gamma"])
    check_count("report.drafted", report["drafted"], 1)
    check_count("report.rounds", report["rounds"], 1)
    return float(report["drafted"] / report["rounds"])


def _check_counts(row: Mapping[str, Any]) -> None:
    drafted, accepted = row.get("drafted"), row.get("accepted")
    if drafted is None or accepted is None:
        return
    check_count("drafted", drafted, 1)
    check_count("accepted", accepted, 0, drafted)
    rate = row["acceptance_rate"]
    check_number("acceptance_rate", rate, zero=True)
    if abs(accepted / drafted - rate) > 0.005:  # a rate that was rounded to two places is right
        raise SystemModelError(
            f"acceptance_rate must be accepted / drafted, {accepted / drafted:.3f}, not {rate!r}"
        )


def pick(rows: Iterable[Measured], scheme: str, gamma: int, label: str | None = None) -> Measured:
    """Return the row of a scheme (by its decoder's name) at a gamma, and by label if several match.

    Raises:
        SystemModelError: no row matches, or several do; the known ones are listed.
    """
    fits = [row for row in rows if row.scheme == scheme]
    if not fits:
        raise SystemModelError(f"acceptance file must have rows of {scheme}, not none")
    if label is not None and all(row.label != label for row in fits):
        unknown("label", label, {row.label for row in fits})
    fits = [row for row in fits if label in (None, row.label)]
    found = [row for row in fits if row.gamma == gamma]
    if not found:
        known = ", ".join(map(str, sorted({row.gamma for row in fits})))
        raise SystemModelError(f"gamma must be one of {known} as measured, not {gamma}")
    if len(found) > 1:
        names = ", ".join(repr(row.label) for row in found)
        raise SystemModelError(f"label must be given, as there are several: {names}")
    (row,) = found
    if row.stops_early:
        raise SystemModelError(
            f"rounds of {row.label!r} must have {gamma} drafts, not {row.drafted:.1f} in the mean"
        )
    return row


# --- rates of the gateware ------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rates:
    """Values per cycle of one decoder, and bits of a weight, in one scheme."""

    draft: float  # values per cycle in drafts
    target: float  # values per cycle in target passes
    draft_bits: float = 0.0  # bits of a weight that a draft reads; 0 if the file does not say
    whole_bits: float = 0.0  # bits of the whole format; 0 if the file does not say


_RATE = re.compile(r"^\s*(\w+)\s+(draft|target)\s+(?:[\d,]+\s+){3}(\d+\.\d+)\s*$", re.M)
_BITS = re.compile(r"^\s*(\w+)(?:\s+\d+\.\d+){7}\s+(\d+\.\d+)\s+(\d+\.\d+)\s*$", re.M)


def load_rates(path: Path = SIM) -> dict[str, Rates]:
    """Load the rates by scheme from the output of ``make sim`` (``make sim | tee FILE``).

    Raises:
        SystemModelError: the file has no table of values per cycle.
        OSError: the file cannot be read.
    """
    text = read_text(path)
    rates: dict[str, dict[str, float]] = {}
    for scheme, mode, rate in _RATE.findall(text):
        rates.setdefault(scheme, {})[mode] = float(rate)
    for scheme, draft, whole in _BITS.findall(text):
        if scheme in rates:
            rates[scheme] |= {"draft_bits": float(draft), "whole_bits": float(whole)}
    if not rates or any(not {"draft", "target"} <= set(found) for found in rates.values()):
        raise SystemModelError(f"{path} must have the table of values/cycle that make sim prints")
    return {scheme: Rates(**found) for scheme, found in rates.items()}


def with_rates(device: Device, rates: Mapping[str, Rates], scheme: str) -> Device:
    """Return a device whose decoders have the measured rates of a scheme (by its decoder's name).

    Raises:
        SystemModelError: the scheme was not measured.
    """
    if scheme not in rates:
        unknown("scheme of the rates", scheme, rates)
    found = rates[scheme]
    return dataclasses.replace(device, draft_rate=found.draft, target_rate=found.target)
