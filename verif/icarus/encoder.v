// Smoke test of the exported encoder (verif/icarus): one segment in, its regions and result printed.
`timescale 1ns / 1ps
module testbench;
`include "common.vh"
`include "commands.vh"

  reg [`VALUES+`VALUES/8:0] values[0:`BEATS];  // last, keep, data
  integer beat = 0;
  initial $readmemh("values.hex", values);

  wire values_ready;
  wire [`BUS-1:0] first, second;
  wire first_valid, first_last, second_valid, second_last, result_valid, busy;
  wire [`RESULT-1:0] result;
  wire values_valid = !rst && beat < `BEATS;

  `TOP dut (
      .clk(clk),
      .rst(rst),
      .s_axis_command_tdata(`COMMAND),
      .s_axis_command_tvalid(command_valid),
      .s_axis_command_tready(command_ready),
      .s_axis_codebook_tdata(book[entry][7:0]),
      .s_axis_codebook_tlast(book[entry][8]),
      .s_axis_codebook_tvalid(book_valid),
      .s_axis_codebook_tready(book_ready),
      .s_axis_values_tdata(values[beat][`VALUES-1:0]),
      .s_axis_values_tkeep(values[beat][`VALUES+`VALUES/8-1:`VALUES]),
      .s_axis_values_tlast(values[beat][`VALUES+`VALUES/8]),
      .s_axis_values_tvalid(values_valid),
      .s_axis_values_tready(values_ready),
      .m_axis_speculation_tdata(first),
      .m_axis_speculation_tlast(first_last),
      .m_axis_speculation_tvalid(first_valid),
      .m_axis_speculation_tready(ready),
      .m_axis_verification_tdata(second),
      .m_axis_verification_tlast(second_last),
      .m_axis_verification_tvalid(second_valid),
      .m_axis_verification_tready(ready),
      .m_axis_result_tdata(result),
      .m_axis_result_tvalid(result_valid),
      .m_axis_result_tready(1'b1),
      .busy(busy)
  );

  always @(posedge clk) begin
    if (values_valid && values_ready) beat <= beat + 1;
    if (!rst && first_valid && ready) $display("speculation %h %b", first, first_last);
    if (!rst && second_valid && ready) $display("verification %h %b", second, second_last);
    if (!rst && result_valid) begin
      $display("result %h 1", result);
      $finish;
    end
  end
endmodule
