"""The decoder as a peripheral in cocotb: a memory, a host, a scoreboard, and their suite."""
