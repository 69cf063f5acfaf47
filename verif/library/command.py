"""The command words that start a segment in the decoder and in the encoder."""

from __future__ import annotations

from collections.abc import Sequence

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.golden.format import (
    COMMAND_FIELDS,
    ENCODE_COMMAND_FIELDS,
    SCHEMES,
    SIGNIFICAND,
    CommandField,
    Format,
)
from cassandra_spec.golden.packed import Segment


def command_fields(fmt: Format, segment: Segment, *, target: bool) -> dict[str, int]:
    """Return the fields of a segment's command word, by name.

    See ``cassandra_spec.golden.format.COMMAND_FIELDS``. The draft of a narrow significand is an
    ordinary one of mx; its target is refused.
    """
    if target:
        _require_whole(fmt, "a target in the gateware")
    return {
        "count": segment.count - 1,
        "scheme": SCHEMES.index(fmt.scheme),
        "truncated": fmt.truncated,
        "target": int(target),
        "midpoint": int(fmt.fill == "midpoint"),
        "mask": int(segment.has_mask),
        "verification": int(segment.verification.size > 0),
        "log2_group": fmt.group.bit_length() - 1,
        "coded": int(fmt.pruned_exponent == "coded"),
    }


def command_word(fmt: Format, segment: Segment, *, target: bool) -> int:
    """Return the command word for decoding ``segment`` in draft or target mode."""
    return pack_fields(command_fields(fmt, segment, target=target))


def encode_command_word(
    fmt: Format,
    count: int,
    *,
    vector: int = 64,
    keep: int | None = None,
    mask: bool = True,
    saturate: bool = False,
) -> int:
    """Return the encoder's command word for a segment of ``count`` values.

    A vector has ``vector`` values; ``keep`` of them are kept (None: all).
    """
    _require_whole(fmt, "the gateware's encoder")
    fields = {
        "count": count - 1,
        "scheme": SCHEMES.index(fmt.scheme),
        "truncated": fmt.truncated,
        "saturate": int(saturate),
        "mask": int(mask),
        "log2_group": fmt.group.bit_length() - 1,
        "vector": vector - 1,
        "keep": vector if keep is None else keep,
    }
    return pack_fields(fields, ENCODE_COMMAND_FIELDS)


def _require_whole(fmt: Format, where: str) -> None:
    if fmt.significand != SIGNIFICAND:
        expected = f"{SIGNIFICAND} for {where}"
        raise CassandraError(f"significand must be {expected}, not {fmt.significand}")


def pack_fields(fields: dict[str, int], layout: Sequence[CommandField] = COMMAND_FIELDS) -> int:
    """Pack fields, least significant first; raise if a value does not fit its field."""
    word, place = 0, 0
    for field in layout:
        value = fields[field.name]
        if not 0 <= value < 1 << field.width:
            raise CassandraError(
                f"command field {field.name} must be a {field.width}-bit number, not {value!r}"
            )
        word |= value << place
        place += field.width
    return word
