"""Area and timing report: what is read from the tools, and what is said when they fail."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
from pathlib import Path

import pytest

from cassandra_spec.golden import CassandraError
from cassandra_spec.rtl.common.command import DecoderConfig
from cassandra_spec.rtl.dma.config import DmaConfig
from cassandra_spec.synth import synthesis, timing
from cassandra_spec.synth.report import (
    DEFAULT_ENCODER,
    DMA_BLOCKS,
    DecoderReport,
    dma_design,
    dma_tables,
    encoder_tables,
    main,
    markdown,
)
from cassandra_spec.synth.synthesis import Design, Flow

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


def test_a_library_is_chosen_by_its_path_before_the_variable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("one.lib", "two.lib"):
        (tmp_path / name).write_text(LIBERTY)
    monkeypatch.setenv("LIBERTY", str(tmp_path / "one.lib"))
    assert timing.Library.chosen(None).path.name == "one.lib"
    assert timing.Library.chosen(tmp_path / "two.lib").path.name == "two.lib"


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


POWER = """\
2.431   slack (MET)
Total 0.54707 1.1788e-1 2.9017e-06
"""


def test_power_is_the_sum_of_the_cells() -> None:
    power = timing.parse_power(POWER, "assumed")
    assert (power.internal, power.switching, power.leakage) == (0.54707, 0.11788, 2.9017e-06)
    assert power.total == pytest.approx(0.66495, abs=1e-5)
    with pytest.raises(CassandraError, match="sta must report power, not 'Error: no'"):
        timing.parse_power("Error: no\n", "assumed")


def test_the_activity_is_stated_to_the_tool(tmp_path: Path) -> None:
    (tmp_path / "small.lib").write_text(LIBERTY)
    library = timing.Library.load(tmp_path / "small.lib")
    script = timing.timing_script("a.v", "a", library, 4.6)
    assert f"set_power_activity -input -activity {timing.ACTIVITY} -duty 0.5\nset sums" in script


@pytest.mark.skipif(shutil.which("sta") is None, reason="sta is missing")
def test_cells_whose_power_is_no_number_count_as_none(tmp_path: Path) -> None:
    powers = "[expr {$cell eq {b} ? {-NaN 0.5 0.25 -NaN} : {2.0 1.0 0.5 3.5}}]"
    cells = "proc get_cells {all} { return {a b c} }"
    power = f"proc sta::instance_power {{cell corner}} {{ return {powers} }}"
    (tmp_path / "sum.tcl").write_text(f"{cells}\n{power}\n{timing._POWER}exit\n")
    run = ["sta", "-exit", "sum.tcl"]
    printed = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    found = timing.parse_power(printed, "assumed")
    assert (found.internal, found.switching, found.leakage) == (4.0, 2.5, 1.25)


def figures_of(path: timing.CriticalPath, power: timing.Power) -> synthesis.Figures:
    return synthesis.Figures(
        total=9000.0,
        flip_flops=100,
        gates=0,
        blocks={"codebook": 4000.0, "residue": 5600.0},
        memories={},
        speed_total=11000.0,
        path=path,
        period=4.6,
        power=power,
    )


def test_the_shortest_period_has_the_set_up_and_every_column_adds_up() -> None:
    power = timing.parse_power(POWER, "assumed")
    figures = figures_of(timing.parse_path(PATH, {}), power)
    assert figures.shortest_period == pytest.approx(0.6 + 0.185)
    assert figures.energy == pytest.approx((0.54707 + 0.11788) * 4.6e-9)
    text = markdown([DecoderReport(config=DecoderConfig(), figures=figures, flow=Flow())])
    rows = [line.split("|")[1:3] for line in text.split("\n\n")[1].splitlines()[2:]]
    cells = {name.strip(): float(cell) for name, cell in rows}
    assert cells.pop("netlist") == pytest.approx(sum(cells.values())) == 11.0
    assert cells["shared or unused, when flat"] == -0.6
    assert "| 16 lanes, all schemes | 11.0 | 100 | 0 | 3.06 | 0.78 | 0.60 |" in text


def test_encoders_stand_side_by_side_with_their_memories_as_macros() -> None:
    figures = figures_of(timing.parse_path(PATH, {}), timing.parse_power(POWER, "assumed"))
    wide = dataclasses.replace(figures, memories={"encoder.front.held": 900, "encoder.b": 100})
    text = encoder_tables({16: wide, 4: figures}, DEFAULT_ENCODER)
    assert "| 16 | 11.0 | 12.0 | 100 | 3.06 | 0.78 | 0.60 |" in text
    assert "| 4 | 11.0 | 11.0 | 100 | 3.06 | 0.78 | 0.60 |" in text
    assert "| codebook | 4.0 | 4.0 |" in text
    assert "| `encoder.front.held` | 900 | 0 |" in text
    assert "| all | 1,000 | 0 |" in text


def test_tops_with_a_dma_stand_side_by_side() -> None:
    figures = figures_of(timing.parse_path(PATH, {}), timing.parse_power(POWER, "assumed"))
    blocks = {"read master": 4000.0, "decoders: speculation": 2000.0}
    one = dataclasses.replace(figures, blocks=blocks, memories={"reads.buffer": 500})
    text = dma_tables({"`dma`": one, "`encoder-dma`": dataclasses.replace(one, memories={"x": 2})})
    assert "| `dma` | 11.0 | 11.5 | 100 | 3.06 | 0.78 | 0.60 |" in text
    assert text.index("| decoders: speculation |") < text.index("| read master | 4.0 | 4.0 |")
    assert "| `reads.buffer` | 500 | 0 |" in text
    assert "| `x` | 0 | 2 |" in text


def test_blocks_of_a_dma_are_those_of_its_paths() -> None:
    design = Design(top="t", rtlil="", blocks=DMA_BLOCKS, inside="")
    for module, block in {
        "t": "registers, counters, interrupt",
        "t.registers": "registers, counters, interrupt",
        "t.state.codebooks.entries": "codebooks",
        "t.out": "order and ends of packets",
        "t.engine.channel_1.decoder.speculation.reader": "decoders: speculation",
        "t.engine.channel_0.decoder.verification": "decoders: verification and output",
        "t.engine.channel_0.loader.waiting": "codebooks",
        "t.engine.channel_0": "channels of decoders",
        "t.reads.region_0": "read master",
        "t.engine.encoder.front.groups": "encoder: front end",
        "t.store.master": "write master",
        "t.engine.queue.queue": "queues of descriptors and results",
    }.items():
        assert design.block_of(module) == block


def test_small_memories_of_a_dma_stay() -> None:
    design = dma_design(DmaConfig(decoder=DecoderConfig(lanes=8, schemes=("mx",))))
    found = synthesis.macros_of(design)
    assert found.keys() == {f"reads.region_{place}.buffer.storage" for place in (0, 1)}


def test_a_run_that_died_inside_abc_is_an_error() -> None:
    with pytest.raises(CassandraError, match="yosys must print `Chip area`"):
        synthesis.chip_areas("End of script.")


def test_areas_of_modules_are_summed_by_their_labels() -> None:
    text = "".join(
        f"Chip area for module '\\{name}': {area}\n"
        for name, area in (("a.one", 24.0), ("a.two", 48.0), ("b", 12.0))
    )
    blocks = synthesis.block_areas(text, 24.0, lambda name: name.partition(".")[0])
    assert blocks == {"a": 3.0, "b": 0.5}


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        ("--lanes 0", "argument --lanes: invalid choice: 0"),
        ("--dma --encoder", "--encoder must not be given with --dma"),
        ("--dma --coded", "--coded must not be given with --dma"),
        ("--encoder --coded --target-rate full", "--target-rate must not be given with --encoder"),
        ("--encoder --truncated 3 4", "--truncated must not be given with --encoder"),
        ("--segment 512", "--segment must not be given without --encoder"),
        ("--curve --encoder", "--encoder must not be given with --curve"),
    ],
)
def test_flags_without_effect_are_refused(
    flags: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code: object = main(flags.split())
    except SystemExit as error:
        code = error.code
    assert code == 2
    assert line in capsys.readouterr().err


def test_a_document_without_the_block_is_refused_before_long_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- decoder -->\n<!-- /decoder -->\n")
    assert main(["--dma", "--document", str(page), "--out", str(tmp_path / "out")]) == 2
    assert "must have the markers <!-- dma --> and" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
