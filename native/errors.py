"""What goes wrong with native code on a machine, as opposed to with data."""

from cassandra_spec.golden.errors import CassandraError


class NativeError(CassandraError):
    """The native library cannot be compiled or loaded here, or lacks what was asked for."""
