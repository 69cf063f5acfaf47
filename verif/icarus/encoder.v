// Smoke test of the exported encoder (verif/icarus): one segment in, its regions and result printed.
`timescale 1ns / 1ps
module testbench;
  reg clk = 0;
  reg rst = 1;
  always #1 clk = ~clk;

  reg [8:0] book[0:`ENTRIES];  // last, exponent
  reg [`VALUES+`VALUES/8:0] values[0:`BEATS];  // last, keep, data
  integer entry = 0, beat = 0, cycles = 0;
  reg asked = 0;
  initial begin
    $readmemh("book.hex", book);
    $readmemh("values.hex", values);
    repeat (4) @(negedge clk);
    rst = 0;
  end

  wire command_ready, book_ready, values_ready;
  wire [`BUS-1:0] first, second;
  wire first_valid, first_last, second_valid, second_last, result_valid, busy;
  wire [`RESULT-1:0] result;
  wire book_valid = !rst && entry < `ENTRIES;
  wire command_valid = !rst && entry == `ENTRIES && !asked;
  wire values_valid = !rst && beat < `BEATS;
  wire ready = cycles % 3 != 0;  // some back-pressure

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
    cycles <= cycles + 1;
    if (book_valid && book_ready) entry <= entry + 1;
    if (command_valid && command_ready) asked <= 1;
    if (values_valid && values_ready) beat <= beat + 1;
    if (!rst && first_valid && ready) $display("speculation %h %b", first, first_last);
    if (!rst && second_valid && ready) $display("verification %h %b", second, second_last);
    if (!rst && result_valid) begin
      $display("result %h 1", result);
      $finish;
    end
    if (cycles > 100000) $fatal(1, "nothing came");
  end
endmodule
