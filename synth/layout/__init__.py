"""A placed and routed netlist by Debian's tools: ``python -m cassandra_spec.synth.layout``."""
