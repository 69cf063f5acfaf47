"""Streamed targets: read from the packed file at each use (docs/software/native.md).

Memory holds the drafts in the form of the kernels, the KV caches, read-ahead buffers, and as much
of the packed arrays as the limit allows.
"""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Iterator
from ctypes import POINTER, c_char_p, c_double, c_int, c_int64, c_void_p
from functools import cache

import numpy as np

from cassandra_spec.golden import CassandraError, Format, Packed
from cassandra_spec.golden.file import PackedFile
from cassandra_spec.golden.format import DIRECTORY_FIELDS
from cassandra_spec.native.arrays import CheckedStructure, int32, pointer
from cassandra_spec.native.codec import Params, codec_params
from cassandra_spec.native.engine_binding import engine_library
from cassandra_spec.native.forms import FORMS, Target, draft_form, target_form
from cassandra_spec.native.library import declare, require_done
from cassandra_spec.native.limits import CHUNK, MAX_ROWS, PROMPT_ROWS
from cassandra_spec.native.models.config import EMBEDDING, HEAD, ModelConfig

CONTEXT = 2048
"""Default maximum positions with a memory limit: memory for all of them is reserved."""

READ_AHEAD = 8
"""Read-ahead buffers: some are read while others are used."""

SLAB = 1 << 21
"""Maximum bytes per read; larger reads are not faster."""

MIN_SLAB = 1 << 16
"""Bytes per read, or one segment's, if the limit leaves little memory."""

_AROUND = 1 << 15
"""Margin of page bytes around two arrays, which are read too and may be touched by a codec."""

ARRAYS = ("speculation", "verification")
"""Parts of a packed tensor; the index is the number in stream/tensor.h."""


class Figures(CheckedStructure):
    """``Figures`` of stream/source.h."""

    _fields_ = (
        *((name, c_int64) for name in ("kept", "rooms", "whole_pass", "read")),
        ("seconds", c_double),
    )


_SIGNATURES = {
    "linear_room": (c_int64, (c_int, c_int, c_int64, c_int64)),
    "engine_stream_open": (c_int, (c_void_p, c_char_p)),
    "engine_stream_tensor": (
        c_int,
        (
            *(c_void_p, c_char_p, POINTER(Params), c_int64, c_void_p, c_int64),
            *(c_int64, c_int64),
        ),
    ),
    "engine_stream_matrix": (c_int, (c_void_p, c_int, c_int, c_int, c_int64, c_int, c_int)),
    "engine_stream_embedding": (c_int, (c_void_p, c_int, c_int64, c_int)),
    "engine_stream_keep": (c_int, (c_void_p, c_int, c_int)),
    "engine_stream_start": (c_int, (c_void_p, c_int64, c_int)),
    "engine_stream_figures": (None, (c_void_p, POINTER(Figures))),
}


@cache
def _library() -> ctypes.CDLL:
    library = engine_library()
    declare(library, _SIGNATURES)
    return library


# --- what a model needs --------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, kw_only=True)
class Needs:
    """Memory needs of a model in bytes, by use."""

    target: int  # in the kernels' form, including the embedding
    draft: int
    positions: int  # KV caches
    buffers: int  # buffers of passes
    head: int  # temporary, while the head is loaded first
    matrix: int  # temporary, beside drafts, for the largest matrix of a layer
    read_ahead: int  # minimum for read-ahead and decoding

    @property
    def whole(self) -> int:
        """Total with the target in memory."""
        return self.target + self.draft + max(self.head, self.positions + self.buffers)

    @property
    def minimum(self) -> int:
        """Minimum, with a streamed target."""
        running = self.draft + self.positions + self.buffers + self.read_ahead
        return max(running, self.draft + self.matrix, self.head)


@dataclasses.dataclass(frozen=True)
class _Stored:
    """A stored tensor of one or more matrices."""

    name: str
    format: Format | None  # None: not packed
    shapes: tuple[tuple[int, int], ...]

    @property
    def count(self) -> int:
        return sum(rows * columns for rows, columns in self.shapes)

    def room(self, form: tuple[str, int], threads: int) -> int:
        number, group = FORMS.index(form[0]), form[1]
        empty = 64 * threads  # minimum, of a thread without rows
        room = _library().cassandra_linear_room
        patches = self.count // 4 if form[0] == "planes" else 0  # maximum bytes
        return patches + sum(room(number, group, *one) + empty for one in self.shapes)


