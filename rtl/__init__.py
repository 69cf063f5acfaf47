"""Gateware of the Cassandra decoder and encoder in Amaranth (docs/hardware/)."""
