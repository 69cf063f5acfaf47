"""Place and route: names, what is read from the tools, SPEF, and the tools on a small top."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from cassandra_spec.golden import CassandraError
from cassandra_spec.rtl.common.conversion import rtlil_of
from cassandra_spec.synth.layout import check, flow, names, picture, routed, wires
from cassandra_spec.synth.layout.__main__ import driving_pins, lay_out, main, table
from cassandra_spec.synth.synthesis import Design, Flow, map_for_speed, timed
from cassandra_spec.synth.timing import DEFAULT_LIBERTY, Library

NETLIST = """\
module m(clk, \\a[0] , b, q, same);
  input clk;
  input \\a[0] ;
  input b;
  output q;
  output same;
  NAND2X1 _1_ (
    .A(\\a[0] ),
    .B(q),
    .Y(_0_)
  );
  DFFPOSX1 _2_ (
    .CLK(clk),
    .D(_0_),
    .Q(q)
  );
  assign same = q;
endmodule
"""
LAYOUT = """\
UNITS DISTANCE MICRONS 100 ;
DIEAREA ( -100 -200 ) ( 900 400 ) ;
COMPONENTS 3 ;
- NAND2X1_1 NAND2X1 + PLACED ( 0 0 ) N ;
- FILL_0_0 FILL + PLACED ( 240 0 ) FS ;
- DFFPOSX1_1 DFFPOSX1 + PLACED ( 320 0 ) S ;
END COMPONENTS
NETS 2 ;
- n0
  ( PIN n0 )
  ( DFFPOSX1_1 CLK )
+ ROUTED metal1 ( 100 200 ) M2_M1
  NEW metal2 ( 100 200 ) ( 300 * ) M3_M2
  NEW metal3 ( 300 200 ) ( * -50 ) ;
- n1
  ( NAND2X1_1 Y ) ;
END NETS
SPECIALNETS 1 ;
- n0
+ ROUTED metal1 40 ( 100 200 ) ( 145 * ) ;
END SPECIALNETS
"""
LEF = """\
MACRO NAND2X1
  SIZE 2.400 BY 10.000 ;
END NAND2X1
MACRO FILL
  SIZE 0.800 BY 10.000 ;
END FILL
MACRO DFFPOSX1
  SIZE 9.600 BY 10.000 ;
