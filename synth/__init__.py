"""Export, synthesis and equivalence of the gateware."""
