"""The SoC for an FPGA board: its Verilog, its Yosys script, and what is read from the tools."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from examples.soc import fpga

ROOT = Path(__file__).resolve().parents[2]
TOPS = ["dma", "encoder_dma"]
STAT = json.loads(
    r"""{"modules": {
      "\\board": {"num_cells_by_type": {"LUT4": 70, "CCU2C": 10, "DP16KD": 8, "MULT18X18D": 4,
                                        "TRELLIS_FF": 60, "PFUMX": 9, "EHXPLLL": 1}},
      "\\dma": {"num_cells_by_type": {"LUT4": 100, "TRELLIS_FF": 20, "DP16KD": 2}},
      "\\encoder_dma": {"num_cells_by_type": {"LUT4": 198, "TRELLIS_DPR16X4": 2, "CCU2C": 0}}
    }}"""
)
REPORT = json.loads(
    """{"fmax": {"$glbnet$clkout0": {"achieved": 41.26, "constraint": 50.0}},
        "utilization": {"TRELLIS_COMB": {"available": 1000, "used": 410},
                        "TRELLIS_FF": {"available": 1000, "used": 80},
                        "DP16KD": {"available": 20, "used": 10},
                        "MULT18X18D": {"available": 16, "used": 4}}}"""
)


def test_reports_become_a_table() -> None:
    table = fpga.table(STAT, REPORT, TOPS)
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()]
    assert cells[0] == ["LFE5U-85F", "LUT4", "FF", "EBR", "DSP"]
    assert cells[2:] == [
        ["decoder", "100", "20", "2", "0"],
        ["encoder", "210", "0", "0", "0"],
        ["SoC, with both", "400", "80", "10", "4"],
        ["share of both", "78%", "25%", "20%", "0%"],
        ["placed SoC", "410", "80", "10", "4"],
        ["device", "1000", "1000", "20", "16"],
        ["share of the device", "41%", "8%", "50%", "25%"],
    ]


def test_yosys_reads_all_that_litex_names_and_counts_the_tops_apart() -> None:
    lines = fpga.script("verilog_defaults -push\nread_verilog a.v\nsynth_ecp5\n", TOPS).splitlines()
    assert lines[:3] == [
        "read_verilog a.v",
        "setattr -mod -set keep_hierarchy 1 dma encoder_dma",
        "synth_ecp5 -top board",
    ]
    assert lines.index("flatten") > next(at for at, line in enumerate(lines) if "stat" in line)


def test_the_document_gets_table_clock_and_versions(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    program = tmp_path / "tool"
    program.write_text("#!/bin/sh\necho 'Yosys 0.23 (nextpnr-0.11.1)'\n")
    program.chmod(0o755)
    document = tmp_path / "page.md"
    document.write_text("<!-- soc-fpga -->\n<!-- /soc-fpga -->\n")

    def write_verilog(out: Path, segment: int, mhz: int) -> Path:
        assert (segment, mhz) == (4096, 50)
        for top in TOPS:
            (out / "rtl" / top).mkdir(parents=True)
            (out / "rtl" / top / f"{top}.json").touch()
        (out / "board.ys").write_text("read_verilog board.v\n")
        (out / "cells.json").write_text(json.dumps(STAT))
        (out / "report.json").write_text(json.dumps(REPORT))
        return out

    monkeypatch.setattr(fpga, "write_verilog", write_verilog)
    monkeypatch.setattr(fpga, "find_tool", lambda _: str(program))
    monkeypatch.setattr(fpga, "nextpnr", lambda _: str(program))
    assert fpga.main(["--out", str(tmp_path / "out"), "--document", str(document)]) == 0
    page, printed = document.read_text(), capsys.readouterr()
    assert fpga.table(STAT, REPORT, TOPS) in page
    assert "Clock: 41.3 MHz, asked for 50 MHz with seed 1. Yosys 0.23, nextpnr 0.11.1, " in page
    assert "nextpnr places and routes it" in printed.err


def test_a_missing_yosys_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert fpga.main(["--out", str(tmp_path / "out")]) == 2
    assert not (tmp_path / "out").exists()
    [line] = capsys.readouterr().err.splitlines()
    assert "yosys must be on PATH, not absent (Debian: apt install yosys)" in line


def test_the_verilog_for_the_board_has_both_tops(tmp_path: Path) -> None:
    environment = ROOT / "build" / "soc-fpga" / "env"
    wanted, ready = (fpga.HERE / "requirements.txt").read_text(), environment / "ready"
    if not ready.is_file() or ready.read_text() != wanted:
        pytest.skip("LiteX is not there: make soc-fpga installs it")
    (tmp_path / "env").symlink_to(environment)
    gateware = fpga.write_verilog(tmp_path, 4096, 50)
    tops = [source.stem for source in (tmp_path / "rtl").glob("*/*.v")]
    assert len(tops) == 2
    verilog, script = (gateware / "board.v").read_text(), (gateware / "board.ys").read_text()
    for top in tops:
        assert re.search(rf"^{top} {top}\(", verilog, re.MULTILINE)
        assert f"{top}.v\n" in fpga.script(script, tops)
    assert "LOCATE COMP" in (gateware / "board.lpf").read_text()
