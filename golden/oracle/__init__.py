"""Naive oracle of the format: one value at a time, written straight from docs/format.md.

It shares nothing with :mod:`cassandra_spec.golden.codec` but the checks of arguments, and no
arithmetic at all. A decoder machine steps through the demand schedule of section 6 and asks a
source for rows. To read, the source is the region. To write, the source holds the rows of each
stream apart and records the order in which the same machine asks for them: that order is the
format.
"""

from cassandra_spec.golden.oracle.decoding import decode_draft, decode_target
from cassandra_spec.golden.oracle.encoding import encode

__all__ = ["decode_draft", "decode_target", "encode"]
