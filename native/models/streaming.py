"""Targets that are read from the packed file whenever a pass needs them (docs/software/native.md).

In memory are drafts in the form of the kernels, keys and values, what is read ahead, and as much of
the packed arrays as a limit allows.
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
from cassandra_spec.native.engine_binding import MAX_ROWS, PROMPT_ROWS, engine_library
from cassandra_spec.native.forms import FORMS, Target, draft_form, target_form
from cassandra_spec.native.library import declare, require_done
from cassandra_spec.native.models.config import EMBEDDING, HEAD, ModelConfig

CONTEXT = 2048
"""Most positions of a model with a memory limit that is not told how many: all are paid for."""

CHUNK = 128
"""Positions of a chunk of attention (attention.h)."""

ROOMS = 8
"""Parts of the file that are in memory at a time, so that reading goes on while others are used."""

SLAB = 1 << 21
"""Bytes of the file that are read at a time, at most: larger ones are not faster."""

LEAST_SLAB = 1 << 16
"""Bytes that are read at a time, or one segment's, where the limit leaves little."""

_AROUND = 1 << 15
"""Bytes of pages that are read beside what is wanted of two arrays, and that a codec may touch."""

ARRAYS = ("speculation", "verification")
"""Of a packed tensor, by their number in stream/tensor.h."""


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
    """Bytes that a model takes in memory, by what they are for."""

    target: int  # in the kernels' form, the embedding included
    draft: int
    positions: int  # keys and values
    buffers: int  # of passes
    head: int  # for a time, while the head is loaded, before anything else
    matrix: int  # beside drafts, while the largest matrix of a layer is loaded
    rooms: int  # the least for what is read ahead and decoded

    @property
    def whole(self) -> int:
        """With everything in memory."""
        return self.target + self.draft + max(self.head, self.positions + self.buffers)

    @property
    def least(self) -> int:
        """With the target read when it is used."""
        running = self.draft + self.positions + self.buffers + self.rooms
        return max(running, self.draft + self.matrix, self.head)


@dataclasses.dataclass(frozen=True)
class _Stored:
    """A tensor of matrices as a file has it."""

    name: str
    format: Format | None  # none: not packed
    shapes: tuple[tuple[int, int], ...]

    @property
    def count(self) -> int:
        return sum(rows * columns for rows, columns in self.shapes)

    def room(self, form: tuple[str, int], threads: int) -> int:
        number, group = FORMS.index(form[0]), form[1]
        empty = 64 * threads  # of a thread without rows, at least
        room = _library().cassandra_linear_room
        return sum(room(number, group, *one) + empty for one in self.shapes)


def _stored(config: ModelConfig, packed: PackedFile) -> Iterator[_Stored]:
    """Every tensor of matrices, in the order of use."""

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
    """What a packed model takes, the library and the interpreter aside."""
    stored = tuple(_stored(config, packed))
    drafts = [
        one.room(draft_form(one.format, one.shapes[0][1]), threads) if draft else 0
        for one in stored
    ]
    *matrices, head = (  # values, and twice the form: as packed and in its place
        2 * one.count * draft + 2 * room for one, room in zip(stored, drafts, strict=True)
    )
    segments = [2 * packed.tensors[one.name].format.segment for one in stored if one.format]
    columns = max(shape[1] for one in stored for shape in one.shapes)
    decoded = 2 * max(segments, default=0) + 4 * 2 * 16 * columns
    return Needs(
        target=sum(one.room(target_form(one.format, target), threads) for one in stored)
        + 2 * config.vocabulary * config.hidden,
        draft=sum(drafts)
        + sum(one.room(("bf16", 32), threads) for one in stored if not one.format),
        positions=position_bytes(config) * context * slots,
        buffers=_buffers(config, context, threads),
        head=head + drafts[-1],  # as stored, too
        matrix=max(matrices),
        rooms=threads * decoded + ROOMS * (LEAST_SLAB + 2 * max(segments, default=0) + _AROUND),
    )


