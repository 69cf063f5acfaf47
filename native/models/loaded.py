"""A model in native memory: load its tensors and validate them."""

from __future__ import annotations

import contextlib
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
    Target,
    draft_form,
    target_form,
)
from cassandra_spec.native.library import isa, library_digest
from cassandra_spec.native.limits import MAX_ROWS
from cassandra_spec.native.models.config import (
    EMBEDDING,
    FINAL_NORM,
    HEAD,
    LINEAR,
    ModelConfig,
    check_tensors,
    model_costs,
)
from cassandra_spec.native.models.fitting import fitted
from cassandra_spec.native.models.kept import KeptWeights, read_all
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


class Matrix(NamedTuple):
    """The name of a matrix, its layer, its number there, and its outputs and inputs."""

    name: str
    layer: int
    number: int
    shape: tuple[int, int]


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
    ``verify``, checksums of the weights in memory are kept for :meth:`verify`. ``kept`` has the
    weights in the engine's forms (:mod:`.kept`): ``tensors`` are then read for norms and biases.

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
        kept: PackedFile | None = None,
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
        self._embedding = None if elsewhere else self._read_embedding(tensors, kept)
        self._matrices: list[tuple[Matrix, bool]] = []  # in memory, as target and as draft
        self._handle = self._make(pin)
        if stream is not None:
            stream.open(self._open())
        if kept is not None:
            self._restore(kept)
        else:
            self._fill(tensors)
        self._fill_vectors(tensors)
        if stream is not None:
            self._start(stream)
        self._checksums = Checksums(self.weights()) if verify else None

    @classmethod
    def from_packed(
        cls,
        directory: str | Path,
        *,
        memory_limit: int | None = None,
        cache: Path | None = None,
        **options: Any,
    ) -> Self:
        """Load a packed model; ``options`` are those of the class.

        If it needs more than ``memory_limit`` bytes, its target is held in planes if it then fits
        and their kernels have been tried, else it is read from the file at each use.
        The limit covers weights, KV caches and buffers, but not the interpreter. The context then
        defaults to :data:`~.streaming.CONTEXT` positions. The default limit of a model that does
        not fit is what the system has left, which a line on standard error says.

        Weights that are not streamed are read from a file in the folder ``cache``, and are written
        to it if it lacks them and has room (:mod:`.kept`).
        """
        folder = Path(directory)
        entries = read_config(folder)
        packed = PackedFile(folder / "model.safetensors")
        tied = is_tied(entries, {*packed.tensors, *packed.others}, folder / "config.json")
        entries["tie_word_embeddings"] = tied
        config = read_model_config(entries, options.get("context"))
        check_tensors(folder, config.tensor_shapes(), packed)
        options = fitted(config, packed, memory_limit, options)
        stream: StreamedFile | None = options.get("stream")

        def read(name: str) -> Tensor | None:
            if name in packed.tensors:
                draft = options.get("draft", True)
                return stream.read(name, draft=draft) if stream else packed.read_packed(name)
            if name not in packed.others:
                return None
            return bf16.from_bytes(packed.others[name].dtype, packed.read_raw(name))

        def load(kept: PackedFile | None = None) -> Any:
            return cls(config, read, kept=kept, **options)

        weights = None if cache is None or stream else _kept(cache, packed, options)
        loaded: Self = load() if weights is None else _keep(weights, load)
        loaded.costs, loaded.digest = model_costs(config, packed), packed.digest
        return loaded

    @classmethod
    def from_tensors(
        cls, config: Mapping[str, Any], tensors: Mapping[str, Tensor], **options: Any
    ) -> Self:
        """Load tensors that are in memory, with the entries of a ``config.json``."""
        return cls(read_model_config(config, options.get("context")), tensors.get, **options)

    # --- loading ---------------------------------------------------------------------------------

    def _read_embedding(
        self, tensors: Callable[[str], Tensor | None], kept: PackedFile | None
    ) -> Patterns:
        size = self.config.vocabulary * self.config.hidden
        if kept is None:
            values = self._target(_required(tensors, EMBEDDING))
        else:
            values = kept.read_raw(EMBEDDING).view(np.uint16)
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

    def _tensors(self) -> Iterator[tuple[int, str, Shapes]]:
        """Yield layer, name and matrices of all tensors: the head, then those of the layers."""
        config = self.config
        head = EMBEDDING if config.tied else HEAD
        yield config.layers, head, {0: (config.vocabulary, config.hidden)}
        for layer in range(config.layers):
            for name, parts in config.stored.items():
                shapes = {LINEAR.index(part): config.shapes[part] for part in parts}
                yield layer, _of_layer(layer, name), shapes

    def _fill(self, tensors: Callable[[str], Tensor | None]) -> None:
        """Load all matrices, the largest first: the head, while the others take no memory yet."""

        def decode(item: tuple[int, str, Shapes]) -> Decoded:
            _, name, shapes = item
            return self._decode(name, _required(tensors, name), shapes)

        head, *others = self._tensors()
        self._set_matrices(head[0], head[1], decode(head), head[2])
        decoded = map(decode, others) if self._stream else one_ahead(decode, others)
        for (layer, name, shapes), values in zip(others, decoded, strict=True):
            self._set_matrices(layer, name, values, shapes)

    def _fill_vectors(self, tensors: Callable[[str], Tensor | None]) -> None:
        config = self.config
        self._set_vector(
            config.layers, 0, FINAL_NORM, _required(tensors, FINAL_NORM), config.hidden
        )
        for layer in range(config.layers):
            for name, vector in config.vectors.items():
                full = _of_layer(layer, name)
                tensor = _required(tensors, full)
                self._set_vector(layer, vector, full, tensor, config.vector_size(name))

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
        for matrix in _matrices(layer, name, shapes):
            stop = start + matrix.shape[0] * matrix.shape[1]
            if has_draft:  # first: it may be a part of the target
                form = draft_form(format, _columns(shapes))
                self._put(matrix, True, draft[start:stop], form)
            if stream and isinstance(tensor, Packed):
                stream.add_matrix(layer, matrix.number, name, tensor, start, matrix.shape)
                self._count("target", STREAMED)
            else:
                held = self._put(matrix, False, target[start:stop], self._form(tensor, shapes))
                if self.has_draft and not has_draft:  # drafts read the target
                    self._count("draft", held)
            start = stop

    def _start(self, stream: StreamedFile) -> None:
        if self._streams_embedding:
            stream.add_embedding()
        weights = self._library.cassandra_engine_weight_bytes
        held = sum(weights(self._open(), draft) for draft in (0, 1))
        stream.start(held + (0 if self._embedding is None else self._embedding.nbytes))

    def _put(self, matrix: Matrix, draft: bool, values: Patterns, form: tuple[str, int]) -> str:
        """Load a matrix; return the form that holds it."""
        values = np.ascontiguousarray(values)
        number = self._library.cassandra_engine_set_matrix(
            self._handle,
            *_place(matrix, draft),
            pointer("values", values, np.uint16, matrix.shape[0] * matrix.shape[1]),
            *matrix.shape,
            FORMS.index(form[0]),
            form[1],
        )
        return self._add(matrix, draft, number)

    def _add(self, matrix: Matrix, draft: bool, form: int) -> str:
        """Note a matrix in memory; return the name of its form."""
        self._require_made(form >= 0)
        self._matrices.append((matrix, draft))
        self._count("draft" if draft else "target", FORMS[form])
        return FORMS[form]

    def _count(self, view: str, form: str) -> None:
        self.forms[view][form] = self.forms[view].get(form, 0) + 1

    # --- kept weights ----------------------------------------------------------------------------

    def _restore(self, kept: PackedFile) -> None:
        """Load all matrices from a file of :meth:`_arrays`."""
        whole = self.has_draft or self._target_form == "planes"  # their first plane is a draft
        for tensor in self._tensors():
            for matrix in _matrices(*tensor):
                views = (True, False) if whole and _key(matrix, True) in kept.others else (False,)
                forms = [self._restore_view(kept, matrix, draft) for draft in views]
                if self.has_draft and len(views) == 1:  # drafts read the target
                    self._count("draft", forms[0])
        read_all(kept, ((_key(*place), octets) for place, octets in self._parts()), self.threads)

    def _restore_view(self, kept: PackedFile, matrix: Matrix, draft: bool) -> str:
        state = kept.read_raw(_key(matrix, draft))
        number = self._library.cassandra_engine_restore_matrix(
            self._handle,
            *_place(matrix, draft),
            pointer("state", state, np.uint8, state.size),
            state.size,
            *matrix.shape,
        )
        return self._add(matrix, draft, number)

    def arrays(self) -> Iterator[tuple[str, NDArray[np.uint8]]]:
        """Yield what :mod:`.kept` keeps of the model: its weights in memory and their forms."""
        if self._embedding is not None:
            yield EMBEDDING, self._embedding.reshape(-1).view(np.uint8)
        for matrix, draft in self._matrices:
            yield _key(matrix, draft), self._state(matrix, draft)
        for place, octets in self._parts():
            yield _key(*place), octets

    def _state(self, matrix: Matrix, draft: bool) -> NDArray[np.uint8]:
        size = ctypes.c_size_t()
        state = np.zeros(0, np.uint8)
        for _ in range(2):  # first only the size
            to = state.ctypes.data if state.size else None
            place = (self._open(), *_place(matrix, draft))
            done = self._library.cassandra_engine_matrix_state(*place, to, ctypes.byref(size))
            self._require_made(bool(done))
            state = state if state.size else np.zeros(size.value, np.uint8)
        return state

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
        for (matrix, draft, thread), octets in self._parts():
            view = "draft" if draft else "target"
            yield f"{matrix.name} ({view}, thread {thread})", octets

    def _parts(self) -> Iterator[tuple[tuple[Matrix, bool, int], NDArray[np.uint8]]]:
        """Yield the memory of the matrices by matrix, draft's view and thread."""
        size = ctypes.c_size_t()
        for matrix, draft in self._matrices:
            for thread in range(self.threads):
                place = (self._open(), *_place(matrix, draft), thread)
                start = self._library.cassandra_engine_part(*place, ctypes.byref(size))
                if size.value:
                    octets = (ctypes.c_uint8 * size.value).from_address(start)
                    yield (matrix, draft, thread), np.ctypeslib.as_array(octets)

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


