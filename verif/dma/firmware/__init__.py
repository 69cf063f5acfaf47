"""The C driver on Verilated gateware: a binding, and a suite for each kind of device."""