END DFFPOSX1
"""


def test_a_netlist_has_its_own_names_again() -> None:
    found = names.placeable(NETLIST)
    assert {name: found.nets[name] for name in found.ports} == {
        found.inputs[0]: "clk",
        found.inputs[1]: "a[0]",
        found.outputs[0]: "q",  # b is not looked at, and same repeats q
    }
    assert found.originals == {"NAND2X1_1": "_1_", "DFFPOSX1_1": "_2_"}
    cell, pins = found.instances["NAND2X1_1"]
    own = {pin: found.nets[net] for pin, net in pins.items()}
    assert (cell, own) == ("NAND2X1", {"A": "a[0]", "B": "q", "Y": "_0_"})


def test_constants_are_refused() -> None:
    with pytest.raises(CassandraError, match="nets of a layout must have a driver, not 1'h0"):
        names.placeable(NETLIST.replace(".B(q)", ".B(1'h0)"))


def test_the_netlist_for_netgen_has_pins_in_the_order_of_the_layout() -> None:
    extracted = ".subckt top vdd gnd n0\n+ n1\n.ends\n.subckt NAND2X1 A B gnd Y vdd\n.ends\n"
    orders = names.pin_orders(extracted)
    assert orders == {"NAND2X1": ["A", "B", "gnd", "Y", "vdd"]}
    one = names.placeable(NETLIST)
    cell, pins = one.instances["NAND2X1_1"]
    call = f"XNAND2X1_1 {pins['A']} {pins['B']} gnd {pins['Y']} vdd {cell}"
    assert call in names.spice(one, orders | {"DFFPOSX1": ["CLK", "D", "Q"]}).splitlines()


def test_opens_and_shorts_are_named() -> None:
    one = names.placeable(NETLIST)
    head = ".subckt NAND2X1 A B gnd Y vdd\n.subckt DFFPOSX1 vdd D gnd Q CLK\n"
    good = "XNAND2X1_1 n1 q gnd y vdd NAND2X1\nXDFFPOSX1_1 vdd y gnd q n0 DFFPOSX1\n"
    assert names.faults(head + good, one) == ([], [])
    assert names.faults(head + good.replace("vdd y", "vdd x"), one) == (["_0_"], [])
    assert names.faults(head + good.replace("n1 q gnd", "n1 n0 gnd"), one) == (
        ["q"],
        ["clk", "q"],
    )


def test_a_layout_is_read_in_micrometres() -> None:
    found = routed.read_def(LAYOUT)
    assert (found.corner, found.die) == ((-1.0, -2.0), (10.0, 6.0))
    assert [(one.cell, one.x, one.y) for one in found.components] == [
        ("NAND2X1", 0.0, 0.0),
        ("FILL", pytest.approx(2.4), 0.0),
        ("DFFPOSX1", pytest.approx(3.2), 0.0),
    ]
    assert found.lengths() == {"metal2": pytest.approx(2.0), "metal3": pytest.approx(2.5)}
    assert found.vias() == {"M2_M1": 1, "M3_M2": 1}
    assert found.unrouted == ["n1"]
    assert found.area(routed.lef_sizes(LEF)) == pytest.approx((120.0, 8.0))
    with pytest.raises(CassandraError, match="DEF must have DIEAREA, not end without"):
        routed.read_def("UNITS DISTANCE MICRONS 100 ;\n")


def test_all_wire_is_in_the_density() -> None:
    found = routed.read_def(LAYOUT)
    density = picture.wire_density(found)
    assert density.sum() * picture.BIN**2 == pytest.approx(4.5)
    assert np.count_nonzero(density) == 1


def test_gates_belong_to_the_register_behind_them() -> None:
    one = names.placeable(NETLIST)
    blocks = picture.blocks_of(one, {"DFFPOSX1"}, {"Y", "Q"}, lambda path: f"block{path}")
    assert blocks == {"DFFPOSX1_1": "block.q", "NAND2X1_1": "block.q"}


def test_a_tree_is_read_from_the_driver_on() -> None:
    text = "n1 1 NAND2X1_1/Y 2 ( 2 0.003 ( 1 0.001 A_1/A , ( 4 0.002 PIN/n1 ) ) , B_1/B ) \n"
    tree = wires.read_trees(text)["n1"]
    pieces = [(one.start, one.end, one.ohm, one.farad) for one in tree.segments]
    assert pieces == [(0, 1, 2.0, 3.0), (1, 2, 1.0, 1.0), (2, 3, 4.0, 2.0)]
    assert (tree.driver, tree.sinks) == ("NAND2X1_1/Y", {"A_1/A": 2, "PIN/n1": 3, "B_1/B": 1})
    with pytest.raises(CassandraError, match="must be closed, not left open behind A_1/Y"):
        wires.read_trees("n1 1 A_1/Y 1 ( 2 0.003 B_1/B\n")


def test_capacitances_between_nets_count_for_both() -> None:
    one = names.placeable(NETLIST)
    short = {own: name for name, own in one.nets.items()}
    text = (
        f"C0 {short['q']} vdd 1.5fF\nC1 NAND2X1_1/Y {short['q']} 0.25fF\n"
        "C2 DFFPOSX1_1/D NAND2X1_1/Y 9fF\nC3 NAND2X1_1/m1_2# gnd 7fF\n"
    )
    assert wires.capacitances(text, one) == {short["q"]: 1.75, short["_0_"]: 0.25}


def test_spef_has_the_capacitance_that_was_extracted() -> None:
    one = names.placeable(NETLIST)
    net = next(name for name, own in one.nets.items() if own == "a[0]")
    tree = wires.read_trees(f"{net} 1 PIN/{net} 1 ( 2 0.003 ( 1 0.001 NAND2X1_1/A ) )\n")
    text = wires.spef(one, tree, {net: 8.0}, "m", {"Y", "Q"})
    assert "*D_NET a\\[0\\] 8.0000\n*CONN\n*P a\\[0\\] I\n*I _1_:A I\n" in text
    caps = re.findall(r"^\d+ (\S+) ([\d.]+)$", text, re.M)
    assert caps == [("a\\[0\\]", "3.00000"), ("a\\[0\\]:1", "4.00000"), ("_1_:A", "1.00000")]
    pieces = re.findall(r"^\d+ (\S+) (\S+) ([\d.]+)$", text, re.M)
    assert pieces == [("a\\[0\\]", "a\\[0\\]:1", "2.0000"), ("a\\[0\\]:1", "_1_:A", "1.0000")]


def test_results_of_the_tools_are_read() -> None:
    assert flow.failed_routes(["Final: No failed routes!"]) == 0
    assert flow.failed_routes(["Final: No failed routes!", "Failed net routes: 3", "end"]) == 3
    assert check.violations("violations = 0\n") == {}
    assert check.violations("violations = 3\nrule = 2 Metal2 spacing < 3\n") == {
        "Metal2 spacing < 3": 2
    }
    assert check.matching("Result: Circuits match uniquely.\n")
    assert not check.matching("Result: Netlists do not match.\n")
    for read in (check.violations, check.matching, lambda text: flow.failed_routes([text])):
        with pytest.raises(CassandraError, match=r"must .*, not end without"):
            read("nothing")


def test_what_is_missing_is_named_with_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--technology", str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    assert "must be a file (Debian: apt install qflow-tech-osu018)" in capsys.readouterr().err
    assert main(["--density", "1.5"]) == 2
    assert "density must be between 0 and 1, not 1.5" in capsys.readouterr().err
    assert main(["--fast", "0"]) == 2
    assert "fast must be at least 1, not 0" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CassandraError, match=r"graywolf must be on PATH.*apt install graywolf"):
        flow.program("graywolf")


# --- with the tools -----------------------------------------------------------------------------


class Adder(wiring.Component):
    """A sum between registers."""

    def __init__(self) -> None:
        super().__init__({"a": In(4), "b": In(4), "total": Out(5)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        first = Signal(4)
        kept = Signal(5)
        m.d.sync += [first.eq(self.a), kept.eq(first + self.b)]
        m.d.comb += self.total.eq(kept)
        return m


@pytest.mark.slow
def test_a_small_top_is_laid_out_and_faults_in_it_are_seen(tmp_path: Path) -> None:
    for tool in ("yosys", "sta", "graywolf", "qrouter", "magic", "netgen-lvs", "tclsh"):
        if shutil.which(tool) is None:
            pytest.skip(f"needs {tool}")
    for path in (DEFAULT_LIBERTY, flow.DEFAULT_SCRIPTS / "place2def.tcl"):
        if not path.is_file():
            pytest.skip(f"needs {path}")
    library, technology = Library.chosen(None), flow.Technology.chosen(None, None)
    design = Design(
        top="adder", rtlil=rtlil_of(Adder(), "adder"), blocks=[("", "all")], inside="adder"
    )
    net = map_for_speed(design, library, tmp_path, Flow())
    found = lay_out(net, "adder", library, technology, period=4.6, effort=flow.Effort())
    assert (found.failed, found.checked.violations, found.checked.matches) == (0, {}, True)
    assert found.routed.unrouted == []
    placed = {one.name for one in found.routed.components if one.cell != routed.FILLER}
    assert placed == set(found.netlist.instances)
    cells, fill = found.routed.area(found.sizes)
    assert 0.5 < cells / (cells + fill) < 0.75
    assert "| layout against netlist | matches |" in table(found)
    assert found.after.slack < found.before.slack
    _heavier_wires_are_slower(net, library, found.after.slack)
    assert driving_pins(net, library) == {"Y", "Q"}
    layout = tmp_path / f"{names.TOP}_route.def"
    text = layout.read_text()
    start = re.search(r"NEW metal2 \( (\d+) (\d+) \) \( \* (\d+) \)", text)
    assert start is not None
    x, y, end = map(int, start.groups())
    beside = f"{start[0]} NEW metal2 ( {x + 40} {y} ) ( * {end} )"
    layout.write_text(text.replace(start[0], beside, 1))
    assert check.check(found.netlist, technology, layout, tmp_path).violations
    across = f"{start[0]} NEW metal2 ( {x} {y} ) ( 0 * ) NEW metal2 ( {x} {y} ) ( 5000 * )"
    layout.write_text(text.replace(start[0], across, 1))
    short = check.check(found.netlist, technology, layout, tmp_path)
    assert short.shorts
    assert not short.matches


def _heavier_wires_are_slower(net: Path, library: Library, slack: float) -> None:
    spef = net.with_name("adder.spef")
    spef.write_text(spef.read_text().replace("*C_UNIT 1 FF", "*C_UNIT 10 FF"))
    path, _ = timed(net, "adder", library, 4.6, spef.name)
    assert path.slack < slack - 0.1
