"""Mutation testing: small faults in copies of the gateware, each of which a check must find."""
