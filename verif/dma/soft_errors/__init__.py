"""Soft errors in registers: ``python -m cassandra_spec.verif.dma.soft_errors``."""
