"""A testbench for Icarus Verilog around any exported top, which finds X where it must not be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

AFTER = 32
"""Bit position in a word, above its payload, of the number of earlier words of the other control
stream.
"""

_OTHER = {"command": "codebook", "codebook": "command"}


class Ports:
    """Ports of a top by stream: names and widths of payloads, inputs and outputs apart."""

    def __init__(self, widths: Mapping[str, tuple[str, int]]) -> None:
        self.sources = dict(_streams(widths, "s_axis_"))
        self.sinks = dict(_streams(widths, "m_axis_"))
        self.others = {
            name: width
            for name, (way, width) in widths.items()
            if "_axis_" not in name and way == "output" and name not in ("clk", "rst")
        }
        self.inputs = [
            name
            for name, (way, _) in widths.items()
            if way == "input" and "_axis_" not in name and name not in ("clk", "rst")
        ]

    def number(self, stream: str, word: Mapping[str, int], after: int = 0) -> int:
        """Return a word of a source as its file has it: fields from bit 0 up, then ``after``."""
        at, number = 0, 0
        for name, width in self.sources[stream].items():
            number |= word[name.rpartition("_")[2]] << at
            at += width
        return number | after << at


def _streams(
    widths: Mapping[str, tuple[str, int]], prefix: str
) -> Iterator[tuple[str, dict[str, int]]]:
    for valid in (name for name in widths if name.startswith(prefix) and name.endswith("_tvalid")):
        stem = valid.removesuffix("tvalid")
        fields = {
            name: width
            for name, (_, width) in widths.items()
            if name.startswith(stem) and name not in (valid, f"{stem}tready")
        }
        yield stem.removeprefix(prefix).removesuffix("_"), fields


def testbench(module: str, ports: Ports, idle: str) -> str:
    """Return Verilog; plusargs give each source's words and the number of segments of the run.

    Sources offer the bit ``idle`` while nothing is valid.
    """
    pins = [".clk(clk)", ".rst(rst)", *(f".{name}(1'b0)" for name in ports.inputs)]
    lines: list[str] = []
    for name, fields in ports.sources.items():
        lines += _source(name, fields, idle)
        pins += _pins(f"s_axis_{name}", fields)
    for name, fields in ports.sinks.items():
        lines += _sink(name, fields)
        pins += _pins(f"m_axis_{name}", fields)
    for name, width in ports.others.items():
        lines += [f"wire [{width - 1}:0] {name};", *_known("1", name)]
        pins.append(f".{name}({name})")
    body = "\n".join((*lines, f"{module} dut ({', '.join(pins)});"))
    return f"`timescale 1ns / 1ps\nmodule testbench;\n{_CLOCK}\n{body}\nendmodule\n"


_CLOCK = """
reg clk = 0, rst = 1;
integer cycles = 0, quiet = 0, ended = 0, ends = 0, seed = 1;
always #1 clk = ~clk;
initial begin
  if (!$value$plusargs("ends=%d", ends)) ends = 0;
  repeat (4) @(negedge clk);
  rst = 0;
end
always @(posedge clk) begin
  cycles <= cycles + 1;
  quiet <= quiet + 1;
  if (quiet > 3000) begin $display("nothing comes in cycle %0d", cycles); $finish; end
  if (ended >= ends) begin $display("cycles %0d", cycles); $finish; end
end
"""


def _pins(stem: str, fields: Mapping[str, int]) -> list[str]:
    return [f".{name}({name})" for name in (f"{stem}_tvalid", f"{stem}_tready", *fields)]


def _source(name: str, fields: Mapping[str, int], idle: str) -> list[str]:
    """Offer the words in order; an offer stays until it is taken."""
    width, stem = sum(fields.values()), f"s_axis_{name}"
    due = "1"
    if name in _OTHER:
        due = f"{_OTHER[name]}_at >= {name}_word[{width + AFTER - 1}:{width}]"
    wires = f"{{{', '.join(reversed(list(fields)))}}}"
    return [
        f"reg [{width + AFTER - 1}:0] {name}_words[0:(1<<18)];",
        f"integer {name}_at = 0, {name}_count = 0; reg {name}_may = 0;",
        f'initial begin $readmemh("{name}.hex", {name}_words);'
        f' if (!$value$plusargs("{name}=%d", {name}_count)) {name}_count = 0; end',
        f"wire [{width + AFTER - 1}:0] {name}_word = {name}_words[{name}_at];",
        *(f"wire [{size - 1}:0] {field};" for field, size in fields.items()),
        f"wire {stem}_tready;",
        f"wire {stem}_tvalid = !rst && {name}_may && {name}_at < {name}_count && {due};",
        f"assign {wires} = {stem}_tvalid ? {name}_word[{width - 1}:0] : {{{width}{{1'b{idle}}}}};",
        "always @(posedge clk)",
        f"  if ({stem}_tvalid && {stem}_tready === 1'b1) begin",
        f"    {name}_at <= {name}_at + 1; {name}_may <= $random(seed); quiet <= 0;",
        f"  end else if (!{name}_may) {name}_may <= $random(seed);",
        *_known("1", f"{stem}_tready"),
    ]


def _sink(name: str, fields: Mapping[str, int]) -> list[str]:
    """Take words at random and print them; offers must be known."""
    stem = f"m_axis_{name}"
    valid, ready = f"{stem}_tvalid", f"{stem}_tready"
    last = f"{stem}_tlast" if f"{stem}_tlast" in fields else "1'b1"
    ends = name in ("values", "result")
    lines = [
        *(f"wire [{size - 1}:0] {field};" for field, size in fields.items()),
        f"wire {valid}; reg {ready} = 0;",
        f"always @(posedge clk) begin {ready} <= $random(seed);",
        f"  if (!rst && {valid} === 1'b1 && {ready}) begin quiet <= 0;",
        f'    $display("{stem}{" %h" * len(fields)}", {", ".join(fields)});',
        f"    if ({last}) ended = ended + 1;" if ends else "",
        "  end",
        "end",
        *_known("1", valid),
    ]
    keep = f"{stem}_tkeep"
    for field, width in fields.items():
        if field.endswith("_tdata") and keep in fields:
            for lane in range(width // 8):
                lines += _known(f"{valid} && {keep}[{lane}]", f"{field}[{8 * lane + 7}:{8 * lane}]")
        else:
            lines += _known(valid, field)
    return lines


def _known(when: str, what: str) -> Sequence[str]:
    """Check in cycles without reset that no bit is X."""
    return (
        f"always @(posedge clk) if (!rst && ({when}) && ^{what} === 1'bx) begin",
        f'  $display("unknown {what} in cycle %0d", cycles); $finish; end',
    )
