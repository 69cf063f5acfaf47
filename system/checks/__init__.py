"""Checks of the closed forms: an event model, and SCALE-Sim."""
