"""Faults that leave the cells around them, beside two whole copies of a small design."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.toolkit.programs import run_program
from cassandra_spec.verif.formal.prover import missing_tools
from cassandra_spec.verif.mutation.around import stays_inside
from cassandra_spec.verif.mutation.drawn import Drawn, Faulty, draw
from cassandra_spec.verif.mutation.opened import Opened, opened

pytestmark = pytest.mark.skipif(bool(missing_tools()), reason="Yosys is not there")

# A queue in which no value is above 5; what it offers is never 7.
QUEUE = """module top(input clk, input rst, input push, input [2:0] value, output full,
    output m_axis_out_tvalid, input m_axis_out_tready, output [2:0] m_axis_out_tdata);
  reg [2:0] store [0:3];
  reg [1:0] head = 0, tail = 0;
  reg [2:0] level = 0;
  wire [2:0] least = value > 5 ? 3'd5 : value;
  wire [2:0] next = store[head];
  wire write = push & ~full, read = m_axis_out_tvalid & m_axis_out_tready;
  assign full = level == 4;
  assign m_axis_out_tvalid = level != 0;
  assign m_axis_out_tdata = next > 5 ? 3'd7 : next;
  always @(posedge clk) begin
    if (write) store[tail] <= least;
    tail <= rst ? 2'd0 : tail + write;
    head <= rst ? 2'd0 : head + read;
    level <= rst ? 3'd0 : level + write - read;
  end
endmodule
"""
BESIDE = """module beside(input clk, rst, push, ready, input [2:0] value, output bad);
  wire af, av, bf, bv;
  wire [2:0] ad, bd;
  top a(clk, rst, push, value, af, av, ready, ad);
  faulty b(clk, rst, push, value, bf, bv, ready, bd);
  assign bad = af != bf | av != bv | (av & (ad != bd));
endmodule
"""
GATES = (
    "flatten; memory_map; opt -fast; techmap; opt -fast; dffunmap; simplemap; setundef -zero;"
    " aigmap; opt_clean"
)


@pytest.fixture(scope="module")
def queue(tmp_path_factory: pytest.TempPathFactory) -> Faulty:
    faulty = draw(QUEUE, "top", 1, 1, tmp_path_factory.mktemp("queue"))
    (faulty.folder / "two.v").write_text(BESIDE)
    return faulty


def netlist(faulty: Faulty) -> Opened:
    (module,) = json.loads(faulty.netlist)["modules"].values()
    return opened(module)


def is_none(faulty: Faulty, fault: Drawn) -> bool:
    """Compare two whole copies, side by side."""
    script = (
        f"read_json good.json; copy top faulty; mutate -module faulty {fault.change};"
        f" read_verilog two.v; hierarchy -top beside; proc; {GATES}; write_aiger -zinit two.aig"
    )
    run_program(["yosys", "-q", "-p", script], faulty.folder, error=CassandraError)
    commands = "read_aiger two.aig; strash; pdr -T 20"
    log = run_program(["yosys-abc", "-c", commands], faulty.folder, error=CassandraError)
    assert ("Property proved" in log) != ("was asserted" in log)
    return "Property proved" in log


def stuck(faulty: Faulty) -> Iterator[Drawn]:
    """Yield both faults of each bit that a word is written with, or that is compared."""
    (module,) = json.loads(faulty.netlist)["modules"].values()
    for name, cell in module["cells"].items():
        pins = cell["connections"]
        told = "x" in pins.get("A", ())  # arbitrary while nothing is written
        for port in "AB" if told else "AY" if cell["type"] == "$gt" else "":
            for bit, value in itertools.product(range(len(pins[port])), (0, 1)):
                mode = f"const{value}"
                yield Drawn(number=0, mode=mode, cell=name, port=port, bit=bit, control=None)


def test_what_stays_inside_is_no_fault_and_the_rest_are_faults(queue: Faulty) -> None:
    small = netlist(queue)
    found = {
        fault: stays_inside(small, fault.cell, fault.change, queue.folder, 10)
        for fault in stuck(queue)
    }
    assert {fault for fault, cells in found.items() if cells} == {
        fault for fault in found if is_none(queue, fault)
    }
    for port, cells in (("A", 1), ("A", 2), ("Y", 1)):  # of words not written, of those read
        assert any(fault.port == port and found[fault] == cells for fault in found)


def test_words_that_are_there_from_the_beginning_are_free(tmp_path: Path) -> None:
    begun = QUEUE.replace("reg [2:0] level = 0;", "reg [2:0] level = 0; initial store[3] = 7;")
    faulty = draw(begun, "top", 1, 1, tmp_path)
    found = {
        str(fault): stays_inside(netlist(faulty), fault.cell, fault.change, tmp_path, 10)
        for fault in stuck(faulty)
        if fault.port == "Y" and fault.mode == "const0"
    }
    assert sorted(map(bool, found.values())) == [False, False]
