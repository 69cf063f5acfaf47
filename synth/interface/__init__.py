"""Describe the interface of an exported top: registers, SystemRDL, assertions."""
