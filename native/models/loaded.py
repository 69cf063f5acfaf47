"""A model in native memory: load its tensors and validate them."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.drafting import Costs
from cassandra_spec.golden import CassandraError, Packed, bf16
from cassandra_spec.golden.checksums import Checksums
from cassandra_spec.golden.file import PackedFile
from cassandra_spec.golden.model_config import is_tied, read_config
from cassandra_spec.native.arrays import int32, pointer
from cassandra_spec.native.build import NativeError
from cassandra_spec.native.codec import NativeCodec
from cassandra_spec.native.engine_binding import engine_library, model_shapes
from cassandra_spec.native.forms import (
    FORMS,
    TARGETS,
    TRIED_PLANES,
    Target,
    draft_form,
    target_form,
)
from cassandra_spec.native.library import isa
from cassandra_spec.native.limits import MAX_ROWS
from cassandra_spec.native.models import streaming
from cassandra_spec.native.models.config import (
    EMBEDDING,
    FINAL_NORM,
    HEAD,
    LINEAR,
    ModelConfig,
    check_tensors,
    model_costs,
)
from cassandra_spec.native.models.reading import read_model_config
from cassandra_spec.native.models.streaming import Figures, StreamedFile

Tensor = NDArray[np.uint16] | Packed
Patterns = NDArray[np.uint16]

STREAMED = "streamed"
"""Name in place of a form: the matrix is read from the file at each use."""

_NOTHING = np.zeros(0, np.uint16)

CONTEXT = 32768
"""Default maximum positions of a sequence, even if the model supports more."""


Shapes = Mapping[int, tuple[int, int]]
"""Outputs and inputs by matrix: a tensor's rows are those of its matrices, one after another."""

Item = TypeVar("Item")
Made = TypeVar("Made")


class Decoded(NamedTuple):
    """The values of a tensor's matrices, flat; empty where the engine has none in memory."""

    tensor: Tensor
    target: Patterns
    draft: Patterns


def one_ahead(make: Callable[[Item], Made], items: Iterable[Item]) -> Iterator[Made]:
    """Yield ``make(item)`` for each item; a thread makes the next one meanwhile."""
    with ThreadPoolExecutor(1) as pool:
        before: Future[Made] | None = None
        for item in items:
            making = pool.submit(make, item)
            if before is not None:
                yield before.result()
            before = making
        if before is not None:
            yield before.result()