def _stored(config: ModelConfig, packed: PackedFile) -> Iterator[_Stored]:
    """Yield every tensor that holds matrices, in the order of use."""

    def format_of(name: str) -> Format | None:
        return packed.tensors[name].format if name in packed.tensors else None

    for layer in range(config.layers):
        for name, parts in config.stored.items():
            full = f"model.layers.{layer}.{name}"
            yield _Stored(full, format_of(full), tuple(config.shapes[part] for part in parts))
    head = EMBEDDING if config.tied else HEAD
    yield _Stored(head, format_of(head), ((config.vocabulary, config.hidden),))


def needs(
    config: ModelConfig,
    packed: PackedFile,
    *,
    target: Target,
    draft: bool,
    context: int,
    slots: int,
    threads: int,
) -> Needs:
    """Return the memory needs of a packed model, without library and interpreter."""
    stored = tuple(_stored(config, packed))
    drafts = [
        one.room(draft_form(one.format, one.shapes[0][1]), threads)
        if draft or (one.format and target == "planes")
        else 0
        for one in stored
    ]
    *matrices, head = (  # values and twice the form: as packed, and in its place
        2 * one.count * draft + 2 * room for one, room in zip(stored, drafts, strict=True)
    )
    segments = [2 * packed.tensors[one.name].format.segment for one in stored if one.format]
    columns = max(shape[1] for one in stored for shape in one.shapes)
    decoded = 2 * max(segments, default=0) + 4 * 2 * 16 * columns
    return Needs(
        target=sum(
            one.room(target_form(one.format, target, one.shapes[0][1]), threads) for one in stored
        )
        + (0 if config.tied else 2 * config.vocabulary * config.hidden),
        draft=sum(room for one, room in zip(stored, drafts, strict=True) if one.format)
        + sum(one.room(("bf16", 32), threads) for one in stored if not one.format),
        positions=position_bytes(config) * context * slots,
        buffers=_buffers(config, context, threads),
        head=head + drafts[-1],  # also as stored
        matrix=max(matrices),
        read_ahead=threads * decoded
        + READ_AHEAD * (MIN_SLAB + 2 * max(segments, default=0) + _AROUND),
    )


