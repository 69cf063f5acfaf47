"""Setups from names and files, as a command line gives them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from cassandra_spec.lab.system.acceptance import Acceptance, Kind
from cassandra_spec.lab.system.costs import Bits, FormatCost, load_format
from cassandra_spec.lab.system.decoding import Setup
from cassandra_spec.lab.system.device import load_device
from cassandra_spec.lab.system.errors import SystemModelError
from cassandra_spec.lab.system.measured import (
    load_acceptance,
    load_measured,
    load_rates,
    pick,
    with_rates,
)
from cassandra_spec.lab.system.workload import Workload, load_model


@dataclasses.dataclass(frozen=True, kw_only=True)
class AcceptanceChoice:
    """The source of gamma and acceptance: a rate, a report, a file, or the format's default.

    Raises:
        SystemModelError: two of them are given, or one that needs another.
    """

    gamma: int | None = None
    rate: float | None = None
    kind: Kind = "drafted"
    report: Path | None = None  # has gamma, too
    file: Path | None = None
    label: str | None = None  # of a row of the file

    def __post_init__(self) -> None:
        ways = {"a report": self.report, "an acceptance file": self.file}
        given = [name for name, value in ways.items() if value is not None]
        if self.rate is None and self.kind != "drafted":
            raise SystemModelError(f"acceptance must be given with --kind {self.kind}")
        if given and self.rate is not None:
            raise SystemModelError(f"acceptance must not be given beside {given[0]}, which has one")
        if len(given) > 1:
            raise SystemModelError("an acceptance file must not be given beside a report")
        if self.label is not None and self.file is None:
            raise SystemModelError("label must be given with an acceptance file, not alone")
        if self.report is None and self.gamma is None:
            raise SystemModelError("gamma must be given without a report")

    def resolve(self, cost: FormatCost) -> tuple[FormatCost, Acceptance, int]:
        """Return the format with measured bits, the acceptance and gamma."""
        if self.report is not None:
            return cost, *load_measured(self.report)
        assert self.gamma is not None
        if self.file is not None:
            name = cost.decoder or cost.name
            row = pick(load_acceptance(self.file), name, self.gamma, self.label)
            return row.cost(cost), row.acceptance, self.gamma
        if self.rate is None:
            rate = cost.default_acceptance(self.gamma)
            source = f"of SmolLM2-135M-Instruct, not of this model ({cost.acceptance_source})"
            return cost, Acceptance(rate=rate, source=source if self.gamma else ""), self.gamma
        return cost, Acceptance(rate=self.rate, kind=self.kind), self.gamma


def named_setup(
    device: str,
    model: str,
    scheme: str,
    workload: Workload,
    choice: AcceptanceChoice,
    *,
    rates: Path | None = None,
    bits: Mapping[str, Bits] | None = None,
    window: int | None = None,
) -> Setup:
    """Build a setup from names.

    ``rates`` is a file of values per cycle that replace the decoders' own; ``bits``, by ``weight``
    and ``head``, are those of a packed directory and replace the scheme's.
    """
    cost, acceptance, gamma = choice.resolve(load_format(scheme))
    if bits is not None:
        cost = dataclasses.replace(cost, weight=bits["weight"], head=bits["head"])
    found = load_device(device)
    if rates is not None:
        found = with_rates(found, load_rates(rates), cost.decoder or cost.name)
    return Setup(
        device=found,
        model=load_model(model),
        workload=workload,
        cost=cost,
        acceptance=acceptance,
        gamma=gamma,
        window=window,
    )
