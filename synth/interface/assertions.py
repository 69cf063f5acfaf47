"""SystemVerilog assertions beside the exported Verilog, bound to the top.

They are immediate assertions in clocked blocks, which Verilator, Yosys and Icarus Verilog read.
"""

from __future__ import annotations

from collections.abc import Mapping

Ports = Mapping[str, tuple[str, int]]
"""Direction and width of each port, by name."""

_HEADER = """\
// Assertions of {name}. With this file in a simulation, they are bound to each instance of the top
// and fail where it, or what surrounds it, breaks the rules of its ports. They begin with the first
// reset. Icarus Verilog and Yosys do not bind: instantiate {name}_assertions beside the top.
// Simulators with two states, such as Verilator, cannot find unknown values (*_known). Apache-2.0.
"""

_CHANNEL = """
// The rules of valid and ready. Bits of the payload that do not count may be unknown.
module {name}_channel #(
    parameter WIDTH = 1,
    parameter OUTPUT = 0
) (
    input clk,
    input rst,
    input valid,
    input ready,
    input [WIDTH-1:0] payload,
    input [WIDTH-1:0] counts
);
  reg checking, after_reset, waiting;
  reg [WIDTH-1:0] held;
  initial checking = 1'b0;
  always @(posedge clk) begin
    if (rst) checking <= 1'b1;
    after_reset <= rst;
    waiting <= !rst && valid && !ready;
    held <= payload;
    if (checking && !rst) begin
      begin : valid_known assert ((^valid) !== 1'bx); end
      begin : ready_known assert ((^ready) !== 1'bx); end
      if (valid) begin : payload_known assert ((^(payload & counts)) !== 1'bx); end
      if (waiting) begin : valid_stays assert (valid); end
      if (waiting) begin : payload_stays assert (payload === held); end
      if (OUTPUT != 0 && after_reset) begin : idle_after_reset assert (!valid); end
    end
  end
endmodule
"""

_ANSWERS = """
// No more answers than the requests before them ask for.
module {name}_answers (
    input clk,
    input rst,
    input asks,
    input [8:0] number,
    input valid,
    input ready
);
  reg checking;
  reg [31:0] owed;
  wire [31:0] due = asks ? owed + {{23'd0, number}} : owed;
  initial checking = 1'b0;
  always @(posedge clk) begin
    if (rst) checking <= 1'b1;
    owed <= rst ? 32'd0 : valid && ready ? due - 32'd1 : due;
    if (checking && !rst && valid) begin : asked assert (due != 32'd0); end
  end
endmodule
"""

_ANSWERED = {
    "m_axi_r": ("m_axi_ar", "", "{1'b0, m_axi_arlen} + 9'd1"),
    "m_axi_b": ("m_axi_w", " && m_axi_wlast", "9'd1"),
    "s_axil_r": ("s_axil_ar", "", "9'd1"),
    "s_axil_b": ("s_axil_w", "", "9'd1"),
}
"""For each channel of answers: the channel that asks, a condition, and the number of answers."""

_BURSTS = {"m_axi_ar": "m_axi_rdata", "m_axi_aw": "m_axi_wdata"}
"""For each address channel: the data whose width is that of the bus."""

_BURST = """\
      if ({channel}valid) begin
        begin : {channel}_increments assert ({channel}burst == 2'b01); end
        begin : {channel}_whole_words assert ({channel}size == 3'd{low}); end
        begin : {channel}_aligned assert ({channel}addr[{top}:0] == {low}'d0); end
        begin : {channel}_in_page assert ({channel}_end <= 20'd4096); end
      end
"""
_BURST_END = """\
  wire [19:0] {channel}_end = {{8'd0, {channel}addr[11:0]}}
      + ({{11'd0, {{1'b0, {channel}len}} + 9'd1}} << {low});
"""

_STICKY = """\
      if (!error_cleared) begin : error_stays assert ((error & error_before) === error_before); end
"""
_STICKY_STATE = """\
    error_before <= error;
    error_cleared <= rst || clear_error;
"""

_IRQ = """\
      if (!irq_cleared) begin : irq_stays assert (irq || !irq_before); end
"""
_IRQ_STATE = """\
    irq_before <= irq;
    irq_cleared <= rst || core_rst || s_axil_bvalid;  // one cycle before irq falls
"""

_TOP = """
module {name}_assertions (
{inputs}
);
{body}
  reg checking;
{registers}  initial checking = 1'b0;
  always @(posedge clk) begin
    if (rst) checking <= 1'b1;
{state}    if (checking && !rst) begin
{rules}    end
  end
endmodule

`ifndef __ICARUS__
`ifndef YOSYS
bind {name} {name}_assertions assertions ({pins});
`endif
`endif
"""


