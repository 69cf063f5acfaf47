"""Validate the arguments of encoders: the errors that codec and oracle share."""

from __future__ import annotations

import dataclasses
import operator
import reprlib
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.golden.errors import CassandraError, DecodeError
from cassandra_spec.golden.format import DIRECTORY_FIELDS, FLAG_MASK, Format
from cassandra_spec.golden.packed import Packed, Values

Nonfinite = Literal["error", "saturate"]

_EXPONENT = 0x7F80
_MANTISSA = 0x007F
_SIGN = 0x8000
_LARGEST_FINITE = 0x7F7F
_SLICE = 1 << 20  # values examined at a time
_SUBNORMAL_FLOOR = 9
"""Minimum group exponent of a group with a kept subnormal (docs/format.md, 4.3)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arguments:
    """Validated arguments of ``encode``; ``None`` stands for a default that the codec chooses."""

    format: Format
    values: Values  # uint16 [count]; finite if the scheme is mx
    kept: NDArray[np.bool_] | None  # [count]
    codebook: tuple[int, ...] | None
    pruned_codebook: tuple[int, ...] | None
    group_exponents: NDArray[np.uint8] | None  # [groups of the tensor]
    saturated: int  # values replaced to make them finite
    always_mask: bool = False  # every segment gets a ``mask`` stream


def group_count(count: int, format: Format) -> int:
    """Return the number of groups in a tensor of ``count`` values."""
    return -(-count // format.group)


def _describe(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {list(value.shape)}"
    return reprlib.repr(value)


def _check_array(
    name: str, value: object, dtype: type[np.generic], length: int | None
) -> NDArray[np.generic]:
    size = "" if length is None else f" of {length} elements"
    shape_ok = isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype == dtype
    if not shape_ok or not isinstance(value, np.ndarray) or length not in (None, value.size):
        expected = f"a 1-D array of {np.dtype(dtype)}{size}"
        raise CassandraError(f"{name} must be {expected}, not {_describe(value)}")
    return value


def _check_codebook(name: str, book: Sequence[int], limit: int) -> tuple[int, ...]:
    try:
        entries = tuple(operator.index(entry) for entry in book)
    except TypeError:
        entries = (-1,)
    distinct = len(set(entries)) == len(entries)
    if not distinct or len(entries) > limit or any(not 0 <= e <= 255 for e in entries):
        expected = f"at most {limit} distinct exponents from 0 to 255"
        raise CassandraError(f"{name} must be {expected}, not {_describe(book)}")
    return entries


def _optional_codebook(
    name: str, book: Sequence[int] | None, limit: int, used: bool, needs: str
) -> tuple[int, ...] | None:
    if book is None:
        return None
    if not used:
        raise CassandraError(f"{name} must be None unless {needs}, not {_describe(book)}")
    return _check_codebook(name, book, limit)


def _make_finite(values: Values, nonfinite: Nonfinite) -> tuple[Values, int]:
    indices = [
        start + np.flatnonzero((values[start : start + _SLICE] & _EXPONENT) == _EXPONENT)
        for start in range(0, values.size, _SLICE)
    ]
    bad = np.concatenate([np.zeros(0, dtype=np.int64), *indices])
    if not bad.size:
        return values, 0
    if nonfinite == "error":
        raise CassandraError(
            f"values must be finite in scheme mx, not {bad.size} NaN or infinite "
            f"(first {int(values[bad[0]]):#06x} at index {bad[0]})"
        )
    replaced = values.copy()
    replaced[bad] = (values[bad] & _SIGN) | _LARGEST_FINITE
    return replaced, bad.size


def _check_exponent_range(exponents: NDArray[np.uint8], format: Format) -> None:
    high = 254 if format.scheme == "mx" else 255
    bad = (exponents < 1) | (exponents > high)
    if bad.any():
        first = int(np.argmax(bad))
        raise CassandraError(
            f"group_exponents must be from 1 to {high}, not {exponents[first]} (group {first})"
        )


def _check_subnormals(
    exponents: NDArray[np.uint8], values: Values, kept: NDArray[np.bool_] | None, format: Format
) -> None:
    for start in range(0, values.size, _SLICE):
        part = values[start : start + _SLICE]
        subnormal = ((part & _EXPONENT) == 0) & ((part & _MANTISSA) != 0)
        if kept is not None:
            subnormal &= kept[start : start + _SLICE]
        groups = (start + np.flatnonzero(subnormal)) // format.group
        bad = groups[exponents[groups] < _SUBNORMAL_FLOOR]
        if bad.size:
            raise CassandraError(
                f"group_exponents must be at least {_SUBNORMAL_FLOOR} in a group with a kept "
                f"subnormal, not {exponents[bad[0]]} (group {bad[0]})"
            )


def _check_group_exponents(
    exponents: object, values: Values, kept: NDArray[np.bool_] | None, format: Format
) -> NDArray[np.uint8]:
    if format.scheme == "unary":
        raise CassandraError(
            f"group_exponents must be None in scheme unary, not {_describe(exponents)}"
        )
    array = _check_array(
        "group_exponents", exponents, np.uint8, group_count(values.size, format)
    ).astype(np.uint8, copy=False)
    _check_exponent_range(array, format)
    if format.scheme == "exact":
        _check_subnormals(array, values, kept, format)
    return array


def check_arguments(
    values: object,
    format: Format,
    *,
    kept: object = None,
    codebook: Sequence[int] | None = None,
    pruned_codebook: Sequence[int] | None = None,
    group_exponents: object = None,
    nonfinite: str = "error",
    always_mask: object = False,
) -> Arguments:
    """Check the arguments of ``encode`` (docs/format.md, sections 2 and 4).

    Raises :class:`CassandraError` that names the argument and what was expected. With
    ``nonfinite="saturate"`` in scheme mx, values that are not finite are replaced and ``saturated``
    counts the replacements.
    """
    if nonfinite not in ("error", "saturate"):
        raise CassandraError(f"nonfinite must be 'error' or 'saturate', not {nonfinite!r}")
    if not isinstance(always_mask, bool):
        raise CassandraError(f"always_mask must be True or False, not {always_mask!r}")
    array = _check_array("values", values, np.uint16, None).astype(np.uint16, copy=False)
    mask = None
    if kept is not None:
        mask = _check_array("kept", kept, np.bool_, array.size).astype(np.bool_, copy=False)
    saturated = 0
    if format.scheme == "mx":
        array, saturated = _make_finite(array, "error" if nonfinite == "error" else "saturate")
    unary = format.scheme == "unary"
    coded = format.pruned_exponent == "coded"
    exponents = None
    if group_exponents is not None:
        exponents = _check_group_exponents(group_exponents, array, mask, format)
    return Arguments(
        format=format,
        values=array,
        kept=mask,
        codebook=_optional_codebook(
            "codebook", codebook, format.codebook, unary, "the scheme is unary"
        ),
        pruned_codebook=_optional_codebook(
            "pruned_codebook",
            pruned_codebook,
            format.codebook - 1,
            coded,
            "pruned_exponent is 'coded'",
        ),
        group_exponents=exponents,
        saturated=saturated,
        always_mask=always_mask,
    )


def check_importance(importance: object, count: int) -> NDArray[np.unsignedinteger] | None:
    """Return importance weights as unsigned integers [count], or None; raise if invalid."""
    if importance is None:
        return None
    unsigned = isinstance(importance, np.ndarray) and importance.dtype.kind == "u"
    if not isinstance(importance, np.ndarray) or not unsigned or importance.shape != (count,):
        raise CassandraError(
            f"importance must be a 1-D array of unsigned integers of {count} elements, "
            f"not {_describe(importance)}"
        )
    return importance


def check_packed(packed: Packed) -> None:
    """Check the arrays, directory and codebooks of ``packed`` against its format and count.

    Raises :class:`CassandraError` that names the field.
    """
    format = packed.format
    for name in ("speculation", "verification"):
        _check_array(name, getattr(packed, name), np.uint8, None)
    segments, directory = -(-packed.count // format.segment), packed.directory
    if directory.shape != (segments, len(DIRECTORY_FIELDS)) or directory.dtype != np.uint32:
        raise CassandraError(
            f"directory must be {[segments, len(DIRECTORY_FIELDS)]} of uint32 for {packed.count} "
            f"values, not {_describe(directory)}"
        )
    unknown = directory[:, -1] > FLAG_MASK
    if unknown.any():
        flags = int(directory[np.argmax(unknown), -1])
        raise CassandraError(f"flags of a segment must be 0 or {FLAG_MASK}, not {flags}")
    _check_codebook("codebook", packed.codebook, format.codebook)
    _check_codebook("pruned_codebook", packed.pruned_codebook, format.codebook - 1)


def whole_segments(
    packed: Packed, target: bool, first: int = 0, last: int | None = None
) -> tuple[int, DecodeError | None]:
    """Find the end of the complete segments among ``first`` to ``last``, and the error there.

    ``target`` selects the regions: all that a target reads, or only the draft's. Returns ``last``
    and no error, or the first segment that reaches past the end of a region and its error.
    """
    end, error = len(packed.directory) if last is None else last, None
    spans = packed.directory.astype(np.int64) * packed.format.superblock
    for column, region in ((0, packed.speculation), (2, packed.verification))[: 1 + target]:
        offsets, lengths = spans[first:end, column], spans[first:end, column + 1]
        outside = (lengths > 0) & (offsets + lengths > region.size)
        if outside.any():
            end = first + int(np.argmax(outside))
            offset, needed = (8 * int(n) // packed.format.beat for n in spans[end, column:][:2])
            available = max(8 * region.size // packed.format.beat - offset, 0)
            error = DecodeError("short", end, f"needs {needed} rows of a region of {available}")
    return end, error


def check_segment(packed: Packed, index: int, target: bool) -> None:
    """Check ``packed`` like :func:`check_packed`, but only for decoding one segment."""
    check_packed(packed)
    if not 0 <= index < len(packed.directory):
        raise CassandraError(
            f"index must be less than {len(packed.directory)} (segments) and not negative, "
            f"not {index}"
        )
    _, error = whole_segments(packed, target, index, index + 1)
    if error is not None:
        raise error
