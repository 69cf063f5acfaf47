"""The codec: pack and unpack tensors, vectorized over runs of segments.

Uses integers only. Tests compare it with :mod:`cassandra_spec.golden.oracle` byte for byte. Memory
beyond input and output is bounded by the size of a run (a few million values), for any tensor.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Unpack

import numpy as np

from cassandra_spec.golden.arguments import (
    Arguments,
    check_arguments,
    check_packed,
    check_segment,
    whole_segments,
)
from cassandra_spec.golden.arrays.arithmetic import exponents_of
from cassandra_spec.golden.arrays.bitops import Ints
from cassandra_spec.golden.arrays.decoder import decode_run
from cassandra_spec.golden.arrays.encoder import Codebooks, encode_run
from cassandra_spec.golden.arrays.exponents import choose_group_exponents
from cassandra_spec.golden.format import DIRECTORY_FIELDS, Format
from cassandra_spec.golden.packed import EncodeOptions, Packed, Values, concatenate

RUN_VALUES = 1 << 21
"""Values encoded or decoded at a time (rounded to whole segments, at least one)."""

CountExponents = Callable[[Arguments, tuple[int, ...] | None], Ints]

_SLICE = 1 << 20  # values whose exponents are counted at a time


def frequent_exponents(counts: Ints, limit: int) -> tuple[int, ...]:
    """Return exponents by frequency (int64 [256]), smaller first among equals (section 4.1)."""
    order = np.argsort(-counts, kind="stable")[:limit]
    return tuple(int(exponent) for exponent in order if counts[exponent])


def _count_exponents(args: Arguments, book: tuple[int, ...] | None) -> Ints:
    """Count exponents among kept values; among pruned values if a codebook is given."""
    counts = np.zeros(256, dtype=np.int64)
    in_book = np.isin(np.arange(256), book or ())
    for start in range(0, args.values.size, _SLICE):
        exponents = exponents_of(args.values[start : start + _SLICE])
        kept = None if args.kept is None else args.kept[start : start + _SLICE]
        if book is not None:
            chosen = ~in_book[exponents]
            exponents = exponents[chosen if kept is None else chosen | ~kept]
        elif kept is not None:
            exponents = exponents[kept]
        counts += np.bincount(exponents, minlength=256)
    return counts


def choose_codebooks(args: Arguments, count: CountExponents = _count_exponents) -> Codebooks:
    """Return the requested codebooks, or by default those of section 4.1.

    ``count`` returns the frequency of each exponent, int64 [256], among kept values, or among
    pruned values if called with a codebook.
    """
    if args.format.scheme != "unary":
        return Codebooks()
    book, pruned = args.codebook, args.pruned_codebook
    if book is None:
        book = frequent_exponents(count(args, None), args.format.codebook)
    if args.format.pruned_exponent == "raw":
        return Codebooks(codebook=book)
    if pruned is None:
        pruned = frequent_exponents(count(args, book), args.format.codebook - 1)
    return Codebooks(codebook=book, pruned=pruned)


def _run_length(format: Format) -> int:
    return max(RUN_VALUES // format.segment, 1) * format.segment


def _part(args: Arguments, start: int, stop: int) -> Arguments:
    """Return the arguments of a slice of values; whole groups except at the end."""
    groups, group = args.group_exponents, args.format.group
    return dataclasses.replace(
        args,
        values=args.values[start:stop],
        kept=None if args.kept is None else args.kept[start:stop],
        group_exponents=None if groups is None else groups[start // group : -(-stop // group)],
    )


def encode_parts(
    values: Values, format: Format, **options: Unpack[EncodeOptions]
) -> Iterator[Packed]:
    """Pack a tensor in parts of a few million values, for writers that store parts as they come.

    Arguments as for :func:`encode`; they are checked, and the codebooks chosen over the whole
    tensor, before this returns. Each part is a packed tensor of its own (whole segments, except at
    the end); :func:`golden.concatenate` joins them. An empty tensor has no parts.
    """
    args = check_arguments(values, format, **options)
    return _parts(args, choose_codebooks(args))


def _parts(args: Arguments, books: Codebooks) -> Iterator[Packed]:
    saturated = args.saturated
    length = _run_length(args.format)
    for start in range(0, args.values.size, length):
        part = _part(args, start, min(start + length, args.values.size))
        yield dataclasses.replace(encode_run(part, books), saturated=saturated)
        saturated = 0  # counted once


def _empty(format: Format, books: Codebooks) -> Packed:
    return Packed(
        format=format,
        count=0,
        speculation=np.zeros(0, dtype=np.uint8),
        verification=np.zeros(0, dtype=np.uint8),
        directory=np.zeros((0, len(DIRECTORY_FIELDS)), dtype=np.uint32),
        codebook=books.codebook,
        pruned_codebook=books.pruned,
        stream_bits={stream.name: 0 for stream in format.streams},
    )


def encode(values: Values, format: Format, **options: Unpack[EncodeOptions]) -> Packed:
    """Pack a tensor (docs/format.md).

    Args:
        values: BF16 patterns, uint16 [count].
        format: the parameters.
        options: see :class:`cassandra_spec.golden.packed.EncodeOptions`.

    Returns:
        The packed tensor; ``saturated`` counts replaced values.

    Raises:
        CassandraError: an argument is invalid; the message names it.
    """
    args = check_arguments(values, format, **options)
    books = choose_codebooks(args)
    if not args.values.size:
        return _empty(format, books)
    parts = list(_parts(args, books))
    return parts[0] if len(parts) == 1 else concatenate(parts)


def _decode(packed: Packed, target: bool) -> Values:
    check_packed(packed)
    result = np.empty(packed.count, dtype=np.uint16)
    run = _run_length(packed.format) // packed.format.segment
    whole, error = whole_segments(packed, target)
    for first in range(0, whole, run):
        last = min(first + run, whole)
        segments = [packed.segment(index) for index in range(first, last)]
        start = first * packed.format.segment
        stop = min(last * packed.format.segment, packed.count)
        result[start:stop] = decode_run(packed, segments, target)
    if error is not None:
        raise error
    return result


def decode_draft(packed: Packed) -> Values:
    """Return draft values, uint16 [count]; read only speculation data.

    Raises :class:`cassandra_spec.golden.errors.DecodeError` (section 7) for the first broken
    segment.
    """
    return _decode(packed, target=False)


def decode_target(packed: Packed) -> Values:
    """Return target values, uint16 [count]; in unary and exact, equal to the encoded values.

    Raises :class:`cassandra_spec.golden.errors.DecodeError` (section 7) for the first broken
    segment.
    """
    return _decode(packed, target=True)


def decode_draft_segment(packed: Packed, index: int) -> Values:
    """Return the draft values of one segment; read no other segment."""
    return _decode_segment(packed, index, target=False)


def decode_target_segment(packed: Packed, index: int) -> Values:
    """Return the target values of one segment; read no other segment."""
    return _decode_segment(packed, index, target=True)


def _decode_segment(packed: Packed, index: int, target: bool) -> Values:
    check_segment(packed, index, target)
    return decode_run(packed, [packed.segment(index)], target)


class GoldenCodec:
    """This codec behind the interface :class:`cassandra_spec.golden.packed.Packer`."""

    encode = staticmethod(encode)
    choose_group_exponents = staticmethod(choose_group_exponents)
    decode_draft = staticmethod(decode_draft)
    decode_target = staticmethod(decode_target)
