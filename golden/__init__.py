"""The Cassandra format and its bit-exact codec (docs/format.md), in numpy with integers only."""

from cassandra_spec.golden.arrays.exponents import choose_group_exponents
from cassandra_spec.golden.codec import (
    GoldenCodec,
    decode_draft,
    decode_draft_segment,
    decode_target,
    decode_target_segment,
    encode,
    encode_parts,
)
from cassandra_spec.golden.encoders import Encoder, GoldenEncoder
from cassandra_spec.golden.errors import CassandraError, DecodeError, FileError
from cassandra_spec.golden.format import Format
from cassandra_spec.golden.packed import Codec, Packed, Packer, Segment, concatenate
from cassandra_spec.golden.selection import keep_largest

__all__ = [
    "CassandraError",
    "Codec",
    "DecodeError",
    "Encoder",
    "FileError",
    "Format",
    "GoldenCodec",
    "GoldenEncoder",
    "Packed",
    "Packer",
    "Segment",
    "choose_group_exponents",
    "concatenate",
    "decode_draft",
    "decode_draft_segment",
    "decode_target",
    "decode_target_segment",
    "encode",
    "encode_parts",
    "keep_largest",
]
