"""The codec in native code, equal to :mod:`cassandra_spec.golden.codec` in bytes, values and
errors.

Golden checks the arguments and words the errors; the native library is only called with arguments
that golden accepts.
"""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from cassandra_spec.golden import codec as reference
from cassandra_spec.golden.arguments import (
    Arguments,
    check_arguments,
    check_importance,
    check_packed,
    check_segment,
    group_count,
    whole_segments,
)
from cassandra_spec.golden.arrays.encoder import Codebooks
from cassandra_spec.golden.codec import RUN_VALUES, GoldenCodec
from cassandra_spec.golden.errors import CassandraError, DecodeError
from cassandra_spec.golden.format import DIRECTORY_FIELDS, ERROR_CAUSES, SCHEMES, STREAMS, Format
from cassandra_spec.golden.packed import Packed, Values, concatenate
from cassandra_spec.native.arrays import CheckedStructure, Pointer, pointer
from cassandra_spec.native.build import NativeError
from cassandra_spec.native.library import declare, load, require_done

Flags = NDArray[np.bool_]

_BOOK_SIZE = 32
_GOOD = -1  # no error cause
_INTEGERS = (
    "scheme",
    "truncated",
    "significand",
    "fill",
    "group",
    "segment",
    "codebook",
    "coded",
    "beat",
    "window",
    "lead",
    "superblock",
    "book_size",
    "pruned_size",
)


class Params(CheckedStructure):
    """``cassandra::codec::Params`` of ``native/src/codec/codec.h``."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in _INTEGERS),
        ("book", ctypes.c_uint8 * _BOOK_SIZE),
        ("pruned_book", ctypes.c_uint8 * _BOOK_SIZE),
    )


def codec_params(
    format: Format, book: Sequence[int] = (), pruned_book: Sequence[int] = ()
) -> Params:
    """Return the parameters of a packed tensor as a C structure."""
    numbers = dataclasses.asdict(format) | {
        "scheme": SCHEMES.index(format.scheme),
        "fill": format.fill_pattern,
        "coded": int(format.pruned_exponent == "coded"),
        "book_size": len(book),
        "pruned_size": len(pruned_book),
    }
    params = Params(**{name: numbers[name] for name in _INTEGERS})
    params.book[: len(book)] = tuple(book)
    params.pruned_book[: len(pruned_book)] = tuple(pruned_book)
    return params


@cache
def _library() -> ctypes.CDLL:
    """Return the library with the codec's functions declared; raise like :func:`native.load`."""
    library = load()
    array, size, number = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
    params, done = ctypes.POINTER(Params), ctypes.c_bool
    regions = (array, size, array, size, array)
    signatures = {
        "decode": (
            number,
            (params, *regions, size, size, size, number, number, array, ctypes.POINTER(size)),
        ),
        "encode": (done, (params, array, array, array, size, number, *([array] * 5))),
        "encode_room": (None, (params, size, array)),
        "choose_group_exponents": (done, (params, array, array, array, size, array)),
        "count_exponents": (None, (array, array, size, array)),
    }
    declare(library, signatures)
    return library


def _optional(name: str, array: NDArray[Any] | None, dtype: DTypeLike, size: int) -> Pointer | None:
    return None if array is None else pointer(name, np.ascontiguousarray(array), dtype, size)


# ---- decoding -----------------------------------------------------------------------------------


def _decode(packed: Packed, target: bool, first: int, last: int, threads: int = 1) -> Values:
    """Decode the segments from ``first`` to ``last``."""
    format = packed.format
    start = min(first * format.segment, packed.count)
    result = np.empty(min(last * format.segment, packed.count) - start, dtype=np.uint16)
    speculation = np.ascontiguousarray(packed.speculation)
    verification = np.ascontiguousarray(packed.verification)
    directory = np.ascontiguousarray(packed.directory, dtype=np.uint32)
    failed = ctypes.c_int64(-1)
    cause = _library().cassandra_decode(
        codec_params(format, packed.codebook, packed.pruned_codebook),
        *(pointer("speculation", speculation, np.uint8, speculation.size), speculation.size),
        *(pointer("verification", verification, np.uint8, verification.size), verification.size),
        pointer("directory", directory, np.uint32, len(directory), len(DIRECTORY_FIELDS)),
        *(first, last, packed.count, int(target), max(min(threads, last - first), 1)),
        pointer("result", result, np.uint16, result.size, writable=True),
        ctypes.byref(failed),
    )
    require_done(cause >= _GOOD)
    if cause != _GOOD:
        raise _worded(packed, failed.value, target, ERROR_CAUSES[cause])
    return result


