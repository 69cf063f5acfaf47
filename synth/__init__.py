"""Export of the gateware for other people's tools."""
