// Values that leave are printed, to the end of the last packet: for all tops that decode.
wire [`VALUES-1:0] data;
wire [`VALUES/8-1:0] keep;
wire valid, last, user;
integer packets = 0;
always @(posedge clk)
  if (!rst && valid && ready) begin
    $display("%h %h %b", data, keep, user);
    packets <= packets + last;
    if (last && packets == `PACKETS - 1) $finish;
  end