def _worded(packed: Packed, segment: int, target: bool, cause: str) -> DecodeError:
    """Return golden's error for a broken segment."""
    decode = reference.decode_target_segment if target else reference.decode_draft_segment
    try:
        decode(packed, segment)
    except DecodeError as error:
        return error
    return DecodeError(cause, segment, "only native code finds an error: please report this")


def _decode_all(packed: Packed, target: bool, threads: int) -> Values:
    check_packed(packed)
    whole, error = whole_segments(packed, target)
    values = _decode(packed, target, 0, whole, threads)
    if error is not None:
        raise error
    return values


def _decode_segment(packed: Packed, index: int, target: bool) -> Values:
    check_segment(packed, index, target)
    return _decode(packed, target, index, index + 1)


# ---- encoding -----------------------------------------------------------------------------------


def _count_exponents(args: Arguments) -> NDArray[np.int64]:
    """Count exponents among pruned (row 0) and kept values (row 1), [2, 256]."""
    counts = np.zeros((2, 256), dtype=np.int64)
    values = np.ascontiguousarray(args.values)
    _library().cassandra_count_exponents(
        pointer("values", values, np.uint16, values.size),
        _optional("kept", args.kept, np.bool_, values.size),
        values.size,
        pointer("counts", counts, np.int64, 2, 256, writable=True),
    )
    return counts


def _choose_codebooks(args: Arguments) -> Codebooks:
    """Choose golden's codebooks, with one pass over the values for both."""
    counted = cache(lambda: _count_exponents(args))

    def count(_: Arguments, book: Sequence[int] | None) -> NDArray[np.int64]:
        pruned, kept = counted()
        return kept if book is None else pruned + np.where(np.isin(np.arange(256), book), 0, kept)

    return reference.choose_codebooks(args, count)


