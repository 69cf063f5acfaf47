"""Energies of netlists: tables, loads and transitions, by hand and beside OpenSTA."""

from __future__ import annotations

import dataclasses
import re
import shutil
from pathlib import Path

import pytest

from cassandra_spec.golden import CassandraError
from cassandra_spec.rtl.common.command import DecoderConfig
from cassandra_spec.rtl.decode.top import DecoderTop
from cassandra_spec.synth import energy
from cassandra_spec.synth.export import ports_of
from cassandra_spec.synth.liberty import internal_energies
from cassandra_spec.synth.timing import DEFAULT_LIBERTY, Library, run_tool

LIBERTY = """\
library(small) {
  time_unit : "1ns";
  voltage_unit : "1V";
  leakage_power_unit : "1nW";
  capacitive_load_unit (1,pf);
  nom_voltage : 2.0;
  power_lut_template(both) {
    variable_1 : total_output_net_capacitance;
    variable_2 : input_transition_time;
    index_1 ("9.0, 10.0");
    index_2 ("0.0, 1.0");
  }
  power_lut_template(passive) { variable_1 : input_transition_time; index_1 ("0.0, 1.0"); }
  cell (NAND2X1) {
    area : 24;
    cell_leakage_power : 3;
    pin(A) { direction : input; capacitance : 0.5; }
    pin(B) { direction : input; capacitance : 0.25; }
    pin(Y) {
      direction : output;
      internal_power() {
        related_pin : "A";
        rise_power(both) { index_1 ("0.0, 1.0"); values ("1.0, 3.0", "5.0, 7.0"); }
        fall_power(both) { index_1 ("0.0, 1.0"); values ("0.0, 0.0", "0.0, 0.0"); }
      }
      internal_power() {
        related_pin : "B";
        rise_power(both) { index_1 ("0.0, 1.0"); values ("1.0, 1.0", \\
          "1.0, 1.0"); }
      }
    }
  }
  cell (DFFPOSX1) {
    area : 96;
    cell_leakage_power : 7;
    ff (IQ,IQN) { next_state : "D"; clocked_on : "CLK"; }
    pin(CLK) {
      direction : input;
      capacitance : 0.125;
      internal_power() {
        rise_power(passive) { values ("0.0, 10.0"); }
        fall_power(passive) { values ("2.0, 2.0"); }
      }
    }
    pin(D) { direction : input; capacitance : 1.0; }
    pin(Q) { direction : output; }
  }
}
"""
NETLIST = """\
module small(clk, a, \\q[0] );
  NAND2X1 _1_ (
    .A(a),
    .B(\\q[0] ),
    .Y(_0_)
  );
  DFFPOSX1 _2_ (
    .CLK(clk),
    .D(_0_),
    .Q(\\q[0] )
  );
endmodule
"""
SLEWS = {"_1_/Y": 0.25, "_2_/Q": 0.75}


def counted(transitions: dict[str, int], **high: float) -> energy.Activity:
    return energy.Activity(transitions=transitions, high=high)


@pytest.fixture
def library(tmp_path: Path) -> Library:
    (tmp_path / "small.lib").write_text(LIBERTY)
    return Library.load(tmp_path / "small.lib")


def test_a_table_is_linear_between_its_places() -> None:
    groups = internal_energies(LIBERTY)["NAND2X1", "Y"]
    table = groups[0].rise
    assert table is not None
    for load, slew in [(0.0, 0.0), (1.0, 1.0), (0.5, 0.25), (2.0, 0.0), (0.0, -1.0)]:
        assert table.at(load=load, slew=slew) == pytest.approx(1 + 4 * load + 2 * slew)


def test_groups_name_their_input_and_an_edge_without_a_table_takes_nothing() -> None:
    groups = internal_energies(LIBERTY)["NAND2X1", "Y"]
    assert [group.related for group in groups] == ["A", "B"]
    assert groups[1].fall is None
    assert groups[1].mean(load=0.3, slew=0.3) == pytest.approx(0.5)


