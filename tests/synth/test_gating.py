"""Clock gates: enables become gates, few bits stay multiplexers, and the gated netlist computes the
same."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from cassandra_spec.golden import CassandraError
from cassandra_spec.synth import gating, synthesis, timing
from cassandra_spec.synth.buffers.netlist import instances_of
from cassandra_spec.synth.synthesis import Design, Flow
from cassandra_spec.synth.timing import DEFAULT_LIBERTY, Library, run_tool
from cassandra_spec.toolkit.programs import run_program


def flip_flops(enable: str, count: int, first: int = 0) -> str:
    return "".join(
        f"  cell $_DFFE_PP_ $f{i}\n    connect \\C \\clk\n    connect \\D \\d [{i}]\n"
        f"    connect \\E {enable}\n    connect \\Q \\q [{i}]\n  end\n"
        for i in range(first, first + count)
    )


def module(body: str) -> str:
    return f"attribute \\top 1\nmodule \\m\n  attribute \\init 1'0\n  wire \\x\n{body}end\n"


@pytest.mark.parametrize(
    ("count", "leaves", "latches"),
    [(3, 0, 0), (4, 1, 1), (32, 1, 1), (33, 2, 1), (100, 4, 1), (256, 8, 1), (257, 9, 2)],
)
def test_enables_become_gates(count: int, leaves: int, latches: int) -> None:
    text = gating.gate_clocks(module(flip_flops("\\e", count)))
    assert text.count("cell \\LATCH ") == text.count("cell \\INVX1 ") == latches
    assert (
        text.count("cell \\NAND2X1 ") == len(re.findall("clock_gate_\\d+_driver", text)) == leaves
    )
    assert text.count("cell $_DFFE_PP_ ") == (0 if leaves else count)
    opens = re.findall(r"connect \\B (\S+)", text)
    assert set(opens) == set(re.findall(r"connect \\Q (\S+_open)", text))
    assert len(opens) == leaves
    clocks = re.findall(r"cell \$_DFF_P_ \S+\n    connect \\C (\S+)\n", text)
    shares = [clocks.count(clock) for clock in dict.fromkeys(clocks)]
    assert len(shares) == leaves
    assert sum(shares) == (count if leaves else 0)
    assert not leaves or max(shares) - min(shares) <= 1
    assert "attribute \\init 1'0\n  wire \\x\n" in text  # nothing between a wire and its attribute


def test_each_enable_and_each_module_has_gates_of_its_own() -> None:
    one = flip_flops("\\e", 4) + flip_flops("\\g", 5, first=4)
    text = gating.gate_clocks(module(one) + module(one))
    assert text.count("cell \\LATCH ") == 4
    assert re.findall(r"connect \\CLK \\clock_gate_(\d)_low\n    connect \\D \\(\w)", text) == [
        *(("0", "e"), ("1", "g")),
        *(("0", "e"), ("1", "g")),
    ]


def test_a_library_without_the_cells_of_a_gate_is_refused(tmp_path: Path) -> None:
    text = """library(small) { cell (NAND2X1) { area : 24; }
    cell (DFFPOSX1) { area : 9; ff (A,B) { } } cell (LATCH) { area : 0; } }"""
    (tmp_path / "small.lib").write_text(text)
    with pytest.raises(CassandraError, match="LIBERTY must have INVX1 for clock gates, not "):
        gating.with_latch(Library.load(tmp_path / "small.lib"), tmp_path)


# --- with the tools -----------------------------------------------------------------------------

COUNTER = """\
module counter (input clk, input rst, input go, input keep, input [7:0] d, output [7:0] q,
                output [5:0] n, output [1:0] few);
  reg [7:0] held; reg [5:0] number; reg [1:0] two;
  assign q = held, n = number, few = two;
  always @(posedge clk) begin
    if (keep) held <= d;
    if (rst) number <= 6'd5; else if (go) number <= number + 1;
    if (rst) two <= 0; else if (d[0]) two <= two + 1;
  end
endmodule
"""
BENCH = """\
module bench;
  reg clk = 0, rst = 1, go = 0, keep = 0; reg [7:0] d = 0; integer seed = 7, i, wrong = 0;
  wire [7:0] q, q2; wire [5:0] n, n2; wire [1:0] few, few2;
  counter rtl (clk, rst, go, keep, d, q, n, few);
  gated net (.clk(clk), .rst(rst), .go(go), .keep(keep), PINS);
  initial begin
    for (i = 0; i < 2000; i = i + 1) begin
      #5 rst = i < 2 || $random(seed) % 16 == 0; go = $random(seed); keep = i < 2 | $random(seed);
      d = $random(seed);
      #5 if (i > 4 && {q, n, few} !== {q2, n2, few2}) wrong = wrong + 1;
      clk = 1; #10 clk = 0;
    end
    $display("%0d wrong", wrong);
    $finish;
  end
