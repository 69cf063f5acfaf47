"""Measure a model on the user's machine: speed, accuracy, equal replies; search its settings."""