def test_what_a_transition_takes_by_hand(library: Library) -> None:
    model = energy.Model(NETLIST, library, SLEWS)
    # C V^2 / 2 of the pins on each net: A; D; B; CLK
    assert model.nets == pytest.approx({"a": 1.0, "_0_": 2.0, "q[0]": 0.5, "clk": 0.25})
    # the NAND's output drives 1 pF; `a` has the slew of ports, `q[0]` its flip-flop's
    from_a = (5 + 2 * energy.SLEW) / 2
    assert model.cells["_0_"] == pytest.approx((from_a + 0.5) / 2)
    assert model.cells["clk"] == pytest.approx((10 * energy.SLEW + 2) / 2)
    assert set(model.cells) == {"_0_", "clk"}


def test_the_energy_of_a_cycle_by_hand(library: Library) -> None:
    model = energy.Model(NETLIST, library, SLEWS)
    activity = counted({"a": 4, "_0_": 10, "q[0]": 2, "clk": 0, "other": 99})
    cycle = model.per_cycle(activity, cycles=20, period=5.0)
    clock = 2 * 0.25 + 10 * energy.SLEW + 2
    assert cycle.clock == pytest.approx(clock)  # in every cycle, whatever was counted
    assert cycle.nets == pytest.approx((4 * 1.0 + 10 * 2.0 + 2 * 0.5) / 20)
    assert cycle.cells == pytest.approx(10 * model.cells["_0_"] / 20)
    assert cycle.leakage == pytest.approx(10e-9 * 5e-9 * 1e12)
    assert cycle.total == pytest.approx(sum(dataclasses.astuple(cycle)))
    assert (cycle * 0.5).total == pytest.approx(cycle.total / 2)


def test_a_net_that_was_not_counted_is_an_error(library: Library) -> None:
    model = energy.Model(NETLIST, library, SLEWS)
    with pytest.raises(CassandraError, match="transitions must be of every net, _0_ is missing"):
        model.per_cycle(counted({"a": 4, "q[0]": 2}), cycles=20, period=5.0)


GATE = """\
  INVX1 clock_gate_0_inverter (
    .A(clk),
    .Y(clock_gate_0_low)
  );
  LATCH clock_gate_0_latch (
    .CLK(clock_gate_0_low),
    .D(a),
    .Q(clock_gate_0_open)
  );
  NAND2X1 clock_gate_0_nand (
    .A(clk),
    .B(clock_gate_0_open),
    .Y(clock_gate_0_not)
  );
  INVX8 clock_gate_0_driver (
    .A(clock_gate_0_not),
    .Y(clock_gate_0_y)
  );
"""
GATE_SLEWS = dict.fromkeys(
    (f"clock_gate_0_{pin}" for pin in ("inverter/Y", "latch/Q", "nand/Y", "driver/Y")), 0.5
)


def test_a_gated_clock_takes_energy_where_its_gate_is_open(library: Library) -> None:
    parts = """\
  cell (LATCH) { area : 0; pin(CLK) { direction : input; capacitance : 0.25; }
    pin(D) { direction : input; capacitance : 1.0; } pin(Q) { direction : output; } }
  cell (INVX1) { area : 16; pin(A) { direction : input; capacitance : 0.5; }
    pin(Y) { direction : output; } }
  cell (INVX8) { area : 40; pin(A) { direction : input; capacitance : 2.0; }
    pin(Y) { direction : output; } }
}
"""
    library.path.write_text(LIBERTY.rstrip().removesuffix("}") + parts)
    gated = NETLIST.replace(".CLK(clk)", ".CLK(clock_gate_0_y)").replace(
        "endmodule", GATE + "endmodule"
    )
    model = energy.Model(gated, Library.load(library.path), SLEWS | GATE_SLEWS)
    counts = counted({"a": 4, "_0_": 10, "q[0]": 2, "clock_gate_0_open": 6}, clock_gate_0_open=0.25)
    cycle = model.per_cycle(counts, cycles=20, period=5.0)
    # C V^2 of the pins on each clock: inverter and NAND; latch; driver; flip-flop. Inside: a NAND
    # that drives 2 pF, a flip-flop
    always = 4 * (0.5 + 0.5) + 4 * 0.25
    nand = (1 + 4 * 2.0 + 2 * energy.SLEW) / 2 + 0.5
    opened = 4 * 2.0 + 4 * 0.125 + nand + (10 * 0.5 + 2)
    assert cycle.clock == pytest.approx(always + 0.25 * opened)
    assert cycle.nets == pytest.approx((4 * 3.0 + 10 * 2.0 + 2 * 0.5 + 6 * 0.5) / 20)


