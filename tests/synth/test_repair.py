"""Buffers and sizes by timing: changes keep the function, the limits and the period."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cassandra_spec.golden import CassandraError
from cassandra_spec.synth.buffers import repair
from cassandra_spec.synth.buffers.cells import Cells
from cassandra_spec.synth.buffers.netlist import Netlist, instance, instances_of
from cassandra_spec.synth.buffers.repair import Timer
from cassandra_spec.synth.liberty import Drive, drives
from cassandra_spec.synth.synthesis import gates_of, timed
from cassandra_spec.synth.timing import DEFAULT_LIBERTY, Library, run_tool

SIZES = ("INVX1", "INVX2", "INVX4", "INVX8")
CELLS = Cells(
    loads={**{(size, "A"): 0.01 for size in SIZES}, ("BUFX2", "A"): 0.01, ("DFF", "D"): 0.01},
    unit=0.01,
    buffers={"BUFX2": ("A", "Y")},
    drives={},
    larger={},
    smaller={},
    flip_flops=frozenset({"DFF"}),
)


def netlist(seed: int, flip_flop: str, fanout: int = 60) -> str:
    """Return registers behind chains of inverters and buffers of random lengths."""
    chance = random.Random(seed)
    ends = [f"e_{i}" for i in range(fanout)]
    text = f"module top(clk, d, {', '.join(ends)});\n  input clk;\n  input d;\n"
    text += "".join(f"  output {end};\n" for end in ends)
    body, nets = instance(flip_flop, "root", {"CLK": "clk", "D": "d", "Q": "q"}), list[str]()
    for i, end in enumerate(ends):
        net = "q"
        for _ in range(2 * chance.randrange(8)):
            nets.append(f"_{len(nets)}_")
            cell = chance.choice(["INVX1", "BUFX2"])
            body += instance(cell, f"cell{len(nets)}", {"A": net, "Y": nets[-1]})
            net = chance.choice(nets[-3:])
        body += instance(flip_flop, f"end{i}", {"CLK": "clk", "D": net, "Q": end})
    return text + "  wire q;\n" + "".join(f"  wire {net};\n" for net in nets) + f"{body}endmodule\n"


def sources(text: str) -> dict[str, dict[str, str]]:
    """Return the net of every input pin of what is no buffer, as it was before any buffer."""
    found = instances_of(text)
    through = {pins["Y"]: pins["A"] for cell, pins in found.values() if cell.startswith("BUFX")}

    def source(net: str) -> str:
        return source(through[net]) if net in through else net

    return {
        name: {pin: net if pin in "QY" else source(net) for pin, net in pins.items()}
        for name, (cell, pins) in found.items()
        if not cell.startswith("BUFX")
    }


def edits(net: Netlist, chance: random.Random) -> list[Callable[[], object]]:
    """Some changes that keep the function; what takes them back."""
    undo = []
    for _ in range(chance.randrange(1, 12)):
        buffers, kind = list(net.buffers()), chance.randrange(4)
        if kind == 0 and buffers:
            undo.append(net.remove(chance.choice(buffers)))
        elif kind == 1:
            used = [one for one in sorted(net.drivers) if net.sinks.get(one)]
            one = chance.choice(used)
            sinks = sorted(net.sinks[one])
            undo.append(net.insert(one, chance.sample(sinks, chance.randrange(1, len(sinks) + 1))))
        elif kind == 2 and buffers:
            before, behind = net.ends(chance.choice(buffers))
            undo += [net.move(pin, before) for pin in sorted(net.sinks.get(behind, ()))[:1]]
        else:
            names = [name for name, (cell, _) in net.instances.items() if cell in SIZES]
            undo += [net.resize(chance.choice(names), chance.choice(SIZES))] if names else []
    return undo


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 10**6))
def test_changes_keep_the_function_and_can_be_taken_back(seed: int) -> None:
    text = netlist(seed % 7, "DFF", fanout=8)
    net, chance = Netlist(text, CELLS), random.Random(seed)
    before = net.text()
    assert instances_of(before) == instances_of(text)
    undo = edits(net, chance)
    assert sources(net.text()) == sources(text)
    again = Netlist(net.text(), CELLS)
    assert (again.drivers, again.instances) == (net.drivers, net.instances)
    assert again.sinks == {one: sinks for one, sinks in net.sinks.items() if sinks}
    for one in reversed(undo):
        one()
    assert instances_of(net.text()) == instances_of(text)


def test_a_buffer_of_a_named_net_stays() -> None:
    text = "module top(a, q);\n  input a;\n  output q;\n  wire _0_;\n  wire _1_;\n"
    text += instance("BUFX2", "port", {"A": "a", "Y": "q"})
    text += instance("BUFX2", "alias", {"A": "a", "Y": "_0_"})
    text += instance("BUFX2", "own", {"A": "a", "Y": "_1_"}) + "  assign z = _0_;\nendmodule\n"
    assert list(Netlist(text, CELLS).buffers()) == ["own"]


@pytest.fixture
def library() -> Library:
    if shutil.which("sta") is None or not DEFAULT_LIBERTY.is_file():
        pytest.skip("no sta or library: apt install opensta qflow-tech-osu018")
    return Library.load(DEFAULT_LIBERTY)


def excess(text: str, cells: Cells) -> float:
    """Return the most that an output drives above what its cell may, in pF."""
    net = Netlist(text, cells)
    found = [
        net.load(net.sinks.get(one, ())) - cells.drives[net.cell(name), pin].max_load
        for one, (name, pin) in net.drivers.items()
    ]
    return max(found)


@pytest.mark.parametrize(("seed", "period"), [(0, 0.1), (1, 2.5)])
def test_a_netlist_gets_faster_or_smaller(
    library: Library, tmp_path: Path, seed: int, period: float
) -> None:
    text, cells, path = netlist(seed, "DFFPOSX1", fanout=200), Cells.of(library), tmp_path / "n.v"
    found = []
    for one in (text, repair.repair(text, Timer("top", library, period, tmp_path), cells)):
        path.write_text(one)
        found.append((timed(path, "top", library, period)[0].slack, gates_of(one, library)))
        assert sources(one) == sources(text)
    (slack, gates), (new_slack, new_gates) = found
    assert new_slack >= min(slack, 0.0) - 0.01
    assert new_slack > slack or slack >= 0  # one register drives 200 chains: that can be mended
    assert new_gates <= gates or new_slack > slack
    assert excess(one, cells) <= max(excess(text, cells), 0.0) + 1e-9


def test_with_time_enough_no_buffer_stays(library: Library, tmp_path: Path) -> None:
    text, cells = netlist(0, "DFFPOSX1", fanout=20), Cells.of(library)
    after = repair.repair(text, Timer("top", library, 100.0, tmp_path), cells)
    assert any(Netlist(text, cells).buffers())
    assert not any(Netlist(after, cells).buffers())
    assert sources(after) == sources(text)


LIBERTY = """
  lu_table_template(t) {
    variable_1 : total_output_net_capacitance; variable_2 : input_net_transition;
    index_1 ("0, 1"); index_2 ("0, 1, 2"); }
  cell (ONE) { pin(Y) { direction : output; max_capacitance : 0.5;
    timing() { related_pin : "A";
      cell_rise(t) { index_1 ("0.1, 0.3"); index_2 ("1, 2, 3"); values ("1, 2, 3", "9, 2.4, 9"); }
      cell_fall(t) { index_1 ("0.1, 0.3"); index_2 ("1, 2, 3"); values ("1, 2, 3", "9, 2.5, 9"); }
    } } }
  cell (TWO) { pin(Y) { direction : output; max_capacitance : 0.5; } }