def _kept(cache: Path, packed: PackedFile, options: Mapping[str, Any]) -> KeptWeights:
    """Return the file of kept weights of a model; its forms depend on the options."""
    about = {
        "library": library_digest(),
        "isa": isa(),
        "target": options.get("target", "bf16"),
        "draft": options.get("draft", True),
        "threads": options.get("threads") or len(os.sched_getaffinity(0)),
    }
    return KeptWeights(path=cache / f"{packed.digest}.safetensors", about=about)


def _keep(weights: KeptWeights, load: Callable[[PackedFile | None], Any]) -> Any:
    """Load a model from kept weights; where they are missing or broken, encode and keep them."""
    found = weights.find()
    if found is not None:
        with contextlib.suppress(ValueError, OSError):  # the packed file has all of it, or says why
            return load(found)
        weights.discard()
    loaded = load(None)
    weights.write(dict(loaded.arrays()))
    return loaded


def _matrices(layer: int, name: str, shapes: Shapes) -> Iterator[Matrix]:
    """Yield the matrices of a tensor."""
    for number, shape in shapes.items():
        of = name if len(shapes) == 1 else f"{name}, {LINEAR[number]}"
        yield Matrix(of, layer, number, shape)


def _place(matrix: Matrix, draft: bool) -> tuple[int, int, int]:
    return matrix.layer, matrix.number, int(draft)


def _key(matrix: Matrix, draft: bool, thread: int | None = None) -> str:
    """Return the name of a matrix's state in a file of kept weights, or that of a thread's part."""
    view = "draft" if draft else "target"
    part = "state" if thread is None else f"thread{thread}"
    return f"{matrix.layer}.{matrix.number}.{view}.{part}"


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
