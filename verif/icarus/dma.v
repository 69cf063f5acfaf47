// Smoke test of the exported dma or array (verif/icarus): registers written, a memory that answers
// bursts one after another, the values printed.
`timescale 1ns / 1ps
module testbench;
  // clock, reset, back-pressure and a limit of cycles
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

  // values that leave are printed, to the end of the last packet
  wire [`VALUES-1:0] data;
  wire [`VALUES/8-1:0] keep;
  wire valid, last, user;
  integer packets = 0;
  always @(posedge clk)
    if (!rst && valid && ready) begin
      $display("%h %h %b %b", data, keep, last, user);
      packets <= packets + last;
      if (last && packets == `PACKETS - 1) $finish;
    end

  reg [39:0] writes[0:`WRITES];  // address, data
  reg [`BUS-1:0] memory[0:`WORDS];
  integer place = 0;
  initial begin
    $readmemh("writes.hex", writes);
    $readmemh("memory.hex", memory);
  end

  // registers: address and data together, then the next write after the response
  reg aw = 1, w = 1;
  wire aw_valid = !rst && place < `WRITES && aw;
  wire w_valid = !rst && place < `WRITES && w;
  wire aw_ready, w_ready, b_valid;

  // memory: one burst in hand
  wire ar_valid, r_ready, irq, quiet;
  wire [`ID-1:0] ar_id;
  wire [`ADDRESS-1:0] ar_address;
  wire [7:0] ar_length;
  reg busy = 0;
  reg [`ID-1:0] id;
  reg [`ADDRESS-1:0] address;
  reg [7:0] left;
  wire [`BUS-1:0] word = memory[address/(`BUS/8)];

  `TOP dut (
      .clk(clk),
      .rst(rst),
      .s_axil_awaddr(writes[place][39:32]),
      .s_axil_awprot(3'b0),
      .s_axil_awvalid(aw_valid),
      .s_axil_awready(aw_ready),
      .s_axil_wdata(writes[place][31:0]),
      .s_axil_wstrb(4'hf),
      .s_axil_wvalid(w_valid),
      .s_axil_wready(w_ready),
      .s_axil_bvalid(b_valid),
      .s_axil_bready(1'b1),
      .s_axil_araddr(8'b0),
      .s_axil_arprot(3'b0),
      .s_axil_arvalid(1'b0),
      .s_axil_rready(1'b1),
      .m_axi_arid(ar_id),
      .m_axi_araddr(ar_address),
      .m_axi_arlen(ar_length),
      .m_axi_arvalid(ar_valid),
      .m_axi_arready(!busy),
      .m_axi_rid(id),
      .m_axi_rdata(word),
      .m_axi_rresp(2'b0),
      .m_axi_rlast(left == 0),
      .m_axi_rvalid(busy),
      .m_axi_rready(r_ready),
      .m_axis_values_tdata(data),
      .m_axis_values_tkeep(keep),
      .m_axis_values_tlast(last),
      .m_axis_values_tuser(user),
      .m_axis_values_tvalid(valid),
      .m_axis_values_tready(ready),
      .irq(irq),
      .core_rst(1'b0),
      .quiesce_request(1'b0),
      .quiesce_done(quiet)
  );

  always @(posedge clk) begin
    if (aw_valid && aw_ready) aw <= 0;
    if (w_valid && w_ready) w <= 0;
    if (!rst && b_valid) begin
      aw <= 1;
      w <= 1;
      place <= place + 1;
    end
    if (!rst && ar_valid && !busy) begin
      busy <= 1;
      id <= ar_id;
      address <= ar_address;
      left <= ar_length;
    end
    if (busy && r_ready) begin
      busy <= left != 0;
      left <= left - 1;
      address <= address + `BUS / 8;
    end
  end
endmodule
