// A decoder decodes the example of docs/hardware/integration.md from a memory of two superblocks.
// +withdraw: the host withdraws a write before it is taken, which the assertions find.
module testbench;
  bit clk, rst = 1;
  always #1 clk = ~clk;

  // The names are those of the ports, so that .* connects them.
  bit [7:0] s_axil_awaddr, s_axil_araddr;
  bit [2:0] s_axil_awprot, s_axil_arprot;
  bit [31:0] s_axil_wdata;
  bit [3:0] s_axil_wstrb = 4'b1111;
  bit s_axil_awvalid, s_axil_wvalid, s_axil_bready = 1, s_axil_arvalid, s_axil_rready = 1;
  wire s_axil_awready, s_axil_wready, s_axil_bvalid, s_axil_arready, s_axil_rvalid;
  wire [1:0] s_axil_bresp, s_axil_rresp;
  wire [31:0] s_axil_rdata;

  wire m_axi_arid, m_axi_arlock, m_axi_arvalid, m_axi_rready;
  wire [63:0] m_axi_araddr;
  wire [7:0] m_axi_arlen;
  wire [2:0] m_axi_arsize, m_axi_arprot;
  wire [1:0] m_axi_arburst;
  wire [3:0] m_axi_arcache, m_axi_arqos;
  bit m_axi_arready = 1, m_axi_rvalid, m_axi_rid, m_axi_rlast;
  bit [63:0] m_axi_rdata;
  bit [1:0] m_axi_rresp;

  wire [127:0] m_axis_values_tdata;
  wire [15:0] m_axis_values_tkeep;
  wire m_axis_values_tvalid, m_axis_values_tlast, m_axis_values_tuser, irq;
  bit m_axis_values_tready = 1;
  bit core_rst, quiesce_request;
  wire quiesce_done;

  `TOP dma (.*);

  // One burst at a time from the two superblocks, each at its base; the rest is zero.
  function automatic bit [63:0] word(bit [63:0] address);
    case (address)
      'h80001000: return 64'h5252ffff07e56637;
      'h80001008: return 64'h6400;
      'h80002000: return 64'h4110000034082804;
      'h80002008: return 64'h3b803dcd;
      default: return 0;
    endcase
  endfunction

  bit [63:0] next;
  bit [7:0] left;
  assign m_axi_rdata = word(next);
  assign m_axi_rlast = left == 0;
  always @(posedge clk) begin
    if (m_axi_arvalid && m_axi_arready) begin
      m_axi_arready <= 0;
      m_axi_rvalid <= 1;
      m_axi_rid <= m_axi_arid;
      next <= m_axi_araddr;
      left <= m_axi_arlen;
    end else if (m_axi_rvalid && m_axi_rready) begin
      m_axi_arready <= left == 0;
      m_axi_rvalid <= left != 0;
      next <= next + 8;
      left <= left - 1;
    end
  end

  // Address and value of each write.
  localparam int WRITES = 14;
  localparam bit [39:0] PROGRAM[WRITES] = '{
    40'h54_0000007e,  // CODEBOOK: rank 0
    40'h54_0000017f,
    40'h54_0100027d,  // the last
    40'h1c_00000006,  // IRQ_ENABLE
    40'h10_00000001,  // CONTROL
    40'h30_07b0000b,  // COMMAND
    40'h34_00000000,  // BOOK
    40'h38_80001000,  // SPECULATION_BASE
    40'h3c_00000000,
    40'h40_80002000,  // VERIFICATION_BASE
    40'h44_00000000,
    40'h48_00000080,  // SPECULATION_LENGTH
    40'h4c_00000080,  // VERIFICATION_LENGTH
    40'h50_00000001   // START
  };
  int at, cycles;
  bit withdraw;
  initial withdraw = $test$plusargs("withdraw") != 0;

  always @(posedge clk) begin
    cycles <= cycles + 1;
    rst <= cycles < 3;
    s_axil_bready <= !withdraw;  // without it, later writes wait
    if (withdraw && cycles == 40) s_axil_awvalid <= 0;
    else if (s_axil_awvalid && s_axil_awready) {s_axil_awvalid, s_axil_wvalid} <= 0;
    else if (cycles > 8 && !s_axil_awvalid && at < WRITES) begin
      {s_axil_awaddr, s_axil_wdata} <= PROGRAM[at];
      {s_axil_awvalid, s_axil_wvalid} <= 2'b11;
      at <= at + 1;
    end
    if (irq) begin
      $display("irq");
      $finish;
    end
    if (cycles > 1000) $fatal(1, "no interrupt");
  end

  always @(posedge clk)
    if (!rst && m_axis_values_tvalid && m_axis_values_tready)
      for (int lane = 0; lane < 8; lane++)
        if (m_axis_values_tkeep[2*lane]) $display("%h", m_axis_values_tdata[16*lane+:16]);
endmodule
