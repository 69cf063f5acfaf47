// The codebook, then one command: for the tops with streams.
reg [10:0] book[0:`ENTRIES];  // user (decoders of coded pruned exponents), last, exponent
initial $readmemh("book.hex", book);
integer entry = 0;
reg asked = 0;
wire command_ready, book_ready;
wire book_valid = !rst && entry < `ENTRIES;
wire command_valid = !rst && entry == `ENTRIES && !asked;
always @(posedge clk) begin
  if (book_valid && book_ready) entry <= entry + 1;
  if (command_valid && command_ready) asked <= 1;
end
