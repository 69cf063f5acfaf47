"""Times of an earlier process: a new one plans by them, and nothing wrong with a file stops it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cassandra_spec.drafting import MeasuredSeconds
from cassandra_spec.native.rounds.hints import hint_path, processor, read_hint, write_hint
from tests.drafting.test_policy import drafted

CPUINFO = {
    "x86-64": (
        "model name\t: A model: 2\nprocessor\t: 1\nmodel name\t: A model: 2\n",
        "A model: 2",
    ),
    "arm": ("CPU part\t: 0xd0b\nprocessor\t: 1\nCPU part\t: 0xd05\n", "0xd05 0xd0b"),
}


@pytest.mark.parametrize("machine", CPUINFO)
def test_a_processor_is_named_by_its_model_or_its_cores(machine: str, tmp_path: Path) -> None:
    text, expected = CPUINFO[machine]
    (tmp_path / "cpuinfo").write_text(text)
    assert processor(tmp_path / "cpuinfo") == expected


def test_a_processor_without_a_description_has_a_name(tmp_path: Path) -> None:
    assert processor(tmp_path / "missing")


def measured() -> MeasuredSeconds:
    costs = MeasuredSeconds()
    for position, rows in ((100, 1), (3000, 4), (6000, 8)):
        costs.observe([position], [drafted(rows - 1, 0, draft=0.01, verify=0.02 + 0.001 * rows)])
    return costs


def test_a_new_process_knows_the_times_of_the_last(tmp_path: Path) -> None:
    before, after = measured(), MeasuredSeconds()
    write_hint(tmp_path / "folder" / "times.json", before.state())
    found = read_hint(tmp_path / "folder" / "times.json")
    assert found is not None
    after.begin(found)
    for position in (0, 100, 8000):
        for rows in (1, 4, 6, 8):
            assert after.verify([position], rows) == pytest.approx(before.verify([position], rows))
            assert after.draft([position], rows) == pytest.approx(before.draft([position], rows))
    assert not after.wants_plain(1, 100)
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["times.json"]


def test_nothing_measured_is_a_hint_of_nothing(tmp_path: Path) -> None:
    write_hint(tmp_path / "times.json", MeasuredSeconds().state())
    found = read_hint(tmp_path / "times.json")
    costs = MeasuredSeconds()
    costs.begin(found or {})
    assert costs.verify([0], 1) == MeasuredSeconds().verify([0], 1)


def spoilt(path: str, value: Any) -> str:
    body = measured().state()
    *outer, last = path.split(".")
    place: Any = body
    for name in outer:
        place = place[int(name) if name.isdigit() else name]
    place[int(last) if last.isdigit() else last] = value
    return json.dumps(body)


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "null", "3", '{"draft": {}}', "[" * 100_000),
        spoilt("verify", None),
        spoilt("verify.growth", [1.0]),
        spoilt("verify.growth.0", 0.0),
        spoilt("verify.growth.1", -1.0),
        spoilt("verify.times", [[1, 2]]),
        *(spoilt("verify.times.0.2", each) for each in (0, -1.0, 1e9, float("nan"), "1", True)),
        *(spoilt("draft.times.0.0", each) for each in (0, 1.5, 17, 10**400)),
        spoilt("draft.times.0.1", -1),
    ],
)
def test_a_damaged_hint_is_ignored(text: str, tmp_path: Path) -> None:
    path = tmp_path / "times.json"
    path.write_text(text, encoding="utf-8")
    assert read_hint(path) is None


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_ignored(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = tmp_path_factory.mktemp("hints") / "times.json"
    path.write_bytes(data)
    assert read_hint(path) is None


def test_a_hint_that_others_can_write_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "times.json"
    write_hint(path, measured().state())
    assert read_hint(path) is not None
    path.chmod(0o666)
    assert read_hint(path) is None
    assert read_hint(tmp_path / "missing.json") is None


def test_a_place_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    write_hint(tmp_path / "file" / "times.json", measured().state())
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_hints_depend_on_their_parts_and_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    assert hint_path("model") is None  # conftest.py turns them off
    monkeypatch.setenv("CASSANDRA_HINTS", "1")
    paths = {hint_path("model", 2), hint_path("model", 3), hint_path("other", 2)}
    assert None not in paths
    assert len(paths) == 3
    assert hint_path("model", 2) in paths
