"""Gates against period: the points that no other one beats, and their table."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cassandra_spec.synth.curve import PERIODS, curve_flows, curve_plot, curve_table
from cassandra_spec.synth.synthesis import RECIPES, Design, Flow, Point, map_for_speed, sweep, timed
from cassandra_spec.synth.timing import DEFAULT_LIBERTY, Library, run_tool


def point(recipe: str, gates: float, period: float, asked: float = 4.6) -> Point:
    flow = Flow(recipe=recipe, period=asked, gated=True)
    return Point(flow=flow, gates=gates, shortest_period=period)


POINTS = [
    point("speed", 23000.0, 4.5),
    point("area", 20000.0, 5.0),
    point("area", 20000.0, 5.0, asked=5.5),  # the same netlist beats no point
    point("balanced", 23000.0, 4.8),  # as large as the first, and slower
]


def test_a_curve_has_every_recipe_at_every_period() -> None:
    flows = curve_flows(gated=True)
    assert len(flows) == len(RECIPES) * len(PERIODS) >= 6
    assert {(flow.recipe, flow.period) for flow in flows} == {
        (recipe, period) for recipe in RECIPES for period in PERIODS
    }
    assert all(flow.gated for flow in flows)


def test_points_that_no_other_beats_are_marked() -> None:
    rows = [line.split("|")[1:-1] for line in curve_table(POINTS).splitlines()[2:]]
    assert [[cell.strip() for cell in row] for row in rows] == [
        ["speed", "4.6", "4.50", "23.0", "*"],
        ["balanced", "4.6", "4.80", "23.0", ""],
        ["area", "4.6", "5.00", "20.0", "*"],
        ["area", "5.5", "5.00", "20.0", "*"],
    ]


def test_the_plot_has_a_curve_for_each_recipe() -> None:
    svg = curve_plot(POINTS, title="8 lanes")
    assert all(f"recipe {recipe}" in svg for recipe in RECIPES)
    assert "shortest period, ns" in svg
    assert "recipe area: 20.0 kGE at 5.00 ns, 20.0 kGE at 5.00 ns" in svg  # its description
    assert curve_plot(POINTS, title="8 lanes") == svg


SOURCE = """\
module adder (input clk, input go, input [7:0] a, b, output reg [7:0] y);
  reg [7:0] x;
  always @(posedge clk) begin x <= a; if (go) y <= x + b; end
endmodule
"""


def test_a_sweep_gives_the_netlists_of_single_runs(tmp_path: Path) -> None:
    if not (shutil.which("yosys") and shutil.which("sta") and DEFAULT_LIBERTY.is_file()):
        pytest.skip("no yosys, opensta or library: apt install yosys opensta qflow-tech-osu018")
    (tmp_path / "adder.v").write_text(SOURCE)
    run_tool("yosys", ["-q", "-p", "read_verilog adder.v; proc; write_rtlil a.il"], tmp_path)
    design = Design(top="adder", rtlil=(tmp_path / "a.il").read_text(), blocks=[], inside="")
    library = Library.load(DEFAULT_LIBERTY)
    flows = [Flow(recipe=recipe, period=2.0) for recipe in ("speed", "area")]
    for found in sweep(design, library, tmp_path / "sweep", flows):
        net = map_for_speed(design, library, tmp_path / found.flow.recipe, found.flow)
        path, _ = timed(net, "adder", library, 2.0)
        assert found.shortest_period == pytest.approx(2.0 - path.slack)
        assert found.gates > 16 * library.areas["DFFPOSX1"] / library.gate
