"""Line, branch and toggle coverage: what is counted, merged and written."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cassandra_spec.verif.tools import linecov
from cassandra_spec.verif.tools.runner import run_suite
from tests.house.test_runner import TESTBENCH, Adder

needs_tool = pytest.mark.skipif(
    shutil.which(linecov.TOOL) is None,
    reason="verilator_coverage is not on PATH (Debian: apt install verilator)",
)

NEVER = r"    if (\$auto$verilog_backend.cc:2355:dump_module$1 ) begin end"


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the counts of two runs of an adder; only the second resets it.

    The second has the names of the bulk harness: another folder, and a root above the top.
    """
    build = tmp_path_factory.mktemp("adder")
    folder = build / "counts"
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("COUNTS_DIR", str(folder))
        for test in ("adds", "resets"):
            run_suite(Adder(), TESTBENCH, "adder", build_dir=build, testcase=test, waves=False)
    for counts in folder.glob("*.dat"):
        text = counts.read_text("latin1")
        if not seen(text, "\x01o\x02rst:0->1"):
            continue
        text = text.replace("\x01h\x02adder", "\x01h\x02TOP.adder")
        counts.write_text(text.replace(str(build), "/elsewhere"), "latin1")
    return folder


def seen(counts: str, point: str) -> int:
    """Return the count of the one point that contains a text."""
    (line,) = [line for line in counts.splitlines() if point in line]
    return int(line.rpartition(" ")[2])


@needs_tool
def test_counts_of_both_harnesses_add_up(counted: Path) -> None:
    (source,) = counted.glob("*.v")
    runs = [path.read_text("latin1") for path in counted.glob("*.dat")]
    assert len(runs) == 2
    sums = linecov.merged(source)
    for point in ("\x01o\x02a[0]:0->1", "\x01o\x02rst:0->1", "\x01o\x02total[3]:1->0"):
        assert seen(sums, point) == sum(seen(run, point) for run in runs)
    together, points = linecov.totals(sums)
    for run in runs:
        alone, same = linecov.totals(run)
        assert same == points
        assert alone["toggle"] < together["toggle"]  # each has seen what the other has not


@needs_tool
def test_a_top_has_a_line_an_lcov_file_and_an_annotated_source(counted: Path) -> None:
    (source,) = counted.glob("*.v")
    header, _, row = linecov.report(counted).splitlines()
    assert header.split() == ["top", "lines", "branches", "toggles"]
    top, *shares = row.split()
    together, points = linecov.totals(linecov.merged(source))
    assert top == source.stem
    assert shares == [f"{together[kind]}/{points[kind]}" for kind in linecov.KINDS]
    never = 1 + source.read_text().splitlines().index(NEVER)
    assert f"\nDA:{never},0\n" in source.with_suffix(".info").read_text()
    lines = (counted / f"{source.stem}.annotated" / source.name).read_text().splitlines()
    assert [line[:7] for line in lines if NEVER in line] == ["%000000"]
    assert [line[0] for line in lines if "if (rst)" in line] == [" "]


def test_bad_arguments_are_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert linecov.main(["decoder_l9"]) == 2
    assert "SUITES must be of decoder_l8" in capsys.readouterr().err
    monkeypatch.setenv("PATH", str(tmp_path))
    assert linecov.main(["decoder_l8"]) == 2
    assert "verilator_coverage must be on PATH" in capsys.readouterr().err
