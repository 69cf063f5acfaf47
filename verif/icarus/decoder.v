// Smoke test of the exported decoder (verif/icarus): one segment in, its values printed.
`timescale 1ns / 1ps
module testbench;
`include "common.vh"
`include "commands.vh"
`include "values.vh"

  reg [`BUS:0] speculation[0:`SPECULATION];  // last, data
  reg [`WIDE:0] verification[0:`VERIFICATION];
  integer first = 0, second = 0;
  initial begin
    $readmemh("speculation.hex", speculation);
    $readmemh("verification.hex", verification);
  end

  wire first_ready, second_ready, busy;
  wire [6:0] error;
  wire first_valid = !rst && first < `SPECULATION;
  wire second_valid = !rst && second < `VERIFICATION;

  `TOP dut (
      .clk(clk),
      .rst(rst),
      .s_axis_command_tdata(`COMMAND),
      .s_axis_command_tvalid(command_valid),
      .s_axis_command_tready(command_ready),
      .s_axis_codebook_tdata(book[entry][7:0]),
      .s_axis_codebook_tlast(book[entry][8]),
`ifdef CODED
      .s_axis_codebook_tuser(book[entry][10:9]),
`endif
      .s_axis_codebook_tvalid(book_valid),
      .s_axis_codebook_tready(book_ready),
      .s_axis_speculation_tdata(speculation[first][`BUS-1:0]),
      .s_axis_speculation_tlast(speculation[first][`BUS]),
      .s_axis_speculation_tvalid(first_valid),
      .s_axis_speculation_tready(first_ready),
      .s_axis_verification_tdata(verification[second][`WIDE-1:0]),
      .s_axis_verification_tlast(verification[second][`WIDE]),
      .s_axis_verification_tvalid(second_valid),
      .s_axis_verification_tready(second_ready),
      .m_axis_values_tdata(data),
      .m_axis_values_tkeep(keep),
      .m_axis_values_tlast(last),
      .m_axis_values_tuser(user),
      .m_axis_values_tvalid(valid),
      .m_axis_values_tready(ready),
      .error(error),
      .clear_error(1'b0),
      .busy(busy)
  );

  always @(posedge clk) begin
    if (first_valid && first_ready) first <= first + 1;
    if (second_valid && second_ready) second <= second + 1;
  end
endmodule
