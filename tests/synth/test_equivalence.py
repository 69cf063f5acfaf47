"""RTL against netlist: what is mapped is proved, a changed gate and a lost one are found."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from cassandra_spec.golden import CassandraError
from cassandra_spec.rtl.common.conversion import verilog_of
from cassandra_spec.rtl.zero_counter import ZeroCounter
from cassandra_spec.synth import equivalence
from cassandra_spec.synth.equivalence import Equivalence, without_gates
from cassandra_spec.synth.synthesis import Design, Flow, map_for_speed, taken_out
from cassandra_spec.synth.timing import DEFAULT_LIBERTY, Library, run_tool

REGISTERS = """\
module small (input clk, input rst, input go, input [3:0] d, output [3:0] q, output twice);
  reg [3:0] held = 0; reg one = 1, same = 1, never = 0; reg [5:0] number = 0;
  assign q = held ^ {4{one & ~never}}, twice = same ^ number[5] ^ number[0];
  always @(posedge clk) begin
    if (go) held <= d;
    one <= go; same <= go; never <= 0;
    if (rst) number <= 0; else if (d[0]) number <= number + 1;
  end
endmodule
"""


COPIES = """\
module twice (input clk, input rst, input go, input [3:0] d, output [3:0] q, output still);
  reg [3:0] early = 0, one = 0, two = 0, last = 0, next = 0; reg stuck = 0, stays = 0;
  assign q = one ^ {last[1:0], last[3:2]} ^ {next[0], next[3:1]}, still = (stuck ^ d[0]) & ~stays;
  always @(posedge clk) begin
    if (go) begin early <= d; one <= d; two <= early; last <= one; next <= two; end
    if (d[1]) stuck <= stuck & d[2];
    if (d[2]) stays <= stays & d[3];
    if (rst) begin early <= 0; one <= 0; two <= 0; last <= 0; next <= 0; stuck <= 0; end
  end
endmodule
"""

RARE = """\
module rare (input clk, input [31:0] d, output q, output same);
  reg held = 0, zero = 0;
  assign q = held, same = d[0] ^ zero;
  always @(posedge clk) if (&d[30:0]) begin held <= d[31]; zero <= 0; end
endmodule
"""

MEMORY = """\
module kept (input clk, input rst, input go, input [3:0] d, output [3:0] q);
  reg [3:0] words [7:0]; reg [3:0] read; reg [2:0] write = 0; reg [2:0] next = 0;
  assign q = ~read;
  always @(posedge clk) if (go) words[write] <= d ^ 4'd5;
  always @(posedge clk) if (~go) read <= words[next];
  always @(posedge clk) begin
    if (go) write <= write + 1; else next <= next + 1;
    if (rst) begin write <= 0; next <= 0; end
  end
endmodule
"""


def needs_tools() -> None:
    """Skip the test on a machine without the tools or the library."""
    tools = all(map(shutil.which, ("yosys", "cadical")))
    if not tools or not DEFAULT_LIBERTY.is_file():
        pytest.skip("no tools or library: apt install yosys cadical qflow-tech-osu018")


def mapped(out: Path, text: str, top: str, *, gated: bool = False) -> Path:
    """Return a netlist of Verilog; its source is ``TOP.v`` beside it."""
    return map_for_speed(
        designed(out, text, top), Library.load(DEFAULT_LIBERTY), out, Flow(gated=gated)
    )


def designed(out: Path, text: str, top: str, *, without_memories: bool = False) -> Design:
    """Return a design of Verilog; its source is ``TOP.v``."""
    needs_tools()
    (out / f"{top}.v").write_text(text)
    run_tool("yosys", ["-q", "-p", f"read_verilog {top}.v; proc; write_rtlil {top}.rtlil"], out)
    rtlil = (out / f"{top}.rtlil").read_text()
    return Design(top=top, rtlil=rtlil, blocks=[], inside="", without_memories=without_memories)


def compared(out: Path, top: str, net: Path) -> Equivalence:
    library = Library.load(DEFAULT_LIBERTY)
    return equivalence.equivalence(out / f"{top}.v", net, top, library, out / "work")


def test_a_zero_counter_is_proved_and_a_changed_gate_is_named(tmp_path: Path) -> None:
    net = mapped(tmp_path, verilog_of(ZeroCounter(), "counter"), "counter")
    good = compared(tmp_path, "counter", net)
    assert good.proved
    assert len(good.blocks["outputs"].verdicts) == 8 * 5 + 4 + 5 + 1
    text = net.read_text()
    assert " NAND2X1 " in text
    net.write_text(text.replace(" NAND2X1 ", " NOR2X1 ", 1))
    bad = compared(tmp_path, "counter", net)
    assert not bad.proved
    assert bad.named("different")
    assert not bad.named("open")


def test_points_one_by_one_are_said_to_be_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By CaDiCaL alone, which else sees what random patterns and ABC leave open."""
    net = mapped(tmp_path, verilog_of(ZeroCounter(3, limit=4), "counter"), "counter")
    text = net.read_text()
    net.write_text(text.replace(" NAND2X1 ", " NOR2X1 ", 1))
    at_once = compared(tmp_path, "counter", net)
    monkeypatch.setattr(equivalence, "_STEPS", (1,))
    monkeypatch.setattr(equivalence, "differ", lambda _, points: [False] * len(points))
    assert compared(tmp_path, "counter", net).blocks["outputs"].verdicts == (
        at_once.blocks["outputs"].verdicts
    )
    assert at_once.named("proved")
    assert at_once.named("different")


