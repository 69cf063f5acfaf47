"""Rounds of one sequence or several: slots, plans, measured times, passes over rows of all."""
