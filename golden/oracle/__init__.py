"""Naive oracle of the format: one value at a time, written directly from docs/format.md.

It shares only the argument checks with :mod:`cassandra_spec.golden.codec`, and no arithmetic. A
decoder machine steps through the demand schedule of section 6 and requests rows from a source. When
reading, the source is the region. When writing, the source holds the rows of each stream separately
and records the order in which the same machine requests them: that order is the format.
"""

from cassandra_spec.golden.oracle.decoding import decode_draft, decode_target
from cassandra_spec.golden.oracle.encoding import encode

__all__ = ["decode_draft", "decode_target", "encode"]
