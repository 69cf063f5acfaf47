"""Bits of registers that change: ``python -m cassandra_spec.verif.dma.soft_errors``."""
