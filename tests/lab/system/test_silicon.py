"""Table V: what a synthesis report becomes at the paper's node, by hand."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from cassandra_spec.golden.format import SCHEMES
from cassandra_spec.lab.system.device import load_device
from cassandra_spec.lab.system.errors import SystemModelError
from cassandra_spec.lab.system.figures.silicon import (
    REPORTS,
    classical_factor,
    energy_factor,
    load_reports,
    mm2,
)
from cassandra_spec.lab.system.figures.table_5 import area, decoders_needed, power, rate_of, table_5
from cassandra_spec.lab.system.measured import load_rates
from cassandra_spec.synth.report import DEFAULT_CONFIGS

CONTENT: dict[str, Any] = {
    "config": {"lanes": 8, "schemes": ["mx"]},
    "speed_total": 20000.0,
    "flip_flops": 1000,
    "period": 5.0,
    "power": {"internal": 0.3, "switching": 0.1, "leakage": 0.2, "activity": "assumed"},
    "made": {"date": "today", "library": "osu018_stdcells"},
}


def report(tmp_path: Path, **changes: Any) -> Path:
    path = tmp_path / "report.json"
    kept = {key: value for key, value in {**CONTENT, **changes}.items() if value is not ...}
    path.write_text(json.dumps(kept))
    return path


def test_a_report_by_hand(tmp_path: Path) -> None:
    (found,) = load_reports(report(tmp_path))
    assert (found.name, found.lanes, found.schemes) == ("8 lanes, mx", 8, ("mx",))
    assert (found.gates, found.flip_flops) == (20000, 1000)
    assert found.energy == pytest.approx(0.4 * 5e-9)  # leakage takes time, not cycles
    assert area(found, 64, scan=False) == pytest.approx(20000 * 0.5 * 64 / 1e6)
    assert area(found, 64) == pytest.approx((20000 + 1000 * (6 - 4)) * 0.5 * 64 / 1e6)
    watts = 0.4 * 5e-9 * energy_factor("osu018_stdcells") * load_device("npu").clock * 64
    assert power(found) == pytest.approx(watts / 64 * decoders_needed(15.9 / 2))


def test_the_energy_of_stillmaker_and_baas_by_hand() -> None:
    """The 32 nm factor at .9 V is the .4571 of the erratum's own example; 28 nm is below it."""
    at_180 = 24.64 * 1.8 - 17.98
    at_32 = 0.8367 * 0.9**2 - 0.4341 * 0.9 + 0.1701
    at_20 = 0.373 * 0.9**2 - 0.1582 * 0.9 + 0.04104
    assert at_32 == pytest.approx(0.4571, abs=5e-5)
    factor = energy_factor("osu018_stdcells")
    assert at_20 / at_180 < factor < at_32 / at_180
    # ln(32/28) / ln(32/20) = .2841 of the way
    assert factor * at_180 == pytest.approx(at_32**0.7159 * at_20**0.2841, rel=1e-4)


def test_the_classical_rule_by_hand() -> None:
    assert classical_factor("osu018_stdcells") == pytest.approx(28 / 180 * (0.9 / 1.8) ** 2)


def test_a_library_nobody_knows_lists_the_known_ones(tmp_path: Path) -> None:
    (found,) = load_reports(report(tmp_path, made={"library": "sky130"}))
    with pytest.raises(SystemModelError, match="library must be one of osu018_stdcells, not 'sky"):
        power(found)


def test_the_papers_decoder_in_gates() -> None:
    assert mm2(88_000) * 40 == pytest.approx(1.76)
    (row,) = (row for row in table_5()[1].rows if row[0] == "the paper's")
    assert row[:6] == ("the paper's", "not said", "88.0", "40", "", "1.76")


def test_decoders_are_counted_by_their_lanes_and_the_slowest_scheme(tmp_path: Path) -> None:
    (found,) = load_reports(report(tmp_path))
    rates = load_rates()
    assert rate_of(found, rates) == pytest.approx(rates["mx"].draft / 2)
    assert rate_of(found, rates, "target") == pytest.approx(rates["mx"].target / 2)
    both = dataclasses.replace(found, schemes=("mx", "unary"))
    assert rate_of(both, rates) == pytest.approx(rates["unary"].draft / 2)
    assert decoders_needed(8.0) == 64


def test_another_report_is_all_that_a_smaller_decoder_needs(tmp_path: Path) -> None:
    table = table_5(load_reports(report(tmp_path)))[1]
    rows = [row for row in table.rows if row[0] != "the paper's"]
    for row, mode, rate in zip(rows, ("draft", "target"), (15.9, 7.95), strict=True):
        assert row[:4] == ("8 lanes, mx", mode, "20.0", f"{decoders_needed(rate / 2)}")
    assert "Made by make synth: date today, library osu018_stdcells (8 lanes, mx)." in table.notes
    assert "Activity: assumed." in table.notes


def test_energies_of_values_come_before_those_of_cycles(tmp_path: Path) -> None:
    values = {"draft": {"mx": 1e-12, "exact": 2e-12}}
    (found,) = load_reports(report(tmp_path, values=values, flow={"gated": True}))
    assert found.name == "8 lanes, mx, gated"
    # 512 values a cycle of the worst scheme
    watts = 2e-12 * 512 * energy_factor("osu018_stdcells") * load_device("npu").clock
    assert power(found) == pytest.approx(watts)
    draft, target = table_5([found])[1].rows[1:]
    assert draft[7] == f"{watts:.3f}*"
    assert target[7] == f"{power(found, 'target'):.3f}"  # targets were not measured


def test_a_report_without_power_says_so(tmp_path: Path) -> None:
    table = table_5(load_reports(report(tmp_path, power=...)))[1]
    assert table.rows[-1][-3:] == ("not in it", "", "")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"speed_total": ...}, "must be a report of make synth: KeyError('speed_total')"),
        ({"config": 3}, "must be a report of make synth: TypeError"),
        ({"speed_total": -1.0}, "speed_total must be a number above 0, not -1.0"),
        ({"config": {"lanes": 0, "schemes": ["mx"]}}, "lanes must be an integer, at least 1"),
        ({"power": {"internal": 1.0}}, "must be a report of make synth: KeyError('switching')"),
    ],
)
def test_wrong_reports(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = report(tmp_path, **changes)
    with pytest.raises(SystemModelError) as error:
        load_reports(path)
    assert message in str(error.value)
    assert str(path) in str(error.value)


def test_a_folder_without_reports(tmp_path: Path) -> None:
    with pytest.raises(SystemModelError, match=r"must have reports of make synth \(.json\), not"):
        load_reports(tmp_path)


def test_the_reports_of_the_package_are_those_of_make_synth() -> None:
    found = load_reports()
    wanted = {(config.lanes, config.schemes) for config in DEFAULT_CONFIGS}
    assert {(one.lanes, one.schemes) for one in found} == wanted
    assert (16, SCHEMES) in wanted
    for path in REPORTS.glob("*.json"):
        content = json.loads(path.read_text())
        assert {"date", "yosys", "opensta", "library"} <= set(content["made"])
    assert all(one.energy and one.activity for one in found)
