// Draft values of packed weights: the decoder without its verification region, and a count of the
// values that were taken since the reset. docs/hardware/microarchitecture.md describes the decoder's ports.
module draft_reader (
    input  wire         clk,
    input  wire         rst,
    // A word for each segment; its fields `target` and `verification` must be 0.
    input  wire [31:0]  command_tdata,
    input  wire         command_tvalid,
    output wire         command_tready,
    // The speculation region of the segment.
    input  wire [63:0]  speculation_tdata,
    input  wire         speculation_tvalid,
    output wire         speculation_tready,
    input  wire         speculation_tlast,
    // Eight BF16 values in a beat.
    output wire [127:0] values_tdata,
    output wire [15:0]  values_tkeep,
    output wire         values_tvalid,
    input  wire         values_tready,
    output wire         values_tlast,
    output wire         values_tuser,
    output reg  [31:0]  count,
    output wire         failed
);
  wire [6:0] error;
  wire       unused_codebook, unused_verification, unused_busy;
  assign failed = |error;

  cassandra_decoder_l8_exact_b16 decoder (
      .clk(clk),
      .rst(rst),
      .s_axis_command_tdata(command_tdata),
      .s_axis_command_tvalid(command_tvalid),
      .s_axis_command_tready(command_tready),
      .s_axis_codebook_tdata(8'b0),
      .s_axis_codebook_tvalid(1'b0),
      .s_axis_codebook_tready(unused_codebook),
      .s_axis_codebook_tlast(1'b0),
      .s_axis_speculation_tdata(speculation_tdata),
      .s_axis_speculation_tvalid(speculation_tvalid),
      .s_axis_speculation_tready(speculation_tready),
      .s_axis_speculation_tlast(speculation_tlast),
      .s_axis_verification_tdata(64'b0),
      .s_axis_verification_tvalid(1'b0),
      .s_axis_verification_tready(unused_verification),
      .s_axis_verification_tlast(1'b0),
      .m_axis_values_tdata(values_tdata),
      .m_axis_values_tkeep(values_tkeep),
      .m_axis_values_tvalid(values_tvalid),
      .m_axis_values_tready(values_tready),
      .m_axis_values_tlast(values_tlast),
      .m_axis_values_tuser(values_tuser),
      .error(error),
      .clear_error(1'b0),
      .busy(unused_busy)
  );

  // Two bits of `tkeep` for each value.
  integer lane;
  reg [3:0] taken;
  always @* begin
    taken = 4'd0;
    for (lane = 0; lane < 8; lane = lane + 1) taken = taken + {3'b0, values_tkeep[2*lane]};
  end

  always @(posedge clk) begin
    if (rst) count <= 32'd0;
    else if (values_tvalid && values_tready) count <= count + {28'b0, taken};
  end
endmodule