def test_other_units_are_refused(library: Library, tmp_path: Path) -> None:
    (tmp_path / "small.lib").write_text(LIBERTY.replace("(1,pf)", "(1,ff)"))
    with pytest.raises(CassandraError, match="LIBERTY must have the capacitive_load_unit 1,pf"):
        energy.Model(NETLIST, library, SLEWS)


SAIF = """\
 (INSTANCE TOP
  (NET
   (clk (T0 9) (T1 0) (TZ 0) (TX 0) (TB 0) (TC 77))
  )
  (INSTANCE netlist
   (NET
    (_0_ (T0 4) (T1 5) (TZ 0) (TX 0) (TB 0) (TC 12))
    (q\\[0\\] (T0 4) (T1 5) (TZ 0) (TX 0) (TB 0) (TC 3))
   )
  )
 )
"""


def test_transitions_are_those_inside_the_netlist() -> None:
    found = energy.Activity.of(SAIF)
    assert found.transitions == {"_0_": 12, "q[0]": 3}
    assert found.high == {"_0_": 5 / 9, "q[0]": 5 / 9}


def test_the_simulation_has_the_ports_of_the_top_and_one_netlist() -> None:
    config = DecoderConfig(lanes=8)
    name, ports = config.module_name, ports_of(DecoderTop(config))
    text = energy.simulation(f"module {name}(clk);\nendmodule", "cells", name, ports)
    assert len(re.findall(rf"^module {name}\(", text, re.M)) == 1
    assert "input [63:0] s_axis_speculation_tdata" in text
    assert ".\\s_axis_speculation_tdata[63] (s_axis_speculation_tdata[63])" in text
    assert ".clk(clk)" in text


def need_tools() -> Library:
    if shutil.which("sta") is None or not DEFAULT_LIBERTY.is_file():
        pytest.skip("no opensta or library: apt install opensta qflow-tech-osu018")
    return Library.load(DEFAULT_LIBERTY)


CHAIN = """\
module chain(clk, y);
  input clk;
  output y;
  wire q, a, b;
  DFFPOSX1 f (
    .CLK(clk),
    .D(b),
    .Q(q)
  );
  INVX1 u1 (
    .A(q),
    .Y(a)
  );
  NAND2X1 u2 (
    .A(a),
    .B(q),
    .Y(y)
  );
  BUFX2 u3 (
    .A(y),
    .Y(b)
  );
endmodule
"""


def test_nets_take_what_opensta_says(tmp_path: Path) -> None:
    library, period, activity = need_tools(), 4.0, 0.3
    (tmp_path / "chain.v").write_text(CHAIN)
    slews = energy.read_slews(tmp_path / "chain.v", "chain", library, period)
    assert set(slews) == {"f/Q", "u1/Y", "u2/Y", "u3/Y"}
    script = energy.slew_script("chain.v", "chain", library, period).partition("foreach")[0]
    power = f"sta::set_power_global_activity {activity} 0.5\nreport_power -digits 9\nexit\n"
    (tmp_path / "power.tcl").write_text(script + power)
    printed = run_tool("sta", ["-exit", "power.tcl"], tmp_path)
    found = re.search(r"^Total +\S+ +(\S+) +(\S+)", printed, re.M)
    assert found is not None
    model = energy.Model(CHAIN, library, slews)
    nets = sum(value for net, value in model.nets.items() if net != "clk")
    assert nets * activity / period * 1e-3 == pytest.approx(float(found[1]), rel=1e-5)
    silent = model.per_cycle(counted(dict.fromkeys(model.nets, 0)), 1, period)
    assert silent.leakage / period * 1e-3 == pytest.approx(float(found[2]), rel=1e-5)
