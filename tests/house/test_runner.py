"""The recipe cocotb + cocotb-test + Verilator, on a design of one adder."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.verif.tools.preflight import has_header
from cassandra_spec.verif.tools.runner import SuiteError, choose_seed, run_suite
from cassandra_spec.verif.tools.shared_objects import shared_objects

TESTBENCH = "tests.house.adder_testbench"


class Adder(wiring.Component):
    """total <= a + b + offset, one cycle later."""

    def __init__(self, offset: int = 0) -> None:
        self.offset = offset
        super().__init__({"a": In(8), "b": In(8), "total": Out(9)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.sync += self.total.eq(self.a + self.b + self.offset)
        return m


def read_fst_header(path: Path | None) -> tuple[int, int]:
    """Time of the end, in steps, and number of signals, from the header block of an FST file."""
    assert path is not None
    kind, length, _, end, _, _, _, signals = struct.unpack(">BQQQQQQQ", path.read_bytes()[:57])
    assert (kind, length) == (0, 329)
    return end, signals


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("adder")


def test_a_component_runs_and_is_not_built_twice(build: Path) -> None:
    first = run_suite(Adder(), TESTBENCH, "adder", build_dir=build, seed=7, waves=False)
    assert first.seed == 7
    assert len(first.tests) == 2
    program = build / "program" / "adder"
    made = program.stat().st_mtime_ns
    run_suite(Adder(), TESTBENCH, "adder", build_dir=build, seed=8, waves=False)
    assert program.stat().st_mtime_ns == made


def test_the_seed_replays(build: Path) -> None:
    logs = []
    for seed in (7, 7, 8):
        result = run_suite(Adder(), TESTBENCH, "adder", build_dir=build, seed=seed, waves=False)
        drawn = [line for line in result.log.read_text().splitlines() if "operands" in line]
        logs.append(drawn)
    assert logs[0] == logs[1] != logs[2]


def test_a_wrong_design_fails_with_the_name_of_the_test(tmp_path: Path) -> None:
    with pytest.raises(SuiteError, match=r"SEED=3.*failed: .*adds") as caught:
        run_suite(Adder(1), TESTBENCH, "adder", build_dir=tmp_path, seed=3, waves=False)
    assert "AssertionError" in str(caught.value)


def test_an_assertion_that_fails_ends_the_suite(tmp_path: Path) -> None:
    watcher = """
module watcher (input clk, input [8:0] total);
  always @(posedge clk) below: assert (total < LIMIT);
endmodule
bind adder watcher bound (.clk(clk), .total(total));
"""

    def run(limit: int, *plusargs: str) -> Path:
        text = watcher.replace("LIMIT", str(limit))
        return run_suite(
            *(Adder(), TESTBENCH, "adder"),
            build_dir=tmp_path,
            assertions=text,
            plusargs=plusargs,
        ).log

    with pytest.raises(SuiteError):
        run(100)
    assert "bound.below: 'assert' failed" in (tmp_path / "program" / "log.txt").read_text()
    run(100, "+verilator+noassert")


def test_no_matching_test_is_an_error(build: Path) -> None:
    with pytest.raises(SuiteError):
        run_suite(
            Adder(), TESTBENCH, "adder", build_dir=build, waves=False, testcase="no_such_test"
        )


@pytest.mark.slow
def test_waves_are_written_or_the_missing_headers_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WAVES_DIR", str(tmp_path / "waves"))
    if not all(map(has_header, ("lz4.h", "zlib.h"))):
        with pytest.raises(CassandraError, match="apt install liblz4-dev zlib1g-dev"):
            run_suite(Adder(), TESTBENCH, "adder", build_dir=tmp_path)
        return
    files = [run_suite(Adder(), TESTBENCH, "adder", build_dir=tmp_path).waves for _ in range(2)]
    assert files == sorted((tmp_path / "waves").iterdir(), key=lambda path: len(path.name))
    for path in files:
        end, signals = read_fst_header(path)
        assert end > 0
        assert signals >= 5  # clk, rst, a, b, total


def test_a_seed_that_is_no_number_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEED", "seven")
    with pytest.raises(CassandraError, match="SEED must be a number or 'random', not 'seven'"):
        choose_seed()


def test_objects_of_the_library_are_kept_for_other_designs_with_the_same_flags(
    tmp_path: Path,
) -> None:
    def build(name: str, flags: list[str], *, fails: bool = False) -> dict[str, str]:
        """Build with the folder's files, and return them; ``make`` makes those that are missing."""
        folder = tmp_path / name
        folder.mkdir()
        with shared_objects(folder, flags, tmp_path / "kept"):
            found = {path.name: path.read_text() for path in folder.iterdir()}
            if fails:
                raise SuiteError(name)
            for object_name in ("verilated.o", "verilated_vpi.o", "Vtop.o"):
                if object_name not in found:
                    (folder / object_name).write_text(name)
        return found

    with pytest.raises(SuiteError):
        build("broken", ["-a"], fails=True)
    assert build("first", ["-a"]) == {}
    assert build("second", ["-a"]) == {"verilated.o": "first", "verilated_vpi.o": "first"}
    assert build("third", ["-a", "-b"]) == {}
