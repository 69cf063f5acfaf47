// Smoke test of the exported decoder (verif/icarus): one segment in, its values printed.
`timescale 1ns / 1ps
module testbench;
  reg clk = 0;
  reg rst = 1;
  always #1 clk = ~clk;

  reg [10:0] book[0:`ENTRIES];  // user, last, exponent
  reg [`BUS:0] speculation[0:`SPECULATION];  // last, data
  reg [`WIDE:0] verification[0:`VERIFICATION];
  integer entry = 0, first = 0, second = 0, cycles = 0;
  reg asked = 0;
  initial begin
    $readmemh("book.hex", book);
    $readmemh("speculation.hex", speculation);
    $readmemh("verification.hex", verification);
    repeat (4) @(negedge clk);
    rst = 0;
  end

  wire command_ready, book_ready, first_ready, second_ready;
  wire [`VALUES-1:0] data;
  wire [`VALUES/8-1:0] keep;
  wire valid, last, user, busy;
  wire [6:0] error;
  wire book_valid = !rst && entry < `ENTRIES;
  wire command_valid = !rst && entry == `ENTRIES && !asked;
  wire first_valid = !rst && first < `SPECULATION;
  wire second_valid = !rst && second < `VERIFICATION;
  wire ready = cycles % 3 != 0;  // some back-pressure

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
    cycles <= cycles + 1;
    if (book_valid && book_ready) entry <= entry + 1;
    if (command_valid && command_ready) asked <= 1;
    if (first_valid && first_ready) first <= first + 1;
    if (second_valid && second_ready) second <= second + 1;
    if (!rst && valid && ready) begin
      $display("%h %h %b", data, keep, user);
      if (last) $finish;
    end
    if (cycles > 100000) $fatal(1, "nothing came");
  end
endmodule
