"""Verification of the gateware: drivers, scoreboards, coverage, and the bulk harness."""
