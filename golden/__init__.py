"""The Cassandra format and its bit-exact codec (docs/format.md): numpy alone, integers only."""

from golden.errors import CassandraError, DecodeError, FileError
from golden.format import Format
from golden.packed import Codec, Packed, Segment, concatenate

__all__ = [
    "CassandraError",
    "Codec",
    "DecodeError",
    "FileError",
    "Format",
    "Packed",
    "Segment",
    "concatenate",
]
