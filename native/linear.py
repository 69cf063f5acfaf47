"""Single linear layers on the native kernels, for tests and measurements.

The engine uses the same layers from C++ (``native/src/linear/linear.h``).
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Self

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.native.arrays import int32, pointer
from cassandra_spec.native.build import NativeError
from cassandra_spec.native.forms import FORMS, FormName
from cassandra_spec.native.library import declare, load, require_done
from cassandra_spec.native.limits import PROMPT_ROWS

__all__ = [
    "FORMS",
    "FormName",
    "NativeLinear",
    "NativeStreams",
    "time_layers",
    "time_reading",
]

_MOST_THREADS = 256


@cache
def _library() -> ctypes.CDLL:
    library = load()
    handle, array, count = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64
    number, done = ctypes.c_int, ctypes.c_bool
    signatures = {
        "streams_new": (handle, (number,)),
        "streams_free": (None, (handle,)),
        "linear_new": (handle, (array, count, count, number, number, handle, number, handle)),
        "linear_free": (None, (handle,)),
        "linear_form": (number, (handle,)),
        "linear_bytes": (count, (handle,)),
        "linear_escapes": (count, (handle,)),
        "linear_values": (None, (handle, array)),
        "linear_multiply": (done, (handle, number, array, array)),
        "linear_time": (done, (handle, number, number, number, number, array)),
        "read_time": (done, (count, number, number, array)),
    }
    declare(library, signatures)
    return library


class _Owned:
    """Native object that is freed by :meth:`close`; a context manager."""

    _name = ""

    def __init__(self) -> None:
        self._library = _library()
        self._handle: int | None = None

    @property
    def handle(self) -> int:
        """Handle for other entry points of the library."""
        if self._handle is None:
            raise NativeError(f"the {self._name} must be open, not closed")
        return self._handle

    def _take(self, handle: int | None) -> None:
        require_done(handle)
        self._handle = handle

    def close(self) -> None:
        """Free the memory; the object cannot be used afterwards."""
        if self._handle is not None:
            self._free(self._handle)
            self._handle = None

    def _free(self, handle: int) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class NativeStreams(_Owned):
    """Memory that holds layers one after another, with one part per thread.

    Close it after the layers in it.
    """

    _name = "streams"

    def __init__(self, threads: int) -> None:
        super().__init__()
        self.threads = int32("threads", threads, 1, _MOST_THREADS)
        self.layers = 0  # number of layers in it
        self._take(self._library.cassandra_streams_new(threads))

    def _free(self, handle: int) -> None:
        if self.layers:
            raise NativeError("streams must be closed after the layers in them")
        self._library.cassandra_streams_free(handle)


class NativeLinear(_Owned):
    """A matrix in a form of the kernels; use as a context manager, or :meth:`close` it.

    Args:
        values: BF16 patterns, uint16 [out, in]: draft or target values as a codec decodes them.
        form: storage form. If it cannot hold the values exactly, ``bf16`` is used instead.
        group: values that share a scale, 32 or 64 (draft5, draft4, mx9).
        threads: parts that the rows are divided into.
        streams: memory to store it in, instead of its own; determines the number of threads.
        draft: layer of the same shape that is the first plane of ``planes``; without one, the layer
            makes a ``draft5`` of its values. Close it after this layer.

    Raises:
        NativeError: the native library is not available, or an argument is invalid.
    """

    _name = "layer"

    def __init__(
        self,
        values: NDArray[np.uint16],
        form: FormName,
        *,
        group: int = 32,
        threads: int = 1,
        streams: NativeStreams | None = None,
        draft: NativeLinear | None = None,
    ) -> None:
        super().__init__()
        if values.ndim != 2 or values.dtype != np.uint16:
            raise NativeError(
                f"values must be uint16 [out, in], not {values.dtype} {list(values.shape)}"
            )
        if form not in FORMS:
            raise NativeError(f"form must be {', '.join(FORMS)}, not {form!r}")
        threads = int32("threads", threads, 1, _MOST_THREADS)
        self.shape: tuple[int, int] = (values.shape[0], values.shape[1])
        self.group = group
        self.threads = threads if streams is None else streams.threads
        values = np.ascontiguousarray(values)
        made = self._library.cassandra_linear_new(
            pointer("values", values, np.uint16, *self.shape),
            *self.shape,
            FORMS.index(form),
            int32("group", group),
            None if streams is None else streams.handle,
            threads,
            None if draft is None else draft.handle,
        )
        self._take(made)
        self._streams = streams
        if streams is not None:
            streams.layers += 1

    def _free(self, handle: int) -> None:
        self._library.cassandra_linear_free(handle)
        if self._streams is not None:
            self._streams.layers -= 1

    @property
    def form(self) -> FormName:
        """Form that holds the values; ``bf16`` where the requested one could not."""
        return FORMS[self._library.cassandra_linear_form(self.handle)]

    @property
    def nbytes(self) -> int:
        """Bytes that a pass reads, including padding and escapes, and of planes the draft."""
        return int(self._library.cassandra_linear_bytes(self.handle))

    @property
    def escapes(self) -> int:
        """Number of values stored separately (packed12, packed8), or patched (planes)."""
        return int(self._library.cassandra_linear_escapes(self.handle))

    def values(self) -> NDArray[np.uint16]:
        """Return the stored values, BF16 patterns [out, in]."""
        result = np.empty(self.shape, dtype=np.uint16)
        room = pointer("values", result, np.uint16, *self.shape, writable=True)
        self._library.cassandra_linear_values(self.handle, room)
        return result

    def multiply(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return ``x @ values.T`` for float32 [rows, in], 1 to 128 rows, as float32 [rows, out].

        The input is rounded to BF16 (bf16, packed12, packed8, planes), or quantized per group of
        features to 8 bits (draft5, draft4) or 16 bits (mx9).
        """
        if x.ndim != 2 or x.shape[1] != self.shape[1] or not 1 <= len(x) <= PROMPT_ROWS:
            raise NativeError(f"x must be [1..{PROMPT_ROWS}, {self.shape[1]}], not {list(x.shape)}")
        x = np.ascontiguousarray(x, dtype=np.float32)
        y = np.empty((len(x), self.shape[0]), dtype=np.float32)
        rows, (outputs, inputs) = len(x), self.shape
        done = self._library.cassandra_linear_multiply(
            self.handle,
            rows,
            pointer("x", x, np.float32, rows, inputs),
            pointer("y", y, np.float32, rows, outputs, writable=True),
        )
        require_done(done)
        return y


