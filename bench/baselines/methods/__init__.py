"""One file for each draft method; :mod:`cassandra_spec.bench.baselines.registry` finds them."""