class LoadedModel:
    """Target and draft of a model, with memory for KV caches.

    ``tensors`` yields the model's tensors under Hugging Face's names: BF16 patterns (uint16, of any
    shape), or packed. ``target`` selects the storage of target values; ``draft`` prepares the
    draft. ``threads`` defaults to all available processors; ``pin`` pins one thread to each.
    ``context`` is the maximum positions of a sequence (by default the model's own, at most
    :data:`CONTEXT`), ``slots`` the number of sequences beside slot 0.

    ``forms`` counts the matrices of target and draft by their form (linear.h), or as
    :data:`STREAMED`: with ``stream``, the target is read from the file at each use. With
    ``verify``, checksums of the weights in memory are kept for :meth:`verify`.

    A model must be used in the process that made it, by one thread at a time. Close it, or use it
    as a context manager, to free its memory early.

    Raises :class:`CassandraError` if the engine does not support the model, or a tensor is missing
    or of another size, and :class:`NativeError` if no compiler is found or memory runs out.
    """

    def __init__(
        self,
        config: ModelConfig,
        tensors: Callable[[str], Tensor | None],
        *,
        target: Target = "bf16",
        draft: bool = True,
        threads: int | None = None,
        context: int | None = None,
        slots: int = 1,
        pin: bool = True,
        verify: bool = False,
        stream: StreamedFile | None = None,
    ) -> None:
        self.config = config
        self.threads = len(os.sched_getaffinity(0)) if threads is None else threads
        self.context = min(config.positions, CONTEXT) if context is None else context
        self.has_draft = draft
        self.forms: dict[str, dict[str, int]] = {"target": {}, "draft": {}}
        if target not in TARGETS:
            raise CassandraError(f"target must be {' or '.join(TARGETS)}, not {target!r}")
        self._target_form: Target = target
        if not 1 <= self.threads <= 256:
            raise CassandraError(f"threads must be from 1 to 256, not {threads}")
        if not 1 <= self.context <= config.positions:
            raise CassandraError(
                f"context must be from 1 to the model's {config.positions} positions, not {context}"
            )
        self.slots = int32("slots", slots, 0, MAX_ROWS)
        self.costs: Costs | None = None  # None without a packed file
        self.digest = ""  # empty without a packed file
        self._handle: int | None = None
        self._library = engine_library()
        self._process = os.getpid()
        self._codec = NativeCodec(self.threads)
        self._stream = stream
        self._streams_embedding = stream is not None and stream.streams_embedding()
        elsewhere = self._streams_embedding or config.tied  # in the file, or rows of the head
        self._embedding = None if elsewhere else self._read_embedding(tensors)
        self._matrices: list[tuple[str, int, int, bool]] = []  # name, layer, matrix, draft
        self._handle = self._make(pin)
        if stream is not None:
            stream.open(self._open())
        self._fill(tensors)
        if stream is not None:
            self._start(stream)
        self._checksums = Checksums(self.weights()) if verify else None

    @classmethod
    def from_packed(
        cls, directory: str | Path, *, memory_limit: int | None = None, **options: Any
    ) -> Self:
        """Load a packed model; ``options`` are those of the class.

        If it needs more than ``memory_limit`` bytes, its target is held in planes if it then fits
        and their kernels have been tried, else it is read from the file at each use.
        The limit covers weights, KV caches and buffers, but not the interpreter. The context then
        defaults to :data:`~.streaming.CONTEXT` positions.
        """
        folder = Path(directory)
        entries = read_config(folder)
        packed = PackedFile(folder / "model.safetensors")
        tied = is_tied(entries, {*packed.tensors, *packed.others}, folder / "config.json")
        entries["tie_word_embeddings"] = tied
        config = read_model_config(entries, options.get("context"))
        check_tensors(folder, config.tensor_shapes(), packed)
        if memory_limit is not None:
            options = _limited(config, packed, memory_limit, options)
        stream: StreamedFile | None = options.get("stream")

        def read(name: str) -> Tensor | None:
            if name in packed.tensors:
                draft = options.get("draft", True)
                return stream.read(name, draft=draft) if stream else packed.read_packed(name)
            if name not in packed.others:
                return None
            return bf16.from_bytes(packed.others[name].dtype, packed.read_raw(name))

        loaded = cls(config, read, **options)
        loaded.costs, loaded.digest = model_costs(config, packed), packed.digest
        return loaded

    @classmethod
    def from_tensors(
        cls, config: Mapping[str, Any], tensors: Mapping[str, Tensor], **options: Any
    ) -> Self:
        """Load tensors that are in memory, with the entries of a ``config.json``."""
        return cls(read_model_config(config, options.get("context")), tensors.get, **options)

    # --- loading ---------------------------------------------------------------------------------

    def _read_embedding(self, tensors: Callable[[str], Tensor | None]) -> Patterns:
        values = self._target(_required(tensors, EMBEDDING))
        size = self.config.vocabulary * self.config.hidden
        return np.ascontiguousarray(_sized(EMBEDDING, values, size))

    def _make(self, pin: bool) -> int | None:
        config = self.config
        shape, layers = model_shapes(config, context=self.context, slots=1 + self.slots)
        ropes = np.stack([rope.frequencies for rope in config.ropes])
        scales = np.array([rope.scale for rope in config.ropes], np.float32)
        handle: int | None = self._library.cassandra_engine_new(
            shape,
            layers,
            pointer("frequencies", ropes, np.float32, *ropes.shape),
            pointer("scales", scales, np.float32, len(scales)),
            self._embedding
            if self._embedding is None
            else pointer("embedding", self._embedding, np.uint16, self._embedding.size),
            self.threads,
            int(pin),
        )
        self._require_made(handle is not None)
        return handle

    def _fill(self, tensors: Callable[[str], Tensor | None]) -> None:
        """Load all matrices, the largest first: the head, while the others take no memory yet."""
        self._fill_head(tensors)
        self._fill_layers(tensors)

    def _fill_layers(self, tensors: Callable[[str], Tensor | None]) -> None:
        config = self.config
        matrices = [
            (layer, name, {LINEAR.index(part): config.shapes[part] for part in parts})
            for layer in range(config.layers)
            for name, parts in config.stored.items()
        ]

        def decode(matrix: tuple[int, str, Shapes]) -> Decoded:
            layer, name, shapes = matrix
            full = _of_layer(layer, name)
            return self._decode(full, _required(tensors, full), shapes)

        decoded = map(decode, matrices) if self._stream else one_ahead(decode, matrices)
        for (layer, name, shapes), values in zip(matrices, decoded, strict=True):
            self._set_matrices(layer, _of_layer(layer, name), values, shapes)
        for layer in range(config.layers):
            for name, vector in config.vectors.items():
                full = _of_layer(layer, name)
                tensor = _required(tensors, full)
                self._set_vector(layer, vector, full, tensor, config.vector_size(name))

    def _fill_head(self, tensors: Callable[[str], Tensor | None]) -> None:
        config = self.config
        self._set_vector(
            config.layers, 0, FINAL_NORM, _required(tensors, FINAL_NORM), config.hidden
        )
        name = EMBEDDING if config.tied else HEAD
        shapes = {0: (config.vocabulary, config.hidden)}
        values = self._decode(name, _required(tensors, name), shapes)
        self._set_matrices(config.layers, name, values, shapes)

    def _decode(self, name: str, tensor: Tensor, shapes: Shapes) -> Decoded:
        """Decode target and draft of a tensor, as far as the engine holds them."""
        size = sum(rows * columns for rows, columns in shapes.values())
        if not isinstance(tensor, Packed):
            return Decoded(tensor, _sized(name, self._target(tensor), size), _NOTHING)
        planes = self._form(tensor, shapes)[0] == "planes" and not self._stream
        drafts = self.has_draft or planes
        return Decoded(
            tensor,
            _NOTHING if self._stream else _sized(name, self._target(tensor), size),
            self._codec.decode_draft(tensor).reshape(-1) if drafts else _NOTHING,
        )

    def _form(self, tensor: Tensor, shapes: Shapes) -> tuple[str, int]:
        format = tensor.format if isinstance(tensor, Packed) else None
        return target_form(format, self._target_form, _columns(shapes))

    def _set_matrices(self, layer: int, name: str, values: Decoded, shapes: Shapes) -> None:
        """Load the rows of a tensor into its matrices, one after another."""
        tensor, target, draft = values
        stream = self._stream if isinstance(tensor, Packed) else None
        format = tensor.format if isinstance(tensor, Packed) else None
        has_draft = draft.size > 0
        start = 0
        for matrix, shape in shapes.items():
            stop = start + shape[0] * shape[1]
            if has_draft:  # first: it may be a part of the target
                form = draft_form(format, _columns(shapes))
                self._put(layer, matrix, True, draft[start:stop], shape, form)
            if stream and isinstance(tensor, Packed):
                stream.add_matrix(layer, matrix, name, tensor, start, shape)
                self.forms["target"][STREAMED] = self.forms["target"].get(STREAMED, 0) + 1
            else:
                form = self._form(tensor, shapes)
                held = self._put(layer, matrix, False, target[start:stop], shape, form)
                if self.has_draft and not has_draft:  # drafts read the target
                    self.forms["draft"][held] = self.forms["draft"].get(held, 0) + 1
            start = stop
            of = name if len(shapes) == 1 else f"{name}, {LINEAR[matrix]}"
            views = tuple(view for view in (False, True) if view <= has_draft)
            self._matrices += [(of, layer, matrix, view) for view in views]

    def _start(self, stream: StreamedFile) -> None:
        if self._streams_embedding:
            stream.add_embedding()
        weights = self._library.cassandra_engine_weight_bytes
        held = sum(weights(self._open(), draft) for draft in (0, 1))
        stream.start(held + (0 if self._embedding is None else self._embedding.nbytes))

    def _put(
        self,
        layer: int,
        matrix: int,
        draft: bool,
        values: Patterns,
        shape: tuple[int, int],
        form: tuple[str, int],
    ) -> str:
        """Load a matrix; return the form that holds it."""
        values = np.ascontiguousarray(values)
        number = self._library.cassandra_engine_set_matrix(
            self._handle,
            layer,
            matrix,
            int(draft),
            pointer("values", values, np.uint16, shape[0] * shape[1]),
            *shape,
            FORMS.index(form[0]),
            form[1],
        )
        self._require_made(number >= 0)
        forms = self.forms["draft" if draft else "target"]
        forms[FORMS[number]] = forms.get(FORMS[number], 0) + 1
        return FORMS[number]

    def _set_vector(self, layer: int, vector: int, name: str, tensor: Tensor, size: int) -> None:
        patterns = _sized(name, self._target(tensor), size)
        values = (patterns.astype(np.uint32) << 16).view(np.float32)
        if not name.endswith(".bias"):
            values = values + np.float32(self.config.norm_offset)
        self._require_made(
            self._library.cassandra_engine_set_vector(
                self._handle, layer, vector, pointer(name, values, np.float32, size), size
            )
        )

    def _target(self, tensor: Tensor) -> Patterns:
        values = self._codec.decode_target(tensor) if isinstance(tensor, Packed) else tensor
        return np.asarray(values).reshape(-1)

    def _require_made(self, done: bool) -> None:
        if not done:
            raise NativeError(f"the native engine cannot be made: {self._error()}")

    def _error(self) -> str:
        text: bytes = self._library.cassandra_error()
        return text.decode()

    # --- memory ----------------------------------------------------------------------------------

    def weights(self) -> Iterator[tuple[str, NDArray[np.uint8]]]:
        """Yield the memory of the embedding and of the matrices, by tensor, view and thread.

        The arrays are views: they must not be used after the model is closed.
        """
        if self._embedding is not None:
            yield EMBEDDING, self._embedding.view(np.uint8)
        size = ctypes.c_size_t()
        for name, layer, matrix, draft in self._matrices:
            view = "draft" if draft else "target"
            for thread in range(self.threads):
                place = (self._open(), layer, matrix, int(draft), thread)
                start = self._library.cassandra_engine_part(*place, ctypes.byref(size))
                if size.value:
                    octets = (ctypes.c_uint8 * size.value).from_address(start)
                    yield f"{name} ({view}, thread {thread})", np.ctypeslib.as_array(octets)

    def verify(self) -> None:
        """Check the weights in memory against the checksums computed at loading.

        Norms, biases and escapes are not covered. Raises :class:`CassandraError` that names the
        tensor.
        """
        if self._checksums is None:
            raise CassandraError("verify must be true of an engine whose weights are to be checked")
        self._checksums.check(self.weights())

    def memory(self) -> dict[str, int]:
        """Return bytes by use: weights (of planes, ``target`` is what the draft lacks), embedding
        (0 where its rows are those of the head), KV cache of one position in BF16 (``position``),
        and KV cache currently allocated in all slots (``cache``).

        For a streamed target, the weights are those held in memory, and ``streamed`` is the number
        of bytes that a verification reads.
        """
        handle, streamed = self._open(), self.streamed()
        kept = streamed.kept + streamed.rooms if streamed else 0
        of_file = {"streamed": streamed.whole_pass} if streamed else {}
        return of_file | {
            "target": self._library.cassandra_engine_weight_bytes(handle, 0) + kept,
            "draft": self._library.cassandra_engine_weight_bytes(handle, 1),
            "embedding": 0 if self._embedding is None else self._embedding.nbytes,
            "position": self._library.cassandra_engine_position_bytes(handle),
            "cache": self._library.cassandra_engine_cache_bytes(handle),
        }

    def streamed(self) -> Figures | None:
        """Return the figures of a streamed target; None if it is in memory."""
        self._open()
        return self._stream.figures() if self._stream else None

    def _open(self) -> int:
        if self._handle is None:
            raise CassandraError("the engine must not be used after it was closed")
        if os.getpid() != self._process:
            raise CassandraError("an engine must be used in the process that made it, not a fork")
        return self._handle

    def close(self) -> None:
        """Stop the threads and free the memory; the engine cannot be used afterwards."""
        handle, self._handle = self._handle, None
        if handle is not None and os.getpid() == self._process:
            self._library.cassandra_engine_free(handle)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            self.close()


