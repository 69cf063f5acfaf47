"""Gateware of the Cassandra decoder and encoder in Amaranth (microarchitecture.md)."""
