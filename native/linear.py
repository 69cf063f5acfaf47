"""Linear layers on the native kernels, one at a time: for tests and measurements.

The engine uses the same layers from C++ (``native/src/linear/linear.h``).
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.native.errors import NativeError
from cassandra_spec.native.library import load

__all__ = [
    "FORMS",
    "MAX_ROWS",
    "FormName",
    "NativeLinear",
    "NativeStreams",
    "set_prefetch",
    "time_layers",
    "time_reading",
]

FormName = Literal["bf16", "packed12", "packed8", "draft5", "draft4", "mx9"]
FORMS: tuple[FormName, ...] = ("bf16", "packed12", "packed8", "draft5", "draft4", "mx9")
"""Names of the forms, in the order of ``cassandra::Form``."""

MAX_ROWS = 8
"""Rows that one pass multiplies at most."""

_ERROR_ROOM = 256
_WORDS = ("bf16", "packed12", "packed8")


def _library() -> ctypes.CDLL:
    library = load()
    pointer, count, number = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
    create: list[Any] = [pointer, count, count, number, number, pointer, number]
    create += [ctypes.c_char_p, count]
    library.cassandra_streams_new.argtypes = [number]
    library.cassandra_streams_new.restype = pointer
    library.cassandra_streams_free.argtypes = [pointer]
    library.cassandra_streams_free.restype = None
    library.cassandra_linear_new.argtypes = create
    library.cassandra_linear_new.restype = pointer
    for name in ("free", "form", "bytes", "escapes"):
        getattr(library, f"cassandra_linear_{name}").argtypes = [pointer]
    library.cassandra_linear_free.restype = None
    library.cassandra_linear_bytes.restype = count
    library.cassandra_linear_escapes.restype = count
    library.cassandra_linear_values.argtypes = [pointer, pointer]
    library.cassandra_linear_values.restype = None
    library.cassandra_linear_multiply.argtypes = [pointer, number, pointer, pointer]
    library.cassandra_linear_multiply.restype = None
    library.cassandra_linear_prepare.argtypes = [pointer, pointer, pointer, pointer]
    library.cassandra_linear_prepare.restype = None
    doubles = ctypes.POINTER(ctypes.c_double)
    library.cassandra_linear_time.argtypes = [pointer, number, number, number, number, doubles]
    library.cassandra_linear_time.restype = None
    library.cassandra_read_time.argtypes = [count, number, number, doubles]
    library.cassandra_read_time.restype = None
    library.cassandra_linear_set_prefetch.argtypes = [number, count]
    library.cassandra_linear_set_prefetch.restype = None
    return library


class NativeStreams:
    """Memory in which layers lie one after another, in a part for each thread.

    It must outlive the layers in it; use as a context manager around theirs.
    """

    def __init__(self, threads: int) -> None:
        if threads < 1:
            raise NativeError(f"threads must be at least 1, not {threads}")
        self._library = _library()
        self.threads = threads
        self.handle: int | None = self._library.cassandra_streams_new(threads)

    def __enter__(self) -> NativeStreams:
        """The streams themselves."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Give the memory back."""
        if self.handle is not None:
            self._library.cassandra_streams_free(self.handle)
            self.handle = None


