"""The energy report: what is divided by what, and its tables."""

from __future__ import annotations

import dataclasses
import gc
import json
import warnings
from pathlib import Path

import pytest

from cassandra_spec.golden import CassandraError
from cassandra_spec.lab.gateware import energy
from cassandra_spec.lab.gateware.array_rate import weights_of
from cassandra_spec.lab.system.figures.silicon import energy_factor
from cassandra_spec.model.weights.sources import BUNDLED, open_source
from cassandra_spec.rtl.common.command import DecoderConfig
from cassandra_spec.synth.energy import Energy
from cassandra_spec.synth.synthesis import Flow
from cassandra_spec.synth.timing import Library
from cassandra_spec.verif.end_to_end.weights import RECIPES

RUN = energy.Run(
    scheme="mx",
    mode="draft",
    values_per_cycle=8.0,
    bits=6.0,
    energy=Energy(clock=1.0, cells=2.0, nets=4.0, leakage=0.5),
)


def test_the_ratio_is_of_the_bits_that_are_not_read() -> None:
    assert RUN.ratio(scaled=0.5, dram=3.0) == pytest.approx(7.5 * 0.5 / (10 * 3.0))


def test_both_tables_have_the_figures() -> None:
    energies, ratios = energy.markdown([RUN], "osu018_stdcells").strip().split("\n\n")
    assert energies.splitlines()[2] == "| mx | draft | 8.00 | 1.00 | 2.00 | 4.00 | 0.50 | 7.50 |"
    fitted = energy_factor("osu018_stdcells")
    cells = [cell.strip() for cell in ratios.splitlines()[2].split("|")[1:-1]]
    assert cells[:5] == ["mx", "draft", "6.00", "10.00", f"{7.5 * fitted:.2f}"]
    assert cells[6] == f"{7.5 * fitted / (10 * energy.DRAM['HBM2']):.1%}"
    assert len(cells) == len(ratios.splitlines()[0].split("|")[1:-1])


def test_a_report_takes_energies_of_its_own_netlist_alone(tmp_path: Path) -> None:
    config, flow, path = DecoderConfig(lanes=8), Flow(gated=True), tmp_path / "report.json"
    content = {"config": dataclasses.asdict(config), "flow": dataclasses.asdict(flow)}
    path.write_text(json.dumps(content))
    assert energy.read_report(path, config, flow) == json.loads(json.dumps(content))
    with pytest.raises(
        CassandraError, match=r"flow of into must be .*'gated': False.*, not .*True"
    ):
        energy.read_report(path, config, Flow())
    with pytest.raises(CassandraError, match=r"config of into must be .*'lanes': 16.*, not .* 8"):
        energy.read_report(path, DecoderConfig(), flow)
    path.write_text("none")
    with pytest.raises(CassandraError, match="into must be a report of make synth, not "):
        energy.read_report(path, config, flow)


def test_a_bench_says_nothing_of_its_decoder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Amaranth warns of a component that is made and never elaborated."""
    library = Library(path=tmp_path, areas={}, nand2="", flip_flops=frozenset())
    netlist = tmp_path / "netlist.v"
    netlist.write_text("")
    monkeypatch.setattr(energy, "map_for_speed", lambda *_: netlist)
    for name in ("Model", "RtlCodec", "read_slews", "simulation", "cell_models"):
        monkeypatch.setattr(energy, name, lambda *_, **__: "")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        energy.Bench(DecoderConfig(lanes=8), library, Flow(), tmp_path)
        gc.collect()
    assert not said


def test_weights_are_whole_segments_of_one_tensor() -> None:
    source = open_source(BUNDLED)
    payload = weights_of(source, "down_proj", RECIPES["unary"], 2)
    assert "down_proj" in payload.name
    assert len(payload.values) == 2 * payload.format.segment
    assert payload.kept is not None
    with pytest.raises(CassandraError, match="tensor must name one of at least 32768 values"):
        weights_of(source, "no such tensor", RECIPES["unary"], 2)


def test_an_absent_library_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert energy.main(["--liberty", str(tmp_path / "none.lib")]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith(
        "cassandra_spec.lab.gateware.energy: error: LIBERTY must be a liberty file"
    )
    assert printed.count("\n") == 1