def _limited(
    config: ModelConfig, packed: PackedFile, limit: int, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the options, with planes or a stream added if the model exceeds the limit.

    Planes have the replies of ``bf16``, and take less memory.
    """
    chosen = {"target": "bf16", "draft": True, "slots": 1, "threads": None, **options}
    threads = chosen["threads"] or len(os.sched_getaffinity(0))
    context = chosen.get("context") or min(config.positions, streaming.CONTEXT)

    def needs(target: Target) -> streaming.Needs:
        return streaming.needs(
            config,
            packed,
            target=target,
            draft=chosen["draft"],
            context=context,
            slots=max(chosen["slots"], 1),  # concurrent sequences: these slots, or slot 0
            threads=threads,
        )

    stream = None
    narrower = chosen["target"] == "bf16" and isa() in TRIED_PLANES
    if narrower and needs("planes").whole <= limit < needs("bf16").whole:
        chosen["target"] = "planes"
    if needs(chosen["target"]).whole > limit:
        stream = StreamedFile(packed, config, needs("bf16"), limit)
    if stream and chosen["target"] == "packed12":
        raise CassandraError(
            "target must be bf16 or planes where it is read from the file (memory-limit), "
            "not packed12"
        )
    return {**chosen, "context": context, "stream": stream}


def _of_layer(layer: int, name: str) -> str:
    return f"model.layers.{layer}.{name}"


def _columns(shapes: Shapes) -> int:
    return next(iter(shapes.values()))[1]


def _required(tensors: Callable[[str], Tensor | None], name: str) -> Tensor:
    tensor = tensors(name)
    if tensor is None:
        raise CassandraError(f"the model must have a tensor {name}, and has none of that name")
    return tensor


def _sized(name: str, values: Patterns, size: int) -> Patterns:
    if values.size != size:
        raise CassandraError(f"{name} must have {size} values, not {values.size}")
    return values
