"""AXI rules that other people wrote, proved for the tops: ``python -m cassandra_spec.verif.rules``
(``make axi-rules``).

The rules are SVA-AXI4-FVIP of YosysHQ, from the user's checkout. Open tools do not read concurrent
assertions, so :mod:`cassandra_spec.verif.rules.sva` rewrites them;
:mod:`cassandra_spec.verif.rules.watched` puts the rules beside a top, with the situations that a
proof must have seen.
"""
