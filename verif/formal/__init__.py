"""Proofs about the gateware: ``python -m cassandra_spec.verif.formal`` (``make formal``).

A claim is an Amaranth component whose ``Assert`` statements must hold for every input that its
``Assume`` statements allow; :mod:`cassandra_spec.verif.formal.prover` passes it to Yosys and ABC. A
module of claims has a tuple ``CLAIMS`` and is listed in
:data:`cassandra_spec.verif.formal.registry.MODULES`.
"""