def position_bytes(config: ModelConfig) -> int:
    """Keys and values of a position, as ``Engine::position_bytes`` of engine.cpp."""
    padded = -(-config.head_size // 16) * 16
    return 2 * 2 * padded * config.layers * config.kv_heads


def _attention_room(config: ModelConfig, context: int) -> int:
    """Buffers of attention of one thread, as ``AttentionRoom`` of scratch.h."""
    queries, padded = MAX_ROWS * config.heads // config.kv_heads, -(-config.head_size // 16) * 16
    summaries = -(-context // CHUNK) + 4
    branches = 2 * MAX_ROWS * 64 * padded
    return queries * (4 * (16 + padded) * summaries + 4 * padded + 6 * CHUNK) + branches


def _buffers(config: ModelConfig, context: int, threads: int) -> int:
    """Rows of activations of a pass, in float32 and as inputs of products."""
    q, kv = config.heads * config.head_size, config.kv_heads * config.head_size
    wide = 2 * config.hidden + 2 * q + 2 * kv + 2 * config.intermediate
    inputs = 16 * (config.hidden + q + config.intermediate)
    own = PROMPT_ROWS * inputs + _attention_room(config, context)
    return 4 * PROMPT_ROWS * wide + 4 * MAX_ROWS * config.vocabulary + threads * own


# --- the file of an engine -----------------------------------------------------------------------


class StreamedFile:
    """The packed file of an engine that reads its target from there.

    Raises :class:`CassandraError` if ``limit`` (bytes) is less than what the model needs. Calls are
    in this order: :meth:`open`, then :meth:`add_matrix` in the order of use, then :meth:`start`.
    """

    def __init__(self, packed: PackedFile, config: ModelConfig, need: Needs, limit: int) -> None:
        self.packed = packed
        self._config = config
        self._need = need
        self._limit = limit
        self._handle: int | None = None
        self._numbers: dict[str, int] = {}
        self._require(need.least)

    def _require(self, least: int) -> None:
        if self._limit < least:
            raise CassandraError(
                f"memory-limit must be at least {-(-least // 10**6)} MB, what drafts, keys and "
                f"values of all positions (--context), and buffers need, not {self._limit / 1e6:g}"
                " MB"
            )

    def open(self, handle: int) -> None:
        """Tell an engine of the file, and where its embedding is."""
        self._handle = handle
        path = str(self.packed.path).encode()
        require_done(_library().cassandra_engine_stream_open(handle, path))

    def has(self, name: str) -> bool:
        """Whether a matrix of this tensor is read when it is used."""
        return name in self.packed.tensors

    def read(self, name: str, *, draft: bool) -> Packed:
        """A packed tensor, checked, with no more in memory than its draft needs."""
        return self.packed.read_packed(name, without=ARRAYS[1:] if draft else ARRAYS)

    def _number(self, name: str, packed: Packed | None = None) -> int:
        """The number of a tensor in the engine."""
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
        """A matrix of values of a tensor from ``start`` on."""
        place = layer, matrix, self._number(name, packed), start
        shape = int32("rows", shape[0]), int32("columns", shape[1])
        require_done(_library().cassandra_engine_stream_matrix(self._handle, *place, *shape))

    def streams_embedding(self) -> bool:
        """Whether rows of the embedding are read when they are needed, and not kept."""
        raw = self.packed.others.get(EMBEDDING)
        return EMBEDDING in self.packed.tensors or (raw is not None and raw.dtype == "BF16")

    def add_embedding(self) -> None:
        """Read single rows of the embedding from the file."""
        packed = EMBEDDING in self.packed.tensors
        number = self._number(EMBEDDING) if packed else -1
        place = 0 if packed else self.packed.place(EMBEDDING)
        call = _library().cassandra_engine_stream_embedding
        require_done(call(self._handle, number, place, self._config.hidden))

    def start(self, draft: int) -> None:
        """Keep as many arrays as the limit allows beside ``draft`` bytes of drafts, and begin."""
        need = dataclasses.replace(self._need, draft=max(draft, self._need.draft))
        self._require(need.least)
        left = self._limit - need.draft - need.positions - need.buffers
        slab = min(SLAB, max((left - need.rooms) // (2 * ROOMS), LEAST_SLAB))
        left -= need.rooms + ROOMS * (slab - LEAST_SLAB)
        for number, name, array in self._arrays():
            size = self.packed.stored_bytes(name)[ARRAYS[array]] + _AROUND
            if size <= left:
                require_done(_library().cassandra_engine_stream_keep(self._handle, number, array))
                left -= size
        require_done(_library().cassandra_engine_stream_start(self._handle, slab, ROOMS))

    def _arrays(self) -> Iterator[tuple[int, str, int]]:
        """Arrays in the order in which they are worth keeping: drafts' first."""
        for array in range(len(ARRAYS)):
            for name, number in self._numbers.items():
                yield number, name, array

    def figures(self) -> Figures:
        """Bytes that are held, that a pass reads, and that were read, and for how long."""
        found = Figures()
        _library().cassandra_engine_stream_figures(self._handle, ctypes.byref(found))
        return found
