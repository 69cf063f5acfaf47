read_liberty /usr/share/qflow/tech/osu018/osu018_stdcells.lib
read_verilog adder.net.v
link_design adder
read_spef adder.spef
create_clock -name clk -period 4.6 [get_ports clk]
report_parasitic_annotation -report_unannotated
