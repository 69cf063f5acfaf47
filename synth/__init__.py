"""Export and synthesis of the gateware."""
