"""The FPGA flow: the wrapper, what is read from the tools, and the tools on a small top."""

from __future__ import annotations

import json
import shutil
import tomllib
from pathlib import Path

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from cassandra_spec.golden import CassandraError
from cassandra_spec.rtl.common.command import DecoderConfig
from cassandra_spec.rtl.decode.top import DecoderTop
from cassandra_spec.synth.export import ports_of
from cassandra_spec.synth.fpga import __main__ as fpga
from cassandra_spec.synth.fpga import nextpnr
from cassandra_spec.toolkit import programs

ROOT = Path(__file__).resolve().parents[2]


class Adder(wiring.Component):
    """A sum behind a register."""

    module_name = "adder"

    def __init__(self) -> None:
        super().__init__({"a": In(8), "b": In(8), "total": Out(9)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        kept = Signal(9)
        m.d.sync += kept.eq(self.a + self.b)
        m.d.comb += self.total.eq(kept)
        return m


def test_every_port_has_bits_of_its_own() -> None:
    ports = {"clk": ("input", 1), "rst": ("input", 1), "a": ("input", 3), "b": ("input", 1)}
    text = fpga.wrapper("top", {**ports, "y": ("output", 2), "z": ("output", 1)})
    assert ".clk(clk), .rst(into[0]), .a(into[3:1]), .b(into[4:4])" in text
    assert ".y(out[1:0]), .z(out[2:2])" in text
    assert "reg [4:0] into;" in text
    assert "reg [2:0] held, shifted;" in text


def test_figures_are_read_from_the_reports() -> None:
    cells = {"LUT4": 7, "TRELLIS_FF": 3, "PFUMX": 2}
    stat = {"modules": {"\\top": {"num_cells_by_type": cells}}}
    assert fpga.cells_of(json.dumps(stat), "top") == {
        "LUT4": 7,
        "carry cells": 0,
        "flip-flops": 3,
    }
    report = {"fmax": {"$glbnet$clk": {"achieved": 61.5, "constraint": 100.0}}}
    assert nextpnr.mhz_of(json.dumps(report)) == 61.5
    with pytest.raises(CassandraError, match="nextpnr must report one clock, not 0"):
        nextpnr.mhz_of("{}")


def test_a_program_on_path_is_taken_before_an_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / nextpnr.PROGRAMS[0]
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert nextpnr.nextpnr(tmp_path / "env") == str(program)
    assert not (tmp_path / "env").exists()


def test_an_environment_that_is_ready_is_not_made_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "env").mkdir()
    (tmp_path / "env" / "ready").write_text(nextpnr.REQUIREMENTS.read_text())
    assert nextpnr.nextpnr(tmp_path / "env") == str(tmp_path / "env" / "bin" / nextpnr.PROGRAMS[1])


def test_an_environment_may_be_named_from_the_current_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    commands = []
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(programs.venv, "create", lambda path, **_: Path(path).mkdir())
    monkeypatch.setattr(
        programs, "run_program", lambda command, *_, **__: commands.append(str(command[0]))
    )
    assert nextpnr.nextpnr(Path("env")) == str(tmp_path / "env" / "bin" / nextpnr.PROGRAMS[1])
    assert commands == [str(tmp_path / "env" / "bin" / "python")]


def test_a_tool_that_fails_is_quoted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "nextpnr-ecp5"
    program.write_text("#!/bin/sh\necho 'ERROR: no room' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setattr(fpga, "run_tool", lambda *_: "")
    with pytest.raises(CassandraError, match=r"nextpnr-ecp5 must end .* not with 'ERROR: no room'"):
        fpga.place(Adder(), str(program), tmp_path)


def test_the_group_and_the_requirements_agree() -> None:
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    wanted = (ROOT / "synth" / "fpga" / "requirements.txt").read_text().splitlines()
    assert set(groups["fpga"]) <= set(wanted)


def test_the_decoder_fits_the_wrapper() -> None:
    ports = ports_of(DecoderTop(DecoderConfig(lanes=8)))
    text = fpga.wrapper("decoder", ports)
    for name in ports:
        assert f".{name}(" in text


@pytest.mark.slow
def test_a_small_top_is_placed(tmp_path: Path) -> None:
    environment = ROOT / "build" / "fpga" / "env"
    if not any(map(shutil.which, nextpnr.PROGRAMS)) and not (environment / "ready").is_file():
        pytest.skip("nextpnr-ecp5 is not there: make fpga installs it")
    if shutil.which("yosys") is None:
        pytest.skip("yosys is not there: apt install yosys")
    placed = fpga.place(Adder(), nextpnr.nextpnr(environment), tmp_path)
    assert placed.cells["flip-flops"] == 9
    assert placed.mhz > 0
