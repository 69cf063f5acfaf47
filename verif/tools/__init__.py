"""Tools for simulations: locate Verilator, build and run suites and Verilated tops."""