class NativeLinear:
    """A matrix in a form of the kernels; use as a context manager, or :meth:`close` it.

    Args:
        values: BF16 patterns, uint16 [out, in]: draft or target values as a codec decodes them.
        form: how to keep them. A form that cannot hold them exactly gives way to ``bf16``.
        group: values that share a unit, 32 or 64 (draft5, draft4, mx9).
        threads: parts that the rows are divided into.
        streams: where it is kept, instead of memory of its own; decides the number of threads.

    Raises:
        NativeError: there is no native library, or an argument is not as above.
    """

    def __init__(
        self,
        values: NDArray[np.uint16],
        form: FormName,
        *,
        group: int = 32,
        threads: int = 1,
        streams: NativeStreams | None = None,
    ) -> None:
        self._library = _library()
        self._handle: int | None = None
        if values.ndim != 2 or values.dtype != np.uint16:
            raise NativeError(
                f"values must be uint16 [out, in], not {values.dtype} {list(values.shape)}"
            )
        if form not in FORMS:
            raise NativeError(f"form must be {', '.join(FORMS)}, not {form!r}")
        if threads < 1:
            raise NativeError(f"threads must be at least 1, not {threads}")
        self.shape: tuple[int, int] = (values.shape[0], values.shape[1])
        self.group = group
        self.threads = threads if streams is None else streams.threads
        values = np.ascontiguousarray(values)
        error = ctypes.create_string_buffer(_ERROR_ROOM)
        self._handle = self._library.cassandra_linear_new(
            values.ctypes.data,
            *self.shape,
            FORMS.index(form),
            group,
            None if streams is None else streams.handle,
            threads,
            error,
            len(error),
        )
        if self._handle is None:
            raise NativeError(error.value.decode())

    def __enter__(self) -> NativeLinear:
        """The layer itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        self.close()

    def close(self) -> None:
        """Give the memory back; the layer cannot be used afterwards."""
        if self._handle is not None:
            self._library.cassandra_linear_free(self._handle)
            self._handle = None

    @property
    def handle(self) -> int:
        """For other entry points of the library."""
        if self._handle is None:
            raise NativeError("the layer must be open, not closed")
        return self._handle

    @property
    def form(self) -> FormName:
        """The form that holds the values, ``bf16`` where the wanted one could not."""
        return FORMS[self._library.cassandra_linear_form(self.handle)]

    @property
    def nbytes(self) -> int:
        """Bytes of the weights as stored, padding and escapes included."""
        return int(self._library.cassandra_linear_bytes(self.handle))

    @property
    def escapes(self) -> int:
        """Values that are kept aside (packed12, packed8)."""
        return int(self._library.cassandra_linear_escapes(self.handle))

    def values(self) -> NDArray[np.uint16]:
        """The values as the layout holds them, BF16 patterns [out, in]."""
        result = np.empty(self.shape, dtype=np.uint16)
        self._library.cassandra_linear_values(self.handle, result.ctypes.data)
        return result

    def multiply(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """``x @ values.T`` for float32 [rows, in], 1 to 8 rows; float32 [rows, out].

        The input is rounded to BF16 (bf16, packed12, packed8), or quantised for each group of
        features to 8 bits (draft5, draft4) or 16 bits (mx9).
        """
        if x.ndim != 2 or x.shape[1] != self.shape[1] or not 1 <= len(x) <= MAX_ROWS:
            raise NativeError(f"x must be [1..{MAX_ROWS}, {self.shape[1]}], not {list(x.shape)}")
        x = np.ascontiguousarray(x, dtype=np.float32)
        y = np.empty((len(x), self.shape[0]), dtype=np.float32)
        self._library.cassandra_linear_multiply(self.handle, len(x), x.ctypes.data, y.ctypes.data)
        return y

    def prepared(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """What a row [in] of input is taken for: rounded or quantised, and scaled back."""
        x = np.ascontiguousarray(x, dtype=np.float32).reshape(self.shape[1])
        padded = -(-len(x) // 64) * 64
        form = self.form
        kind = np.float32 if form in _WORDS else np.int8 if form.startswith("draft") else np.int16
        stored = np.zeros(padded, dtype=kind)
        scales = np.zeros(padded // 32, dtype=np.float32)
        self._library.cassandra_linear_prepare(
            self.handle, x.ctypes.data, stored.ctypes.data, scales.ctypes.data
        )
        if form in _WORDS:
            return stored[: len(x)].astype(np.float32)
        per_value = np.repeat(scales, self.group)[:padded]
        return (stored.astype(np.float32) * per_value)[: len(x)]


def time_layers(
    layers: Sequence[NativeLinear], rows: int, repeats: int, threads: int
) -> list[float]:
    """Seconds of each of ``repeats`` passes through layers that were made for ``threads``.

    Every thread is pinned to a core and goes through its parts of all layers; inputs are prepared
    beforehand and outputs are not used.
    """
    library = _library()
    handles = (ctypes.c_void_p * len(layers))(*(layer.handle for layer in layers))
    seconds = (ctypes.c_double * repeats)()
    library.cassandra_linear_time(handles, len(layers), rows, threads, repeats, seconds)
    return list(seconds)


def time_reading(nbytes: int, repeats: int, threads: int) -> list[float]:
    """Seconds of each of ``repeats`` reads of that much memory, divided among threads."""
    seconds = (ctypes.c_double * repeats)()
    _library().cassandra_read_time(nbytes, threads, repeats, seconds)
    return list(seconds)


def set_prefetch(form: FormName, nbytes: int) -> None:
    """How far ahead of use a form's kernels prefetch, in the whole process."""
    _library().cassandra_linear_set_prefetch(FORMS.index(form), nbytes)
