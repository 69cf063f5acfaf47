"""The command word that starts a segment, and a codebook as the gateware takes it."""

from __future__ import annotations

from golden.errors import CassandraError
from golden.format import COMMAND_FIELDS, SCHEMES, Format
from golden.packed import Segment

__all__ = ["command_fields", "command_word", "pack_fields", "unpack_fields"]


def command_fields(fmt: Format, segment: Segment, *, target: bool) -> dict[str, int]:
    """Fields of the command word of one segment, by name (``golden.format.COMMAND_FIELDS``)."""
    return {
        "count": segment.count - 1,
        "scheme": SCHEMES.index(fmt.scheme),
        "truncated": fmt.truncated,
        "target": int(target),
        "midpoint": int(fmt.fill == "midpoint"),
        "mask": int(segment.has_mask),
        "verification": int(segment.verification.size > 0),
        "log2_group": fmt.group.bit_length() - 1,
    }


def command_word(fmt: Format, segment: Segment, *, target: bool) -> int:
    """The command word that makes the gateware decode ``segment`` in draft or target mode."""
    return pack_fields(command_fields(fmt, segment, target=target))


def pack_fields(fields: dict[str, int]) -> int:
    """Pack fields, least significant first; a value that its field cannot hold is an error."""
    word, place = 0, 0
    for field in COMMAND_FIELDS:
        value = fields[field.name]
        if not 0 <= value < 1 << field.width:
            raise CassandraError(
                f"command field {field.name} must be a {field.width}-bit number, not {value!r}"
            )
        word |= value << place
        place += field.width
    return word


def unpack_fields(word: int) -> dict[str, int]:
    """The fields of a command word; inverse of :func:`pack_fields`."""
    fields: dict[str, int] = {}
    for field in COMMAND_FIELDS:
        fields[field.name] = word & ((1 << field.width) - 1)
        word >>= field.width
    return fields
