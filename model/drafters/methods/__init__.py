"""One file for each draft method; :mod:`cassandra_spec.model.drafters.registry` finds them."""