def time_layers(
    layers: Sequence[NativeLinear], rows: int, repeats: int, threads: int
) -> list[float]:
    """Return the seconds of each of ``repeats`` passes over layers made for ``threads``.

    Every thread is pinned to a core and multiplies its parts of all layers. Inputs are prepared
    beforehand; outputs are discarded.
    """
    if any(layer.threads != threads for layer in layers):
        raise NativeError(f"threads must be those of every layer, not {threads}")
    handles = (ctypes.c_void_p * len(layers))(*(layer.handle for layer in layers))
    seconds = np.empty(int32("repeats", repeats, 0))
    room = pointer("seconds", seconds, np.float64, repeats, writable=True)
    rows = int32("rows", rows, 1, PROMPT_ROWS)
    done = _library().cassandra_linear_time(handles, len(layers), rows, threads, repeats, room)
    require_done(done)
    return [float(time) for time in seconds]


def time_reading(nbytes: int, repeats: int, threads: int) -> list[float]:
    """Return the seconds of each of ``repeats`` reads of that much memory by all threads."""
    seconds = np.empty(int32("repeats", repeats, 0))
    room = pointer("seconds", seconds, np.float64, repeats, writable=True)
    threads = int32("threads", threads, 1, _MOST_THREADS)
    require_done(_library().cassandra_read_time(nbytes, threads, repeats, room))
    return [float(time) for time in seconds]