"""


def test_a_drive_is_the_worse_slope_at_a_middle_slew_and_a_limit() -> None:
    found = drives(LIBERTY)
    assert found == {("ONE", "Y"): Drive(slope=found["ONE", "Y"].slope, max_load=0.5)}
    assert found["ONE", "Y"].slope == pytest.approx((2.5 - 2) / (0.3 - 0.1))


def test_sizes_are_of_one_kind(library: Library) -> None:
    cells = Cells.of(library)
    assert [cells.larger.get(size) for size in SIZES] == [*SIZES[1:], None]
    assert "INVX2" not in cells.smaller  # as large as INVX1
    assert cells.smaller["INVX4"] == "INVX2"
    assert (cells.smallest[0], cells.buffer[0]) == ("BUFX2", "BUFX4")


def test_a_timer_that_prints_nothing_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, library: Library
) -> None:
    monkeypatch.setattr(repair, "run_tool", lambda *_: "nothing to say\n")
    net = Netlist(netlist(0, "DFFPOSX1"), Cells.of(library))
    with pytest.raises(CassandraError, match="sta must print slacks, not 'nothing to say'"):
        Timer("top", library, 1.0, tmp_path).slacks(net)


def test_slacks_are_those_of_paths(library: Library, tmp_path: Path) -> None:
    text = netlist(1, "DFFPOSX1")
    (tmp_path / "n.v").write_text(text)
    found = Timer("top", library, 2.0, tmp_path).slacks(Netlist(text, Cells.of(library)))
    assert found.worst == pytest.approx(
        timed(tmp_path / "n.v", "top", library, 2.0)[0].slack, abs=1e-3
    )
    assert run_tool("sta", ["-version"], tmp_path)
