"""The tops with registers in cocotb: a memory, a host, a scoreboard, and their suites."""
