"""Compute the paper's figures and tables, and compare them with the paper's own."""
