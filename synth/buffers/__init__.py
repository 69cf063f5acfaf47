"""Buffers of a mapped netlist: trees behind flip-flops, and which of them the timing asks for."""
