"""Buffer trees: every pin still sees its register, and nothing drives more than it may."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from pathlib import Path

import pytest

from cassandra_spec.golden import CassandraError
from cassandra_spec.synth.buffers import trees as limits
from cassandra_spec.synth.buffers.cells import Cells
from cassandra_spec.synth.buffers.trees import buffer_registers
from cassandra_spec.synth.timing import Library

LIBERTY = """\
library(small) {
cell (NAND2X1) { area : 24;
 pin(A) { direction : input; capacitance : 0.01; } pin(B) { direction : input; capacitance : 0.01; }
 pin(Y) { direction : output; capacitance : 0; function : "(!(A B))"; } }
cell (INVX1) { area : 16; pin(A) { direction : input; capacitance : 0.01; }
 pin(Y) { direction : output; function : "(!A)"; } }
cell (BUFX2) { area : 32; pin(A) { direction : input; capacitance : 0.014; }
 pin(Y) { direction : output; function : "(A)"; } }
cell (BUFX9) { area : 99; pin(A) { direction : input; capacitance : 0.09; }
 pin(Y) { direction : output; function : "A"; } }
cell (DFFPOSX1) { area : 96; ff (A,B) { next_state : "D"; }
 pin(D) { direction : input; capacitance : 0.009; }
 pin(CLK) { direction : input; capacitance : 0.02; }
 pin(Q) { direction : output; function : "A"; } }
}
"""


def library(folder: Path, text: str = LIBERTY) -> Library:
    (folder / "small.lib").write_text(text)
    return Library.load(folder / "small.lib")


def instance(cell: str, name: str, **pins: str) -> str:
    body = ",\n".join(f"    .{pin}({net})" for pin, net in pins.items())
    return f"  {cell} {name} (\n{body}\n  );\n"


def netlist(fanout: int, seed: int) -> str:
    """Return one register that many chains of inverters look at, of random lengths."""
    chance = random.Random(seed)
    text = "module top(clk, d);\n" + instance("DFFPOSX1", "root", CLK="clk", D="d", Q="\\q[0] ")
    for i in range(fanout):
        net, length = "\\q[0] ", chance.randrange(4)
        for j in range(length):
            text += instance("INVX1", f"inv_{i}_{j}", A=net, Y=f"n_{i}_{j}")
            net = f"n_{i}_{j}"
        text += instance("DFFPOSX1", f"end_{i}", CLK="clk", D=net, Q=f"e_{i}")
    return text + "endmodule\n"


def connections(text: str) -> dict[str, tuple[str, dict[str, str]]]:
    found = re.findall(r"^  ([A-Z]\w+) (\S+) \(\n(.*?)\n  \);", text, re.M | re.S)
    pins = re.compile(r"\.(\w+)\((.*?)\)(?=,|$)", re.S | re.M)
    return {
        name: (cell, {pin: net.strip() for pin, net in pins.findall(body)})
        for cell, name, body in found
    }


@pytest.mark.parametrize("fanout", [1, 6, 9, 30, 500])
def test_trees_keep_the_function_and_the_limits(tmp_path: Path, fanout: int) -> None:
    cells = Cells.of(library(tmp_path))
    before = netlist(fanout, seed=fanout)
    after, buffers = buffer_registers(before, cells)
    old, new = connections(before), connections(after)
    trees = {pins["Y"]: pins["A"] for cell, pins in new.values() if cell == "BUFX2"}
    assert len(trees) == buffers == len(new) - len(old)
    assert (buffers > 0) == (fanout > 7)
    for name, (cell, pins) in old.items():
        assert new[name][0] == cell
        for pin, net in pins.items():
            reached = new[name][1][pin]
            while reached in trees:
                reached = trees[reached]
            assert reached == net
    loads: dict[str, float] = defaultdict(float)
    for cell, pins in new.values():
        for pin, net in pins.items():
            if pin != "CLK":
                loads[net] += cells.loads.get((cell, pin), 0.0)
    assert loads["\\q[0]"] <= limits.ROOT_LOAD * 0.01 + 1e-9 or not buffers
    assert all(loads[net] <= limits.BUFFER_LOAD * 0.01 + 1e-9 for net in trees)


def test_the_longest_way_stays_closest_to_the_register(tmp_path: Path) -> None:
    cells = Cells.of(library(tmp_path))
    text = netlist(0, seed=0).removesuffix("endmodule\n")
    for i in range(20):
        text += instance("DFFPOSX1", f"near_{i}", CLK="clk", D="\\q[0] ", Q=f"x_{i}")
    text += instance("INVX1", "far", A="\\q[0] ", Y="f")
    text += instance("DFFPOSX1", "far_end", CLK="clk", D="f", Q="g") + "endmodule\n"
    after = connections(buffer_registers(text, cells)[0])
    assert after["far"][1]["A"] == "\\q[0]"
    assert any(after[f"near_{i}"][1]["D"].startswith("tree_") for i in range(20))


def test_a_library_without_a_small_buffer_is_refused(tmp_path: Path) -> None:
    text = LIBERTY.replace("BUFX2) { area : 32", "BUFX2) { area : 64")
    with pytest.raises(CassandraError, match=r"a buffer of at most 1.5 gates, not "):
        Cells.of(library(tmp_path, text))
