"""Line, branch and toggle coverage: counts, proofs of what cannot be seen, waivers."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.verif.formal.prover import missing_tools
from cassandra_spec.verif.linecov.__main__ import main, report
from cassandra_spec.verif.linecov.points import Design, Point, designs, plain
from cassandra_spec.verif.linecov.unreachable import unreachable
from cassandra_spec.verif.linecov.waivers import Waiver, load, waived

VERILOG = """module top(input clk, input rst, input [1:0] a, output reg [2:0] y);
  wire never;
  wire rare;
  assign never = (a > 2'd2) & (a < 2'd1);
  assign rare = a == 2'd3;
  always @(posedge clk) begin
    if (never ) begin
      y <= 3'd7;
    end
    if (rare ) begin
      y <= 3'd1;
    end
    if (rst) y <= 0;
  end
endmodule
"""


def counted(kind: str, line: int, what: str, count: int, *, instance: str = "top") -> str:
    """Return a line as Verilator writes it, whose page has a shortened name."""
    fields = {"f": "top.v", "l": line, "n": 1, "t": kind, "page": f"v_{kind}/t__Vhsh", "o": what}
    fields["h"] = instance
    keys = "".join(f"\x01{key}\x02{value}" for key, value in fields.items())
    return f"C '{keys}' {count}\n"


NEVER = Point(kind="branch", module="", line=7, column=1, what="if")
RARE = Point(kind="branch", module="", line=10, column=1, what="if")
STUCK = Point(kind="toggle", module="", line=2, column=1, what="never:0->1")


@pytest.fixture
def design(tmp_path: Path) -> Design:
    """Return two runs of a design; one has taken the rare branch, or neither has."""
    (tmp_path / "top-1.v").write_text(VERILOG)
    points = (("branch", 7, "if"), ("branch", 10, "if"), ("toggle", 2, "never:0->1"))
    for run, instance in (("a", "TOP.top"), ("b", "top")):  # the bulk harness, cocotb
        lines = [counted(kind, line, what, 0, instance=instance) for kind, line, what in points]
        lines.append(counted("line", 6, "block", 3, instance=instance))
        (tmp_path / f"top-1.{run}.dat").write_text("".join(lines), encoding="latin1")
    (found,) = designs(tmp_path)
    return found


def test_runs_add_up(design: Design) -> None:
    block = Point(kind="line", module="", line=6, column=1, what="block")
    assert design.counts[block] == 6
    assert design.holes == [STUCK, NEVER, RARE]


def test_names_are_those_of_the_source() -> None:
    assert plain("__02417[3]") == "$17[3]"
    assert plain("stage_2__DOT__high__BRA__0__KET__") == "stage_2.high[0]"
    assert plain("errors__02447__02ecode") == "errors$47.code"


@pytest.mark.skipif(bool(missing_tools()), reason="Yosys is not there")
def test_what_cannot_happen_is_proved_and_what_has_not_happened_is_not(
    design: Design, tmp_path: Path
) -> None:
    chained = dataclasses.replace(NEVER, kind="line", what="elsif")
    holes = [*design.holes, chained]
    assert unreachable(design, holes, tmp_path / "proofs", 5) == {NEVER, STUCK, chained}


NESTED = """module top(input clk, input rst, input a, output y);
  wire [3:0] pair;
  wire [1:0] \\pair[0] ;
  assign pair = {2'd0, y, a};
  assign \\pair[0] = pair[1:0];
  \\top.inner inner (.a(a), .b(1'b0), .y(y));
endmodule

module \\top.inner (input a, input b, output y);
  wire both;
  wire \\$1 ;
  assign both = a & b;
  assign \\$1 = a & ~a;
  assign y = both | \\$1 | a;
endmodule
"""


@pytest.mark.skipif(bool(missing_tools()), reason="Yosys is not there")
def test_a_module_is_tried_alone_and_then_where_it_is(tmp_path: Path) -> None:
    """Bits may be zero in a module alone, or only for its inputs in the design.

    A bit of a field has a name that looks like a field of a bit.
    """

    def change(module: str, signal: str) -> Point:
        return Point(kind="toggle", module=module, line=1, column=1, what=f"{signal}:0->1")

    (tmp_path / "top-1.v").write_text(NESTED)
    none, both, high = change("inner", "$1"), change("inner", "both"), change("", "pair[2]")
    seen = (change("inner", "a"), change("", "pair[0]"))
    counts = dict.fromkeys((none, both, high, *seen), 0)
    nested = Design(name="top", source=tmp_path / "top-1.v", counts=counts)
    alone = unreachable(nested, nested.holes, tmp_path / "alone", 5, whole=False)
    assert alone == {none, high}
    assert unreachable(nested, nested.holes, tmp_path / "whole", 5) == {none, both, high}


WRAPPED = """module cassandra_dma_x(input clk, input a, output y, output z);
  \\cassandra_dma_x.top top (.clk(clk), .a(a), .y(y));
  assign z = 1'b0;
endmodule

module \\cassandra_dma_x.top (input clk, input a, output reg y);
  wire to;
  wire from;
  wire unread;
  wire sent;
  wire low;
  assign to = a & y & 1'b0;
  assign unread = ~a;
  assign sent = a ^ y;
  assign low = from & to;
  \\cassandra_dma_x.top.engine.channel_0.decoder \\engine.channel_0.decoder (.i(sent), .o(from));
  initial y = 0;
  always @(posedge clk) y <= from | low;
endmodule

module \\cassandra_dma_x.top.engine.channel_0.decoder (input i, output o);
  assign o = i & 1'b0;
endmodule
"""


@pytest.fixture
def wrapped(tmp_path: Path) -> Design:
    """Return a DMA with its rules and its decoder, in which nothing was seen."""
    (tmp_path / "cassandra_dma_x-1.v").write_text(WRAPPED)
    top = "cassandra_dma_x.top"
    signals: dict[str, tuple[str, ...]] = {
        "cassandra_dma_x": ("z",),
        f"{top}.engine.channel_0.decoder": ("o",),
    }
    signals[top] = ("to", "from", "sent", "unread", "low", "y")
    lines = [
        counted("toggle", 1, f"{name}:0->1", 0, instance=module)
        for module, names in signals.items()
        for name in names
    ]
    (tmp_path / "cassandra_dma_x-1.a.dat").write_text("".join(lines), encoding="latin1")
    (found,) = designs(tmp_path)
    return found


def test_decoders_in_a_dma_and_rules_beside_it_are_not_counted(wrapped: Design) -> None:
    assert {point.what for point in wrapped.counts} == {
        f"{name}:0->1" for name in ("to", "from", "sent", "unread", "low", "y")
    }
    assert {point.module for point in wrapped.counts} == {""}
    assert wrapped.engines == {"engine.channel_0.decoder"}


@pytest.mark.skipif(bool(missing_tools()), reason="Yosys is not there")
def test_what_comes_out_of_an_engine_is_free(wrapped: Design, tmp_path: Path) -> None:
    """And a bit that only the engine reads is read."""
    proved = unreachable(wrapped, wrapped.holes, tmp_path / "proofs", 5)
    assert {hole.what for hole in proved} == {"to:0->1", "low:0->1", "unread:0->1"}


@pytest.mark.skipif(bool(missing_tools()), reason="Yosys is not there")
def test_an_open_hole_is_named_and_a_stale_waiver_too(
    design: Design, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report([design], [], tmp_path, 5) == 1
    printed = capsys.readouterr().out
    assert "open: top, line 10: branch if: if (rare ) begin" in printed
    assert printed.count("open:") == 1
    good = Waiver(kinds=("branch",), design="t*", module="*", text="rare", reason="it is rare")
    assert report([design], [good], tmp_path, 5) == 0
    stale = Waiver(kinds=("line",), design="t*", module="*", text="rare", reason="it was a line")
    assert report([design], [good, stale], tmp_path, 5) == 1
    assert "waiver covers nothing" in capsys.readouterr().out
    elsewhere = dataclasses.replace(stale, design="other")
    assert report([design], [good, elsewhere], tmp_path, 5) == 0
    assert "         0     if (rare ) begin" in (tmp_path / "top-1.annotated.txt").read_text()


def test_a_waiver_is_about_its_kinds_modules_and_text(design: Design) -> None:
    def covers(**changed: object) -> bool:
        fields = {
            "kinds": ("branch",),
            "design": "*",
            "module": "*",
            "text": "never",
            "reason": "x",
        }
        waiver = Waiver(**{"reason": "x", **fields, **changed})  # type: ignore[arg-type]
        return bool(waived([waiver], [(design, NEVER)])[0])

    assert covers()
    assert not covers(kinds=("toggle",))
    assert not covers(module="inner")
    assert not covers(design="other")
    assert not covers(text="rare")


NAMELESS = """module top(input clk, input [7:0] step, output reg [7:0] total);
  wire [7:0] \\$1 ;
  reg [7:0] \\$2 ;
  assign \\$1  = total + step;
  always @* begin
    \\$2  = \\$1 ;
    if (step == 8'd9) begin
      \\$2  = 8'd0;
    end
  end
  always @(posedge clk) total <= \\$2 ;
endmodule
"""


def test_a_waiver_may_name_what_is_assigned(tmp_path: Path) -> None:
    (tmp_path / "top-1.v").write_text(NAMELESS)
    hole = Point(kind="toggle", module="", line=3, column=1, what="$2[7]:0->1")
    design = Design(name="top", source=tmp_path / "top-1.v", counts={hole: 0})
    assert design.text(hole) == "$2[7]:0->1 = (total + step)"
    fields = {"kinds": ("toggle",), "design": "*", "module": "*", "reason": "x"}
    for text, covered in ((r"\[7\].* = .total \+", True), (r"\[6\]", False)):
        waiver = Waiver(text=text, **fields)  # type: ignore[arg-type]
        assert bool(waived([waiver], [(design, hole)])[0]) == covered


def test_waivers_have_reasons(tmp_path: Path) -> None:
    assert all(waiver.reason for waiver in load())
    for kind, reason in (("line", ""), ("lines", "b")):
        (tmp_path / "waivers.toml").write_text(f'["{kind}"."*"."*"]\na = "{reason}"\n')
        with pytest.raises(CassandraError, match=f"and a reason, not '{kind}' and '{reason}'"):
            load(tmp_path / "waivers.toml")


def test_bad_arguments_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["decoder_l9"]) == 2
    assert "SUITES must be of decoder_l8" in capsys.readouterr().err
    assert main(["--no-run", "--out", str(tmp_path)]) == 2
    assert "--out must have the counts of a run" in capsys.readouterr().err
    (tmp_path / "top-1.v").write_text(VERILOG)
    assert main(["--no-run", "--out", str(tmp_path)]) == 2
    assert "top-1.v must have the counts of a run" in capsys.readouterr().err
