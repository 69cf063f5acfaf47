"""Area and timing report: what is read from the tools, and what is said when they fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from golden import CassandraError
from synth import report, timing

LIBERTY = """\
library(small) {
cell (NAND2X1) { area : 24; pin(A) { } }
cell (DFFPOSX1) { area : 96; ff (A,B) { next_state : "D"; } }
cell (OR2X1) { area : 32; }
}
"""
PATH = """\
Startpoint: _1_ (rising edge-triggered flip-flop clocked by clk)
Endpoint: _2_ (rising edge-triggered flip-flop clocked by clk)
   0.400    0.400 v _1_/Q (DFFPOSX1)
   0.200    0.600 ^ _3_/Y (NAND2X1)
   0.000    0.600 ^ _2_/D (DFFPOSX1)
            0.600   data arrival time
            3.815   slack (MET)
"""


def test_a_liberty_file_names_its_gate_and_flip_flop(tmp_path: Path) -> None:
    (tmp_path / "small.lib").write_text(LIBERTY)
    library = timing.Library.load(tmp_path / "small.lib")
    assert (library.nand2, library.gate, library.flip_flops) == ("NAND2X1", 24, {"DFFPOSX1"})


def test_a_library_that_is_absent_is_named_with_its_package(tmp_path: Path) -> None:
    with pytest.raises(CassandraError, match=r"LIBERTY must be .*apt install qflow-tech-osu018"):
        timing.Library.load(tmp_path / "none.lib")


def test_a_tool_that_is_absent_is_named_with_its_package(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CassandraError, match=r"sta must be on PATH.*apt install opensta"):
        timing.run_tool("sta", [], tmp_path)


def test_the_critical_path_has_the_names_of_its_registers() -> None:
    netlist = "  DFFPOSX1 _1_ (\n .CLK(clk),\n .D(_9_),\n .Q(\\decoder.head[3] )\n  );\n"
    names = timing.registers(netlist, frozenset({"DFFPOSX1"}))
    path = timing.parse_path(PATH, names)
    assert (path.start, path.end, path.depth) == ("decoder.head[3]", "_2_", 1)
    assert (path.arrival, path.slack) == (0.6, 3.815)


def test_a_run_that_died_inside_abc_is_an_error() -> None:
    with pytest.raises(CassandraError, match="yosys must print `Chip area`"):
        report.chip_areas("End of script.")


def test_the_tables_go_between_the_markers_and_nowhere_else(tmp_path: Path) -> None:
    document = tmp_path / "a.md"
    document.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    report.insert(document, "new\n")
    text = document.read_text()
    assert text == f"before\n{report.BEGIN}\n\nnew\n\n{report.END}\nafter\n"
