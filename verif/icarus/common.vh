// Clock, reset, back-pressure and a limit of cycles, for every testbench.
reg clk = 0;
reg rst = 1;
always #1 clk = ~clk;
initial begin
  repeat (4) @(negedge clk);
  rst = 0;
end

integer cycles = 0;
wire ready = cycles % 3 != 0;
always @(posedge clk) begin
  cycles <= cycles + 1;
  if (cycles > 100000) $fatal(1, "nothing came");
end