def assertions(name: str, ports: Ports) -> str:
    """Write the assertions of a top as SystemVerilog, with the ``bind`` that places them."""
    channels = [port.removesuffix("valid") for port in ports if port.endswith("valid")]
    body = "" if "rst" in ports else "  wire rst = !aresetn;\n"
    body += "".join(_channel(name, channel, ports) for channel in channels)
    body += "".join(_answers(name, channel) for channel in channels if channel in _ANSWERED)
    registers, state, rules = _own(ports, channels)
    top = _TOP.format(
        name=name,
        inputs=",\n".join(f"    input {_range(width)}{port}" for port, (_, width) in ports.items()),
        body=body,
        registers=registers,
        state=state,
        rules=rules,
        pins=", ".join(f".{port}({port})" for port in ports),
    )
    answers = _ANSWERS.format(name=name) if _ANSWERED.keys() & set(channels) else ""
    return _HEADER.format(name=name) + top + _CHANNEL.format(name=name) + answers


def _range(width: int) -> str:
    return "" if width == 1 else f"[{width - 1}:0] "


def _fields(channel: str, ports: Ports) -> dict[str, int]:
    """Return the widths of the payload's ports."""
    pair = (f"{channel}valid", f"{channel}ready")
    return {
        port: width
        for port, (_, width) in ports.items()
        if port.startswith(channel) and port not in pair
    }


def _channel(name: str, channel: str, ports: Ports) -> str:
    """Write the checker of one channel."""
    fields, counts = _fields(channel, ports), f"{channel}_counts"
    total, output = sum(fields.values()), int(ports[f"{channel}valid"][0] == "output")
    masks = [_mask(channel, port, fields) for port in fields]
    return f"""\
  wire [{total - 1}:0] {counts} = {{{", ".join(masks)}}};
  {name}_channel #(
      .WIDTH({total}),
      .OUTPUT({output})
  ) {channel.removesuffix("_t")} (
      .clk(clk),
      .rst(rst),
      .valid({channel}valid),
      .ready({channel}ready),
      .payload({{{", ".join(fields)}}}),
      .counts({counts})
  );
"""


def _mask(channel: str, port: str, fields: Mapping[str, int]) -> str:
    """Return the bits of a port that count: bytes in use, and all data but those of an error."""
    width = fields[port]
    if port == f"{channel}data":
        for strobes in (f"{channel}keep", f"{channel}strb"):
            if strobes in fields:
                lanes = (f"{{8{{{strobes}[{lane}]}}}}" for lane in reversed(range(width // 8)))
                return f"{{{', '.join(lanes)}}}"
        if f"{channel}resp" in fields:
            return f"{{{width}{{!{channel}resp[1]}}}}"
    return f"{{{width}{{1'b1}}}}"


def _answers(name: str, channel: str) -> str:
    """Write the checker that a channel has no answers without requests."""
    asking, condition, number = _ANSWERED[channel]
    return f"""\
  {name}_answers {channel}_answers (
      .clk(clk),
      .rst(rst),
      .asks({asking}valid && {asking}ready{condition}),
      .number({number}),
      .valid({channel}valid),
      .ready({channel}ready)
  );
"""


def _own(ports: Ports, channels: list[str]) -> tuple[str, str, str]:
    """Return declarations, updates and assertions of the ports outside the channels."""
    registers = state = ""
    rules = "".join(_known(port, channels) for port in ports)
    if "error" in ports:
        registers += f"  reg {_range(ports['error'][1])}error_before;\n  reg error_cleared;\n"
        state, rules = state + _STICKY_STATE, rules + _STICKY
    if "irq" in ports:
        registers += "  reg irq_before, irq_cleared;\n"
        state, rules = state + _IRQ_STATE, rules + _IRQ
    for channel, data in _BURSTS.items():
        if data in ports:
            low = (ports[data][1] // 8).bit_length() - 1
            registers += _BURST_END.format(channel=channel, low=low)
            rules += _BURST.format(channel=channel, low=low, top=low - 1)
    return registers, state, rules


def _known(port: str, channels: list[str]) -> str:
    """Write that a port outside the channels is known."""
    if port in ("clk", "rst", "aresetn") or port.startswith(tuple(channels)):
        return ""
    return f"      begin : {port}_known assert ((^{port}) !== 1'bx); end\n"