def _part(args: Arguments, books: Codebooks, start: int, stop: int) -> Packed:
    format, library = args.format, _library()
    params = codec_params(format, books.codebook, books.pruned)
    values = np.ascontiguousarray(args.values[start:stop])
    kept = None if args.kept is None else args.kept[start:stop]
    groups = args.group_exponents
    if groups is not None:
        groups = groups[start // format.group : group_count(stop, format)]
    segments = -(-values.size // format.segment)
    room, sizes = np.zeros(2, dtype=np.int64), np.zeros(2, dtype=np.int64)
    library.cassandra_encode_room(
        params, min(values.size, format.segment), pointer("room", room, np.int64, 2)
    )
    regions = [np.empty(int(size) * segments, dtype=np.uint8) for size in room]
    directory = np.empty((segments, len(DIRECTORY_FIELDS)), dtype=np.uint32)
    bits = np.zeros(len(STREAMS), dtype=np.int64)
    done = library.cassandra_encode(
        params,
        pointer("values", values, np.uint16, values.size),
        _optional("kept", kept, np.bool_, values.size),
        _optional("group_exponents", groups, np.uint8, group_count(values.size, format)),
        *(values.size, int(args.always_mask)),
        *(pointer("region", region, np.uint8, region.size) for region in regions),
        pointer("directory", directory, np.uint32, segments, len(DIRECTORY_FIELDS)),
        pointer("stream_bits", bits, np.int64, len(STREAMS)),
        pointer("sizes", sizes, np.int64, 2),
    )
    require_done(done)
    counted = dict(zip((stream.name for stream in STREAMS), map(int, bits), strict=True))
    speculation, verification = (
        region[:size].copy() for region, size in zip(regions, sizes, strict=True)
    )
    return Packed(
        format=format,
        count=values.size,
        speculation=speculation,
        verification=verification,
        directory=directory,
        codebook=books.codebook,
        pruned_codebook=books.pruned,
        stream_bits={stream.name: counted[stream.name] for stream in format.streams},
    )


def fastest_codec(
    on_error: Callable[[NativeError], object] = lambda error: None,
) -> NativeCodec | GoldenCodec:
    """Return the native codec; without it, call ``on_error`` and return golden's."""
    try:
        return NativeCodec()
    except NativeError as error:
        on_error(error)
        return GoldenCodec()


class NativeCodec:
    """The native codec (:class:`cassandra_spec.golden.packed.Codec`) and golden's other functions.

    Every method takes, returns and raises the same as the function of that name in
    :mod:`cassandra_spec.golden`.

    ``threads`` share the decoding of a whole tensor. The constructor raises
    :class:`native.NativeError` if the library is not available.
    """

    def __init__(self, threads: int = 1) -> None:
        self._threads = threads
        _library()

    def decode_draft(self, packed: Packed) -> Values:
        """Return draft values, uint16 [count]; read only speculation data."""
        return _decode_all(packed, False, self._threads)

    def decode_target(self, packed: Packed) -> Values:
        """Return target values, uint16 [count]."""
        return _decode_all(packed, True, self._threads)

    def decode_draft_segment(self, packed: Packed, index: int) -> Values:
        """Return the draft values of one segment; read no other segment."""
        return _decode_segment(packed, index, False)

    def decode_target_segment(self, packed: Packed, index: int) -> Values:
        """Return the target values of one segment; read no other segment."""
        return _decode_segment(packed, index, True)

    def encode(self, values: Values, format: Format, **options: Any) -> Packed:
        """Pack a tensor; arguments of :func:`golden.encode`."""
        args = check_arguments(values, format, **options)
        parts = list(_parts(args))
        if not parts:
            return reference.encode(values, format, **options)
        return parts[0] if len(parts) == 1 else concatenate(parts)

    def encode_parts(self, values: Values, format: Format, **options: Any) -> Iterator[Packed]:
        """Pack a tensor into the same parts as :func:`golden.encode_parts`."""
        return _parts(check_arguments(values, format, **options))

    def choose_group_exponents(
        self,
        values: Values,
        format: Format,
        *,
        kept: Flags | None = None,
        importance: NDArray[np.unsignedinteger] | None = None,
        nonfinite: str = "error",
    ) -> NDArray[np.uint8]:
        """Choose group exponents by the draft's error, as :func:`golden.choose_group_exponents`."""
        if format.scheme == "unary":
            raise CassandraError("format must be of scheme mx or exact, not unary")
        args = check_arguments(values, format, kept=kept, nonfinite=nonfinite)
        checked = check_importance(importance, args.values.size)
        weights = None if checked is None else checked.astype(np.uint64, copy=False)
        flat = np.ascontiguousarray(args.values)
        result = np.empty(group_count(flat.size, format), dtype=np.uint8)
        done = _library().cassandra_choose_group_exponents(
            codec_params(format),
            pointer("values", flat, np.uint16, flat.size),
            _optional("kept", args.kept, np.bool_, flat.size),
            _optional("importance", weights, np.uint64, flat.size),
            flat.size,
            pointer("group_exponents", result, np.uint8, result.size, writable=True),
        )
        require_done(done)
        return result


def _parts(args: Arguments) -> Iterator[Packed]:
    return _encoded_parts(args, _choose_codebooks(args))


def _encoded_parts(args: Arguments, books: Codebooks) -> Iterator[Packed]:
    segment, saturated = args.format.segment, args.saturated
    length = max(RUN_VALUES // segment, 1) * segment
    for start in range(0, args.values.size, length):
        part = _part(args, books, start, min(start + length, args.values.size))
        yield dataclasses.replace(part, saturated=saturated)
        saturated = 0  # counted once
