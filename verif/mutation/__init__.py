"""Mutations: small faults in copies of the gateware. A check must find each."""
