"""A decoder placed and routed in an FPGA: ``python -m cassandra_spec.synth.fpga``."""
