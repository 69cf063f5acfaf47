"""Files of other parts: acceptance by scheme, and what make sim printed."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest

from cassandra_spec.lab.study.acceptance import Row
from cassandra_spec.lab.system.costs import FormatCost, load_format, load_formats
from cassandra_spec.lab.system.device import load_device
from cassandra_spec.lab.system.errors import SystemModelError
from cassandra_spec.lab.system.figures.beyond import measured_setups, our_schemes
from cassandra_spec.lab.system.measured import SIM, load_acceptance, load_rates, pick, with_rates

ROW: dict[str, Any] = {
    "scheme": "exact",
    "label": "exact G64, 4 bits",
    "gamma": 5,
    "drafted": 1000,
    "accepted": 770,
    "acceptance_rate": 0.77,
    "conditional_rate": 0.92,
    "draft_bits": 5.1,
    "target_bits": 11.2,
    "tokens": 1787,
    "prompts": 16,
}


def table(tmp_path: Path, *rows: Any, **changes: Any) -> Path:
    path = tmp_path / "acceptance.json"
    path.write_text(json.dumps({"model": "x", "rows": [{**ROW, **changes}, *rows]}))
    return path


def test_a_row_has_its_acceptance_and_its_bits(tmp_path: Path) -> None:
    (row,) = load_acceptance(table(tmp_path))
    assert (row.scheme, row.label, row.gamma) == ("exact", "exact G64, 4 bits", 5)
    assert (row.acceptance.rate, row.acceptance.kind) == (0.77, "drafted")
    assert (row.bits.draft, row.bits.whole) == (5.1, 11.2)
    assert "acceptance.json" in row.bits.source


def test_a_row_that_is_there_twice_is_one_row(tmp_path: Path) -> None:
    rows = load_acceptance(table(tmp_path, ROW, {**ROW, "gamma": 3}))
    assert [row.gamma for row in rows] == [5, 3]


def test_the_rows_have_the_names_that_the_benchmark_writes() -> None:
    written = {field.name for field in dataclasses.fields(Row)}
    assert {"scheme", "label", "gamma", "draft_bits", "target_bits"} <= written


def test_the_bits_of_a_row_are_those_of_weights_and_head(tmp_path: Path) -> None:
    (row,) = load_acceptance(table(tmp_path))
    base = load_format("exact")
    cost = row.cost(base)
    assert (cost.weight, cost.head, cost.kv) == (row.bits, row.bits, base.kv)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gamma": 9}, "gamma must be an integer, 1 to 8, not 9"),
        ({"acceptance_rate": 1.2}, "acceptance_rate must be accepted / drafted, 0.770, not 1.2"),
        ({"acceptance_rate": 0.78}, "acceptance_rate must be accepted / drafted, 0.770, not 0.78"),
        ({"acceptance_rate": None}, "acceptance_rate must be a number at least 0, not None"),
        ({"drafted": 0}, "drafted must be an integer, at least 1, not 0"),
        ({"accepted": 1001}, "accepted must be an integer, 0 to 1000, not 1001"),
        ({"drafted": None, "acceptance_rate": "x"}, "acceptance must be a number"),
        ({"draft_bits": 12.0}, "draft bits must be at most 11.2, not 12.0"),
    ],
)
def test_wrong_rows(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = table(tmp_path, **changes)
    with pytest.raises(SystemModelError) as error:
        load_acceptance(path)
    assert str(error.value) == f"{path}: row 1: {message}" or message in str(error.value)
    assert f"{path}: row 1: " in str(error.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "must have one list of rows with acceptance_rate, draft_bits, gamma"),
        ({"rows": []}, "must have one list of rows"),
        ({"a": [ROW], "b": [ROW]}, "must have one list of rows"),
        ({"rows": [ROW, 3]}, "row 2 must have acceptance_rate"),
        ({"rows": [{"acceptance_rate": 1}]}, "row 1 must have draft_bits, gamma, label"),
    ],
)
def test_wrong_tables(content: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = tmp_path / "wrong.json"
    path.write_text(json.dumps(content))
    with pytest.raises(SystemModelError) as error:
        load_acceptance(path)
    assert message in str(error.value)
    assert str(path) in str(error.value)


def test_the_row_of_a_scheme_and_gamma(tmp_path: Path) -> None:
    other = {**ROW, "label": "exact G64, 3 bits", "draft_bits": 4.1}
    rows = load_acceptance(table(tmp_path, other, {**other, "gamma": 3}))
    assert pick(rows, "exact", 3).label == "exact G64, 3 bits"
    assert pick(rows, "exact", 5, "exact G64, 4 bits").bits.draft == 5.1
    for scheme, gamma, label, message in (
        ("mx", 5, None, "acceptance file must have rows of mx, not none"),
        ("exact", 4, None, "gamma must be one of 3, 5 as measured, not 4"),
        ("exact", 5, None, "label must be given, as there are several: 'exact G64, 4 bits', 'ex"),
        ("exact", 5, "y", "label must be one of exact G64, 3 bits, exact G64, 4 bits, not 'y'"),
    ):
        with pytest.raises(SystemModelError) as error:
            pick(rows, scheme, gamma, label)
        assert message in str(error.value)


def test_rounds_that_stop_early_are_not_the_models(tmp_path: Path) -> None:
    report = {"drafted": 1000, "rounds": 210}  # some replies end within a round
    short = {**ROW, "scheme": "mx", "label": "sure", "report": {"drafted": 1000, "rounds": 400}}
    rows = load_acceptance(table(tmp_path, short, report=report))
    assert [row.stops_early for row in rows] == [False, True]
    assert pick(rows, "exact", 5).drafted == pytest.approx(1000 / 210)
    with pytest.raises(SystemModelError, match=r"'sure' must have 5 drafts, not 2\.5 in the mean"):
        pick(rows, "mx", 5)
    assert [setup.cost.decoder for setup in measured_setups("npu", "qwen3-4b", rows)] == ["exact"]
    with pytest.raises(SystemModelError, match="must have rows whose rounds have gamma drafts"):
        our_schemes("npu", "qwen3-4b", rows[1:])
    with pytest.raises(SystemModelError, match=r"report\.rounds must be an integer, at least 1"):
        load_acceptance(table(tmp_path, report={"drafted": 1, "rounds": 0}))


def test_our_schemes_are_the_rows_of_the_file(tmp_path: Path) -> None:
    rows = load_acceptance(table(tmp_path, {**ROW, "scheme": "mx", "label": "mx G32"}))
    setups = list(measured_setups("rtx4090", "llama3-8b", rows))
    assert [setup.cost.name for setup in setups] == ["exact G64, 4 bits", "mx G32"]
    assert [setup.cost.decoder for setup in setups] == ["exact", "mx"]
    assert [row[0] for row in our_schemes("npu", "smollm2-135m", rows).rows] == [
        "exact G64, 4 bits",
        "mx G32",
    ]


# --- make sim -------------------------------------------------------------------------------------


def test_rates_and_bits_of_what_make_sim_printed() -> None:
    rates = load_rates()
    assert set(rates) == {"unary", "mx", "exact"}
    for scheme, found in rates.items():
        assert 8 < found.target * 2 <= found.draft * 1.01 <= 16.2
        line = next(
            line for line in SIM.read_text().splitlines() if line.split()[:2] == [scheme, "draft"]
        )
        values, cycles = (int(line.split()[place].replace(",", "")) for place in (2, 4))
        assert found.draft == pytest.approx(values / cycles, abs=0.005)


def test_the_devices_have_the_slowest_rates_that_were_measured() -> None:
    rates = load_rates().values()
    for name in ("rtx4090", "agx-orin"):
        device = load_device(name)
        assert device.draft_rate == min(found.draft for found in rates)
        assert device.target_rate == min(found.target for found in rates)


@pytest.mark.parametrize("scheme", ["unary", "mx", "exact"])
def test_the_formats_have_the_bits_that_were_measured(scheme: str) -> None:
    found, weight = load_rates()[scheme], load_format(scheme).weight
    assert (weight.draft, weight.whole) == (found.draft_bits, found.whole_bits)


RECORD = SIM.with_name("acceptance.txt").read_text(encoding="utf-8")
PRINTED = {
    line[0]: [float(figure) for figure in line[1:]]
    for line in re.findall(
        r"^(\S+) +([\d.]+) +([\d.]+) +([\d.]+) \[.*?\] +([\d.]+) \[", RECORD, re.M
    )
}
HEAD, ALL = 49152 * 576, 134_479_872  # weights of SmolLM2-135M
MEASURED = [cost for cost in load_formats().values() if cost.acceptance]


@pytest.mark.parametrize("cost", MEASURED, ids=lambda cost: cost.name)
def test_the_acceptance_of_a_format_is_what_was_printed(cost: FormatCost) -> None:
    setting = cost.acceptance_source.split(": ")[1].split(";")[0]
    draft, _, three, five = PRINTED[setting]
    assert dict(cost.acceptance) == {3: three, 5: five}
    mean = (cost.weight.draft * (ALL - HEAD) + cost.head.draft * HEAD) / ALL
    assert mean == pytest.approx(draft, abs=0.03)


def test_the_whole_of_a_midpoint_format_is_what_was_printed() -> None:
    cost = load_format("unary-midpoint")
    mean = (cost.weight.whole * (ALL - HEAD) + cost.head.whole * HEAD) / ALL
    assert mean == pytest.approx(PRINTED["unary-30"][1], abs=0.005)


def test_a_device_with_the_rates_of_a_scheme() -> None:
    rates = load_rates()
    device = with_rates(load_device("npu"), rates, "mx")
    assert (device.draft_rate, device.target_rate) == (rates["mx"].draft, rates["mx"].target)
    with pytest.raises(SystemModelError, match="scheme of the rates must be one of exact, mx, un"):
        with_rates(device, rates, "int8")


@pytest.mark.parametrize(
    "text", ["PASS", "unary  draft  1,024  64  70  14.63", "unary draft 1,024 64 70 x"]
)
def test_what_make_sim_did_not_print(text: str, tmp_path: Path) -> None:
    path = tmp_path / "sim.txt"
    path.write_text(text)
    with pytest.raises(SystemModelError, match="must have the table of values/cycle that make sim"):
        load_rates(path)
