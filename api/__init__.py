"""The Python interface: what :mod:`cassandra_spec` exports, and what the commands are written with.

``docs/software/python.md`` lists the names that stay.
"""
