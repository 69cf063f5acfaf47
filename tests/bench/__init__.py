"""Speed of the codec and of the Verilated decoder, measured, not tested."""