@pytest.mark.parametrize("gated", [False, True])
def test_registers_are_matched_by_name_by_behaviour_and_as_constants(
    gated: bool, tmp_path: Path
) -> None:
    net = mapped(tmp_path, REGISTERS, "small", gated=gated)
    assert ("LATCH" in net.read_text()) == gated
    good = compared(tmp_path, "small", net)
    assert good.proved
    assert good.matches["constant"] == 1  # `never`
    assert good.matches["copy"] == 1  # `one` and `same` are one flip-flop
    assert sum(good.matches.values()) == 4 + 3 + 6


@pytest.mark.parametrize("gated", [False, True])
def test_copies_of_copies_are_matched_and_registers_that_stay_0_with_their_own(
    gated: bool, tmp_path: Path
) -> None:
    """Copies keep what they have, so each is only seen to be one while the others are."""
    net = mapped(tmp_path, COPIES, "twice", gated=gated)
    text = net.read_text()
    assert text.count("DFFPOSX1") == 3 * 4 + 2  # `early` is `one`, and `two` is `last`
    net.write_text(re.sub(r"\b(stuck|stays|next)\b", r"lost_\1", text))
    good = compared(tmp_path, "twice", net)
    assert good.proved
    assert not good.loose
    assert good.matches == {"name": 2 * 4, "behaviour": 4 + 2, "constant": 0, "copy": 2 * 4}


def test_what_stays_0_is_no_copy_of_what_changes_too_rarely_to_be_seen(tmp_path: Path) -> None:
    net = mapped(tmp_path, RARE, "rare")
    assert net.read_text().count("DFFPOSX1") == 1
    good = compared(tmp_path, "rare", net)
    assert good.proved
    assert good.matches == {"name": 1, "behaviour": 0, "constant": 1, "copy": 0}


@pytest.mark.parametrize("began", ["two = 15", "two"])
def test_registers_that_do_not_begin_alike_are_no_copies(began: str, tmp_path: Path) -> None:
    net = mapped(tmp_path, COPIES, "twice")
    assert compared(tmp_path, "twice", net).proved
    (tmp_path / "twice.v").write_text(COPIES.replace("two = 0", began))
    bad = compared(tmp_path, "twice", net)
    assert any(name.startswith("next") for name in bad.named("different"))
    assert any("two" in name or "last" in name for name in bad.loose)


def test_a_gate_that_opens_on_another_enable_is_found(tmp_path: Path) -> None:
    net = mapped(tmp_path, REGISTERS, "small", gated=True)
    text = net.read_text()
    latch = text[text.index(" LATCH ") :].partition(");\n")[0]
    assert ".D(go)" in latch
    net.write_text(text.replace(latch, latch.replace(".D(go)", ".D(rst)")))
    assert compared(tmp_path, "small", net).named("different")


def test_pins_of_memories_are_points(tmp_path: Path) -> None:
    """A wrong bit that is written, and one that is read, are found."""
    design, library = (
        designed(tmp_path, MEMORY, "kept", without_memories=True),
        Library.load(DEFAULT_LIBERTY),
    )
    net = map_for_speed(design, library, tmp_path, Flow())
    (apart := tmp_path / "apart").mkdir()
    memories = taken_out(design, apart)
    assert [*memories.memories] == ["words"]

    def compared(text: str) -> Equivalence:
        net.write_text(text)
        return equivalence.equivalence(
            tmp_path / "kept.v", net, "kept", library, tmp_path / "work", memories=memories
        )

    text = net.read_text()
    good = compared(text)
    assert good.proved
    assert len(good.blocks["pins of memories"].verdicts) == 3 + 1 + 3 + 4 + 4
    assert len(good.blocks["outputs"].verdicts) == 4
    swapped = text.replace("read_data", "other")
    for one, other in (("d[0]", "d[1]"), ("read[0]", "read[1]")):
        swapped = text.replace(one, "?").replace(other, one).replace("?", other)
        assert compared(swapped).named("different")


def test_a_clock_that_is_no_gates_is_refused() -> None:
    text = "module m;\n  DFFPOSX1 f (\n    .CLK(other),\n    .D(d),\n    .Q(q)\n  );\nendmodule\n"
    with pytest.raises(CassandraError, match="clocks must be clk or gated, not other of a DFF"):
        without_gates(text)


@pytest.mark.slow
def test_a_decoder_of_8_lanes_is_proved(tmp_path: Path) -> None:
    needs_tools()
    assert equivalence.main(["--lanes", "8", "--out", str(tmp_path)]) == 0