def position_bytes(config: ModelConfig) -> int:
    """Return the KV cache bytes of a position, as ``Engine::position_bytes`` of engine.cpp."""
    padded = -(-config.head_size // 16) * 16
    return 2 * 2 * padded * config.layers * config.kv_heads


def _attention_room(config: ModelConfig, context: int) -> int:
    """Return one thread's attention buffers, as ``AttentionRoom`` of scratch.h."""
    queries, padded = MAX_ROWS * config.heads // config.kv_heads, -(-config.head_size // 16) * 16
    summaries = -(-context // CHUNK) + 4
    branches = 2 * MAX_ROWS * 64 * padded
    return queries * (4 * (16 + padded) * summaries + 4 * padded + 6 * CHUNK) + branches


def _buffers(config: ModelConfig, context: int, threads: int) -> int:
    """Return a pass's activation bytes, in float32 and as inputs of products."""
    q, kv = config.heads * config.head_size, config.kv_heads * config.head_size
    wide = 2 * config.hidden + 2 * q + 2 * kv + 2 * config.intermediate
    inputs = 16 * (config.hidden + q + config.intermediate)
    own = PROMPT_ROWS * inputs + _attention_room(config, context)
    return 4 * PROMPT_ROWS * wide + 4 * MAX_ROWS * config.vocabulary + threads * own


# --- the file of an engine -----------------------------------------------------------------------


class StreamedFile:
    """The packed file of an engine with a streamed target.

    Raises :class:`CassandraError` if ``limit`` (bytes) is below the minimum of the model. Call
    :meth:`open`, then :meth:`add_matrix` in the order of use, then :meth:`start`.
    """

    def __init__(self, packed: PackedFile, config: ModelConfig, need: Needs, limit: int) -> None:
        self.packed = packed
        self._config = config
        self._need = need
        self._limit = limit
        self._handle: int | None = None
        self._numbers: dict[str, int] = {}
        self._require(need.minimum)

    def _require(self, least: int) -> None:
        if self._limit < least:
            raise CassandraError(
                f"memory-limit must be at least {-(-least // 10**6)} MB, what drafts, keys and "
                f"values of all positions (--context), and buffers need, not {self._limit / 1e6:g}"
                " MB"
            )

    def open(self, handle: int) -> None:
        """Register the file and the place of its embedding with an engine."""
        self._handle = handle
        path = str(self.packed.path).encode()
        require_done(_library().cassandra_engine_stream_open(handle, path))

    def has(self, name: str) -> bool:
        """Return True if a matrix of this tensor is streamed."""
        return name in self.packed.tensors

    def read(self, name: str, *, draft: bool) -> Packed:
        """Return a packed tensor, checked, holding in memory only the part its draft needs."""
        return self.packed.read_packed(name, without=ARRAYS[1:] if draft else ARRAYS)

    def _number(self, name: str, packed: Packed | None = None) -> int:
        """Return the number of a tensor in the engine, registering it first if needed."""
        if name in self._numbers:
            return self._numbers[name]
        packed = packed or self.read(name, draft=False)
        directory = np.ascontiguousarray(packed.directory, dtype=np.uint32)
        number: int = _library().cassandra_engine_stream_tensor(
            self._handle,
            f"{self.packed.path}: {name}".encode(),
            codec_params(packed.format, packed.codebook, packed.pruned_codebook),
            packed.count,
            pointer("directory", directory, np.uint32, len(directory), len(DIRECTORY_FIELDS)),
            len(directory),
            *(self.packed.place(f"{name}.{array}") for array in ARRAYS),
        )
        require_done(number >= 0)
        self._numbers[name] = number
        return number

    def add_matrix(
        self, layer: int, matrix: int, name: str, packed: Packed, start: int, shape: tuple[int, int]
    ) -> None:
        """Register a matrix: the values of a tensor from ``start`` on."""
        place = layer, matrix, self._number(name, packed), start
        shape = int32("rows", shape[0]), int32("columns", shape[1])
        require_done(_library().cassandra_engine_stream_matrix(self._handle, *place, *shape))

    def streams_embedding(self) -> bool:
        """Return True if rows of the embedding are read at each use."""
        raw = self.packed.others.get(EMBEDDING)
        return EMBEDDING in self.packed.tensors or (raw is not None and raw.dtype == "BF16")

    def add_embedding(self) -> None:
        """Register the embedding, to be read row by row from the file."""
        packed = EMBEDDING in self.packed.tensors
        number = self._number(EMBEDDING) if packed else -1
        place = 0 if packed else self.packed.place(EMBEDDING)
        call = _library().cassandra_engine_stream_embedding
        require_done(call(self._handle, number, place, self._config.hidden))

    def start(self, draft: int) -> None:
        """Keep as many arrays as fit the limit beside ``draft`` bytes of drafts; start reading."""
        need = dataclasses.replace(self._need, draft=max(draft, self._need.draft))
        self._require(need.minimum)
        left = self._limit - need.draft - need.positions - need.buffers
        slab = min(SLAB, max((left - need.read_ahead) // (2 * READ_AHEAD), MIN_SLAB))
        left -= need.read_ahead + READ_AHEAD * (slab - MIN_SLAB)
        for number, name, array in self._arrays():
            size = self.packed.stored_bytes(name)[ARRAYS[array]] + _AROUND
            if size <= left:
                require_done(_library().cassandra_engine_stream_keep(self._handle, number, array))
                left -= size
        require_done(_library().cassandra_engine_stream_start(self._handle, slab, READ_AHEAD))

    def _arrays(self) -> Iterator[tuple[int, str, int]]:
        """Yield arrays in the order of their worth for caching: drafts' first."""
        for array in range(len(ARRAYS)):
            for name, number in self._numbers.items():
                yield number, name, array

    def figures(self) -> Figures:
        """Return bytes held, bytes per pass, and bytes and seconds of reading so far."""
        figures = Figures()
        _library().cassandra_engine_stream_figures(self._handle, ctypes.byref(figures))
        return figures
