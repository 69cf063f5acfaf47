"""Mutations: small faults put into copies of the gateware, each of which a check must find."""
