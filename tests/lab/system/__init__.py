"""Tests of the system model: hand-computed cases and conservation, no recorded outputs."""