endmodule
"""


def gated(out: Path) -> Path:
    """Return the counter, gated."""
    if shutil.which("yosys") is None or not DEFAULT_LIBERTY.is_file():
        pytest.skip("no yosys or library: apt install yosys qflow-tech-osu018")
    (out / "counter.v").write_text(COUNTER)
    run_tool("yosys", ["-q", "-p", "read_verilog counter.v; proc; write_rtlil c.il"], out)
    design = Design(top="counter", rtlil=(out / "c.il").read_text(), blocks=[], inside="")
    library = Library.load(DEFAULT_LIBERTY)
    return synthesis.map_for_speed(design, library, out, Flow(gated=True))


def simulated(out: Path, net: Path) -> str:
    """Return the output of Icarus for the netlist beside its source."""
    if shutil.which("iverilog") is None:
        pytest.skip("no iverilog: apt install iverilog")
    run_tool("yosys", ["-q", "-p", f"read_liberty {DEFAULT_LIBERTY}; write_verilog cells.v"], out)
    pins = [
        f".\\{name}[{bit}] ({wire}[{bit}])"
        for name, wire, width in (("d", "d", 8), ("q", "q2", 8), ("n", "n2", 6), ("few", "few2", 2))
        for bit in range(width)
    ]
    (out / "bench.v").write_text(BENCH.replace("PINS", ", ".join(pins)))
    (out / "gated.v").write_text(net.read_text().replace("module counter(", "module gated("))
    sources = ["bench.v", "counter.v", "gated.v", "cells.v"]
    command = ["iverilog", "-g2012", "-s", "bench", "-o", "bench", *sources]
    run_program(command, out, error=CassandraError)
    return run_program(["vvp", "-n", "bench"], out, error=CassandraError)


def test_a_gated_netlist_computes_what_its_source_does(tmp_path: Path) -> None:
    net = gated(tmp_path)
    cells = [cell for cell, _ in instances_of(net.read_text()).values()]
    assert cells.count("LATCH") == 2  # of eight bits, and of six with a reset; two bits have none
    assert simulated(tmp_path, net) == "0 wrong\n"
    open_ = re.sub(
        r"(LATCH clock_gate_0_latch \(.*?\.D\()[^)]*", r"\g<1>1'b1", net.read_text(), flags=re.S
    )
    net.write_text(open_)
    assert simulated(tmp_path, net) != "0 wrong\n"


def instance(cell: str, name: str, **pins: str) -> str:
    body = ",\n".join(f"    .{pin}({net})" for pin, net in pins.items())
    return f"  {cell} {name} (\n{body}\n  );\n"


def behind_a_gate(inverters: int, flip_flops: int) -> str:
    """Return a register, a chain that opens a gate, and flip-flops behind it."""
    net, chain = "q", ""
    for i in range(inverters):
        chain += instance("INVX1", f"i{i}", A=net, Y=f"n{i}")
        net = f"n{i}"
    low, opens, shut, clock = (f"clock_gate_0_{end}" for end in ("low", "open", "not", "y"))
    gate = [
        instance("DFFPOSX1", "f", CLK="clk", D="d", Q="q"),
        instance("INVX1", "clock_gate_0_inverter", A="clk", Y=low),
        instance("LATCH", "clock_gate_0_latch", CLK=low, D=net, Q=opens),
        instance("NAND2X1", "clock_gate_0_nand", A="clk", B=opens, Y=shut),
        instance(gating.driver_of(flip_flops), "clock_gate_0_driver", A=shut, Y=clock),
        *(
            instance("DFFPOSX1", f"g{i}", CLK=clock, D="d", Q="y" if i == 0 else f"y{i}")
            for i in range(flip_flops)
        ),
    ]
    return (
        f"module top(clk, d, y);\n  input clk, d;\n  output y;\n{chain}{''.join(gate)}endmodule\n"
    )


def tools() -> Library:
    if shutil.which("sta") is None or not DEFAULT_LIBERTY.is_file():
        pytest.skip("no opensta or library: apt install opensta qflow-tech-osu018")
    return Library.load(DEFAULT_LIBERTY)


def test_the_path_to_a_gate_begins_at_a_register_and_ends_before_the_clock(tmp_path: Path) -> None:
    library, period = tools(), 5.0
    (tmp_path / "top.v").write_text(behind_a_gate(inverters=80, flip_flops=4))
    path, _ = synthesis.timed(tmp_path / "top.v", "top", library, period)
    assert (path.start, path.end) == ("q", "clock_gate_0_nand")
    assert path.depth > 80
    assert path.arrival + timing.LEAD + path.slack == pytest.approx(period)
    shorter, _ = synthesis.timed(tmp_path / "top.v", "top", library, period - 0.5)
    assert path.slack - shorter.slack == pytest.approx(0.5)  # whatever the latch borrows


@pytest.mark.parametrize("flip_flops", [8, 16, gating.MAX_LEAF])
def test_a_gate_reaches_its_flip_flops_in_the_time_it_is_given(
    tmp_path: Path, flip_flops: int
) -> None:
    library = tools()
    (tmp_path / "top.v").write_text(behind_a_gate(inverters=1, flip_flops=flip_flops))
    script = f"""\
read_liberty {library.path}
read_verilog top.v
link_design top
create_clock -name clk -period 9 [get_ports clk]
set_clock_transition 0.1 [all_clocks]
set_input_transition 0.1 [all_inputs]
set_propagated_clock [all_clocks]
set_output_delay 0 -clock clk [get_ports y]
report_checks -to y -format full_clock -digits 3
"""
    (tmp_path / "top.tcl").write_text(script)
    printed = run_tool("sta", ["-exit", "top.tcl"], tmp_path)
    [arrival] = re.findall(r"([\d.]+) \^ g0/CLK", printed)
    least = 0.8 if flip_flops == gating.MAX_LEAF else 0.7  # a smaller leaf may be a little early
    assert least * timing.LEAD < float(arrival) <= timing.LEAD


def test_a_latch_without_area_has_a_price(tmp_path: Path) -> None:
    library = tools()
    priced = gating.with_latch(library, tmp_path)
    assert library.areas["LATCH"] == 0
    assert priced.areas == dict(library.areas) | {"LATCH": gating.LATCH_PRICE * library.gate}
