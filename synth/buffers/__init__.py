"""Buffers of a mapped netlist: trees behind flip-flops, and repair by timing."""
