"""The tools that run simulations: where Verilator is, how suites and Verilated tops are built and
run.
"""
