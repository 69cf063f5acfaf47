"""One file for each draft method; :mod:`cassandra_spec.lab.baselines.registry` finds them."""
