"""Measure figures; each module is a benchmark that a command runs."""
