"""Mutation testing: checks must find small faults in copies of the gateware."""
