"""A module with the ports of the decoder that misbehaves as the field t of the command says."""

from __future__ import annotations

from cassandra_spec.rtl.common.command import DecoderConfig

LANES = 8
CONFIG = DecoderConfig(lanes=LANES, schemes=("unary",))
MODULE = CONFIG.module_name
GOOD, SILENT, DROPS, CHANGES, GAP, FEW, NO_CAUSE, MANY = range(8)

VERILOG = f"""
module {MODULE} (
    input clk, input rst,
    input [31:0] s_axis_command_tdata, input s_axis_command_tvalid, output s_axis_command_tready,
    input [7:0] s_axis_codebook_tdata, input s_axis_codebook_tlast,
    input s_axis_codebook_tvalid, output s_axis_codebook_tready,
    input [63:0] s_axis_speculation_tdata, input s_axis_speculation_tlast,
    input s_axis_speculation_tvalid, output s_axis_speculation_tready,
    input [63:0] s_axis_verification_tdata, input s_axis_verification_tlast,
    input s_axis_verification_tvalid, output s_axis_verification_tready,
    output [127:0] m_axis_values_tdata, output [15:0] m_axis_values_tkeep,
    output m_axis_values_tlast, output m_axis_values_tuser,
    output m_axis_values_tvalid, input m_axis_values_tready,
    output [6:0] error, input clear_error, output busy
);
  reg running = 0;
  reg [2:0] mode = 0;
  reg [16:0] left = 0;
  reg [15:0] age = 0;
  wire _odd_ = ~age[0];  // a name as Yosys gives them
  wire take = s_axis_command_tvalid & ~running;
  wire [16:0] count = s_axis_command_tdata[15:0] + 17'd1;
  wire [2:0] asked = s_axis_command_tdata[20:18];
  wire full = left > {LANES};
  wire moved = m_axis_values_tvalid & m_axis_values_tready;
  assign s_axis_command_tready = ~running;
  assign s_axis_codebook_tready = 1;
  assign s_axis_speculation_tready = 1;
  assign s_axis_verification_tready = 1;
  assign m_axis_values_tvalid = running & (mode != {SILENT}) & ~((mode == {DROPS}) & age[0]);
  assign m_axis_values_tdata = (mode == {CHANGES}) ? {{8{{age}}}} : 0;
  assign m_axis_values_tlast = ~full;
  assign m_axis_values_tuser = (mode == {NO_CAUSE}) & ~full;
  wire [15:0] tail = 16'hFFFF >> (2 * ({LANES} - left));
  assign m_axis_values_tkeep = (mode == {NO_CAUSE}) & ~full ? 0
      : (mode == {GAP}) ? 16'hFFF3 : full ? 16'hFFFF : tail;
  assign error = 0;
  assign busy = running;
  always @(posedge clk) begin
    age <= age + 1;
    if (take) begin
      running <= 1;
      mode <= asked;
      left <= count - (asked == {FEW}) + (asked == {MANY});
    end else if (moved) begin
      if (full) left <= left - {LANES};
      else running <= 0;
    end
    if (rst) running <= 0;
  end
endmodule
"""
