"""Exits of a frozen model: training, confidence, and the cascade (CascadeExit)."""

from cassandra_spec.lab.exits.adapters import Exit, Exits, check_layers

__all__ = ["Exit", "Exits", "check_layers"]
