// A user's wrapper of a decoder of 8 lanes: a draft segment goes in while values wait, then all
// values are taken. +fault=N plants a fault in how words are offered.
`timescale 1ns / 1ps
module wrapper;
  reg clk = 0, rst = 1;
  always #1 clk = ~clk;

  reg [64:0] words[0:`WORDS];
  integer fault = 0, cycles = 0, at = 0, commands = 0;
  initial begin
    if (!$value$plusargs("fault=%d", fault)) fault = 0;
    $readmemh("words.hex", words);
  end

  wire late = cycles == 400;  // long after the first word that waits
  wire command_ready, speculation_ready, valid, last, user, busy;
  wire [6:0] error;
  wire [127:0] data;
  wire [15:0] keep;
  reg ready = 0;
  wire command_valid = commands == 0;
  wire offered = at < `WORDS && !(late && fault == 2);
  wire speculation_valid = late && fault == 3 ? 1'bx : offered;
  wire [63:0] shown = late && fault == 4 ? 64'bx : words[at][63:0] ^ (late && fault == 1);
  wire clear_error = late && fault == 5 ? 1'bx : 1'b0;

`define PINS .clk(clk), .rst(rst), .s_axis_command_tdata(`COMMAND), \
    .s_axis_command_tvalid(command_valid), .s_axis_command_tready(command_ready), \
    .s_axis_codebook_tdata(8'd0), .s_axis_codebook_tlast(1'b0), .s_axis_codebook_tvalid(1'b0), \
    .s_axis_codebook_tready(codebook_ready), .s_axis_speculation_tdata(shown), \
    .s_axis_speculation_tlast(words[at][64]), .s_axis_speculation_tvalid(speculation_valid), \
    .s_axis_speculation_tready(speculation_ready), .s_axis_verification_tdata(64'd0), \
    .s_axis_verification_tlast(1'b0), .s_axis_verification_tvalid(1'b0), \
    .s_axis_verification_tready(verification_ready), .m_axis_values_tdata(data), \
    .m_axis_values_tkeep(keep), .m_axis_values_tlast(last), .m_axis_values_tuser(user), \
    .m_axis_values_tvalid(valid), .m_axis_values_tready(ready), .error(error), \
    .clear_error(clear_error), .busy(busy)

  wire codebook_ready, verification_ready;
  `TOP decoder (`PINS);
`ifdef __ICARUS__
  `CHECKER assertions (`PINS);
`endif

  always @(posedge clk) begin
    cycles <= cycles + 1;
    rst <= cycles < 3;
    ready <= cycles > 500;
    if (!rst && command_valid && command_ready) commands <= 1;
    if (!rst && offered && speculation_ready) at <= at + 1;
    if (valid && ready && last) begin
      $display("decoded %0d", user);
      $finish;
    end
    if (cycles > 5000) $finish;
  end
endmodule
