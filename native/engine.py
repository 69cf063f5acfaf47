"""A Llama-type model that decodes in native code, speculatively and losslessly.

Draft and target read the same keys and values. A round drafts up to gamma tokens one after another.
The target runs over all of them in one pass, which overwrites what the draft has written. The
tokens up to the first that it would have chosen otherwise are emitted, and then its own choice
(section II.B of the paper). A row of a pass is computed the same whatever the other rows, so the
reply is token for token that of plain decoding (docs/native.md).
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.drafting import (
    ADAPTIVE,
    GREEDY,
    AdaptivePolicy,
    Costs,
    Counters,
    Levels,
    MeasuredSeconds,
    NgramTable,
    Outcome,
    Plan,
    Policy,
    Report,
    Settings,
    cut_at_end,
    make_policy,
    make_report,
    native_figures,
)
from cassandra_spec.golden import CassandraError, Packed, bf16
from cassandra_spec.golden.checksums import Checksums
from cassandra_spec.golden.file import PackedFile
from cassandra_spec.golden.model_config import read_config
from cassandra_spec.native.arrays import int32, pointer
from cassandra_spec.native.build import NativeError
from cassandra_spec.native.codec import NativeCodec
from cassandra_spec.native.engine_binding import (
    MAX_ROWS,
    MOST,
    NOT_FINITE,
    ModelShape,
    RoundResult,
    Row,
    engine_library,
    outcome_of,
    pass_rows,
    round_request,
    table_orders,
)
from cassandra_spec.native.forms import FORMS, TARGETS, Target, draft_form, target_form
from cassandra_spec.native.library import isa
from cassandra_spec.native.llama import (
    EMBEDDING,
    FINAL_NORM,
    HEAD,
    LINEAR,
    VECTORS,
    LlamaConfig,
    check_tensors,
    llama_costs,
    read_llama_config,
)

Tensor = NDArray[np.uint16] | Packed
Patterns = NDArray[np.uint16]

CONTEXT = 32768
"""Most positions of an engine that is not told how many: no more, even if the model has more."""

ADAPTIVE_NODES = 7
"""Nodes that an adaptive gamma plans, at most, unless verifications are filled with more."""


class Engine:
    """A model with the keys and values of sequences.

    Slot 0 is that of :meth:`forward` and :meth:`rounds`, which run one sequence at a time. More
    ``slots`` are for sequences that are decoded side by side (:mod:`cassandra_spec.native.batch`);
    each takes memory as positions are written, and keeps it. :meth:`run_round` runs in any.

    ``tensors`` gives the model's tensors by Hugging Face's names: BF16 patterns (uint16, of any
    shape), or packed. ``target`` says how the target's values are kept; ``draft`` makes the draft
    ready; without it only the target is, and drafts can only be looked up. ``threads`` are all
    processors that may be used, by default, and pinned to one each if ``pin`` says so.
    ``context`` is the most positions of a sequence.

    ``forms`` counts the matrices of target and draft by the form that they got (linear.h).
    With ``verify``, checksums of the weights in memory are kept for :meth:`verify`.

    An engine belongs to the process that made it, and to one thread at a time. Close it, or use it
    as a context manager, to give its memory back early.

    Raises :class:`CassandraError` if the engine cannot run such a model, or a tensor is missing or
    of another size, and :class:`NativeError` if there is no compiler or not enough memory.
    """

    def __init__(
        self,
        config: LlamaConfig,
        tensors: Callable[[str], Tensor | None],
        *,
        target: Target = "bf16",
        draft: bool = True,
        threads: int | None = None,
        context: int | None = None,
        slots: int = 1,
        pin: bool = True,
        verify: bool = False,
    ) -> None:
        self.config = config
        self.threads = len(os.sched_getaffinity(0)) if threads is None else threads
        self.context = min(config.positions, CONTEXT) if context is None else context
        self.has_draft = draft
        self._policies: dict[tuple[str, float, Levels], Policy] = {}
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
        self._free_slots = list(range(self.slots, 0, -1))  # the next one last
        self.costs: Costs | None = None  # of a packed file
        self.table: NgramTable | None = None  # of the low drafter
        self._handle: int | None = None
        self._library = engine_library()
        self._process = os.getpid()
        self._codec = NativeCodec()
        self._embedding = self._read_embedding(tensors)
        self._matrices: list[tuple[str, int, int, bool]] = []  # name, layer, slot, draft
        self._handle = self._make(pin)
        self._fill(tensors)
        self._checksums = Checksums(self.weights()) if verify else None
        self._history = np.zeros(self.context + 1, np.int32)

    @classmethod
    def from_packed(cls, directory: str | Path, **options: Any) -> Self:
        """Load a packed model; ``options`` are those of the class."""
        folder = Path(directory)
        config = read_llama_config(read_config(folder))
        packed = PackedFile(folder / "model.safetensors")
        check_tensors(folder, config.tensor_shapes(), packed)

        def read(name: str) -> Tensor | None:
            if name in packed.tensors:
                return packed.read_packed(name)
            if name not in packed.others:
                return None
            return bf16.from_bytes(packed.others[name].dtype, packed.read_raw(name))

        engine = cls(config, read, **options)
        engine.costs = llama_costs(config, packed)
        return engine

    @classmethod
    def from_tensors(
        cls, config: Mapping[str, Any], tensors: Mapping[str, Tensor], **options: Any
    ) -> Self:
        """Make an engine from tensors in memory and the entries of a ``config.json``."""
        return cls(read_llama_config(config), tensors.get, **options)

    # --- loading ---------------------------------------------------------------------------------

    def _read_embedding(self, tensors: Callable[[str], Tensor | None]) -> Patterns:
        found = self._target(_required(tensors, EMBEDDING))
        size = self.config.vocabulary * self.config.hidden
        return np.ascontiguousarray(_sized(EMBEDDING, found, size))

    def _make(self, pin: bool) -> int | None:
        config = self.config
        sizes = {field[0]: getattr(config, field[0], None) for field in ModelShape._fields_}
        shape = ModelShape(**sizes | {"context": self.context, "slots": 1 + self.slots})
        handle: int | None = self._library.cassandra_engine_new(
            shape,
            pointer("frequencies", config.frequencies(), np.float32, config.head_size // 2),
            pointer("embedding", self._embedding, np.uint16, config.vocabulary * config.hidden),
            self.threads,
            int(pin),
        )
        self._require_made(handle is not None)
        return handle

    def _fill(self, tensors: Callable[[str], Tensor | None]) -> None:
        config = self.config
        for layer in range(config.layers):
            for slot, name in enumerate(LINEAR):
                full = f"model.layers.{layer}.{name}"
                self._set_matrix(layer, slot, full, _required(tensors, full), config.shapes[name])
            for slot, name in enumerate(VECTORS):
                full = f"model.layers.{layer}.{name}"
                found = _required(tensors, full) if slot < 2 else tensors(full)
                if found is not None:
                    self._set_vector(layer, slot, full, found, config.vector_size(name))
        self._set_vector(
            config.layers, 0, FINAL_NORM, _required(tensors, FINAL_NORM), config.hidden
        )
        head = EMBEDDING if config.tied or tensors(HEAD) is None else HEAD
        shape = (config.vocabulary, config.hidden)
        self._set_matrix(config.layers, 0, head, _required(tensors, head), shape)

    def _set_matrix(
        self, layer: int, slot: int, name: str, tensor: Tensor, shape: tuple[int, int]
    ) -> None:
        format = tensor.format if isinstance(tensor, Packed) else None
        values = _sized(name, self._target(tensor), shape[0] * shape[1])
        self._put(layer, slot, False, values, shape, target_form(format, self._target_form))
        if self.has_draft:
            draft = self._codec.decode_draft(tensor) if isinstance(tensor, Packed) else values
            self._put(layer, slot, True, draft, shape, draft_form(format, shape[1]))
        views = (False, True) if self.has_draft else (False,)
        self._matrices += [(name, layer, slot, view) for view in views]

    def _put(
        self,
        layer: int,
        slot: int,
        draft: bool,
        values: Patterns,
        shape: tuple[int, int],
        form: tuple[str, int],
    ) -> None:
        values = np.ascontiguousarray(values)
        number = self._library.cassandra_engine_set_matrix(
            self._handle,
            layer,
            slot,
            int(draft),
            pointer("values", values, np.uint16, shape[0] * shape[1]),
            *shape,
            FORMS.index(form[0]),
            form[1],
        )
        self._require_made(number >= 0)
        forms = self.forms["draft" if draft else "target"]
        forms[FORMS[number]] = forms.get(FORMS[number], 0) + 1

    def _set_vector(self, layer: int, slot: int, name: str, tensor: Tensor, size: int) -> None:
        patterns = _sized(name, self._target(tensor), size)
        values = (patterns.astype(np.uint32) << 16).view(np.float32)
        self._require_made(
            self._library.cassandra_engine_set_vector(
                self._handle, layer, slot, pointer(name, values, np.float32, size), size
            )
        )

    def _target(self, tensor: Tensor) -> Patterns:
        found = self._codec.decode_target(tensor) if isinstance(tensor, Packed) else tensor
        return np.asarray(found).reshape(-1)

    def _require_made(self, done: bool) -> None:
        if not done:
            raise NativeError(f"the native engine cannot be made: {self._error()}")

    def _error(self) -> str:
        text: bytes = self._library.cassandra_error()
        return text.decode()

    def _require_pass(self, status: int) -> int:
        """Raise if a pass did not end well; else its status, which may be a token."""
        if status == NOT_FINITE:
            raise CassandraError("logits must be finite, not NaN or infinite: check the weights")
        if status < -1:
            raise NativeError(f"the native engine cannot go on: {self._error()}")
        return status

    # --- passes ----------------------------------------------------------------------------------

    def forward(
        self,
        tokens: Sequence[int],
        position: int = 0,
        *,
        draft: bool = False,
        rows: int = MAX_ROWS,
        last: int | None = None,
    ) -> NDArray[np.float32]:
        """Logits, float32 [``last``, vocabulary], of the last of consecutive tokens (all).

        The first token is at ``position``; keys and values of all before it must be there. The
        pass runs over ``rows`` tokens at a time, which changes nothing but the time.
        """
        ids = self._ids(tokens, position, draft)
        if not 1 <= rows <= MAX_ROWS:
            raise CassandraError(f"rows must be from 1 to {MAX_ROWS}, not {rows}")
        last = len(ids) if last is None else last
        if not 0 <= last <= len(ids):
            raise CassandraError(f"last must be from 0 to {len(ids)}, not {last}")
        logits = np.empty((last, self.config.vocabulary), np.float32)
        status = self._library.cassandra_engine_forward(
            self._open(),
            pointer("tokens", ids, np.int32, len(ids)),
            len(ids),
            position,
            int(draft),
            rows,
            last,
            pointer("logits", logits, np.float32, *logits.shape, writable=True) if last else None,
        )
        self._require_pass(status)
        return logits

    def run_rows(
        self,
        rows: Sequence[Row],
        *,
        draft: bool = False,
        last: int | None = None,
        drawn: int = 0,
    ) -> tuple[list[int], NDArray[np.float32]]:
        """One pass over rows of any slots: the best tokens after the ``last`` rows (all).

        And the logits, float32 [``drawn``, vocabulary], of the last of them. Rows of a slot are a
        tree, whose keys and values take as many positions as it has rows; those of all positions
        before its first row must be there. Raises :class:`CassandraError` as
        :func:`~cassandra_spec.native.engine_binding.pass_rows`, or if logits are not finite.
        """
        vocabulary = self.config.vocabulary
        checked = pass_rows(rows, slots=1 + self.slots, context=self.context, vocabulary=vocabulary)
        self._require_draft(draft)
        last = int32("last", len(rows) if last is None else last, 0, len(rows))
        best = np.empty(last, np.int32)
        logits = np.empty((int32("drawn", drawn, 0, last), vocabulary), np.float32)
        status = self._library.cassandra_engine_run_rows(
            self._open(),
            pointer("rows", checked, np.int32, len(rows), len(Row._fields)),
            len(rows),
            int(draft),
            last,
            pointer("best", best, np.int32, last, writable=True),
            drawn,
            pointer("logits", logits, np.float32, drawn, vocabulary, writable=True),
        )
        self._require_pass(status)
        return best.tolist(), logits

    def claim_slot(self) -> int:
        """A free slot for a sequence. Raises :class:`CassandraError` if there is none."""
        if not self._free_slots:
            raise CassandraError(f"a slot must be free, not all {self.slots} be claimed")
        return self._free_slots.pop()

    def release_slot(self, slot: int) -> None:
        """Give a claimed slot back; its sequence is lost."""
        int32("slot", slot, 1, self.slots)
        if slot in self._free_slots:
            raise CassandraError(f"slot must be one that is claimed, not {slot}")
        self._free_slots.append(slot)

    def copy_positions(self, source: int, destination: int, count: int) -> None:
        """Copy keys and values of the first ``count`` positions of a slot to another slot."""
        int32("source", source, 0, self.slots)
        int32("destination", destination, 0, self.slots)
        int32("count", count, 0, self.context)
        if source != destination:
            handle = self._open()
            self._library.cassandra_engine_copy_positions(handle, source, destination, count)

    @property
    def free_slots(self) -> int:
        """Slots that can be claimed."""
        return len(self._free_slots)

    def _require_draft(self, draft: bool) -> None:
        if draft and not self.has_draft:
            raise CassandraError("draft must be true of an engine whose draft is to run")

    def _ids(self, tokens: Sequence[int], position: int, draft: bool) -> NDArray[np.int32]:
        vocabulary = self.config.vocabulary
        if not len(tokens) or not 0 <= min(tokens) <= max(tokens) < vocabulary:
            raise CassandraError(f"tokens must be at least one, all from 0 to below {vocabulary}")
        if position < 0 or position + len(tokens) > self.context:
            raise CassandraError(
                f"positions must be from 0 to below the engine's {self.context}, "
                f"not {position} to {position + len(tokens) - 1}"
            )
        self._require_draft(draft)
        return np.asarray(tokens, np.int32)

    def _open(self) -> int:
        if self._handle is None:
            raise CassandraError("the engine must not be used after it was closed")
        if os.getpid() != self._process:
            raise CassandraError("an engine must be used in the process that made it, not a fork")
        return self._handle

    # --- replies ---------------------------------------------------------------------------------

    def rounds(
        self,
        prompt: Sequence[int],
        settings: Settings,
        counters: Counters,
        *,
        ends: Callable[[int], bool] = lambda token: False,
    ) -> Iterator[list[int]]:
        """Yield the emitted tokens of a reply: one by the prompt, then each round's.

        ``ends`` is asked once about each token, in order, whether the reply ends with it for
        another reason than a stop token (stop strings are not looked for). ``counters`` go on
        counting. Ctrl-C takes effect between two passes, when the threads stand still.
        """
        self.require_room(prompt, settings)
        self.require_rounds(settings)
        emitted, over = cut_at_end(
            [self._read_prompt(prompt, counters)], settings.stop_tokens, ends
        )
        yield emitted
        position, left = len(prompt), settings.max_tokens - 1
        while left and not over:
            emitted, over = self._go_on(0, position, left, settings, counters, ends)
            self._history[position + 1 : position + 1 + len(emitted)] = emitted
            position, left = position + len(emitted), left - len(emitted)
            yield emitted

    def run_round(
        self,
        slot: int,
        tokens: Sequence[int],
        left: int,
        settings: Settings,
        counters: Counters,
        *,
        begins: bool,
    ) -> list[int]:
        """One round behind the tokens of a slot: what it emits, up to a stop token.

        Keys and values of all tokens but the last must be there; the reply has ``left`` tokens to
        come, and ``settings`` are some that :meth:`require_rounds` takes. A sequence ``begins`` if
        the round before was of another one: low drafters forget that.
        """
        if begins:
            self._library.cassandra_engine_begin(self._open())
        self._history[: len(tokens)] = tokens
        return self._go_on(slot, len(tokens) - 1, left, settings, counters)[0]

    def _go_on(
        self,
        slot: int,
        position: int,
        left: int,
        settings: Settings,
        counters: Counters,
        ends: Callable[[int], bool] = lambda token: False,
    ) -> tuple[list[int], bool]:
        """A counted round behind the history up to ``position``, cut at the end of the reply."""
        policy = self._policy(settings)
        outcome, emitted = self._round(slot, position, policy, left - 1, settings)
        emitted, over = cut_at_end(emitted, settings.stop_tokens, ends)
        policy.observe(outcome)
        counters.add_round(outcome, position=position, tokens=len(emitted))
        return emitted, over

    def require_rounds(self, settings: Settings) -> None:
        """Raise :class:`CassandraError` for settings of rounds that this engine cannot run."""
        if settings.sampling != GREEDY:
            raise CassandraError(
                "sampling must be greedy (temperature 0) in the engine's own rounds, "
                f"not {settings.sampling}"
            )
        self.require_drafts(settings)

    def require_drafts(self, settings: Settings) -> None:
        """Raise :class:`CassandraError` unless this engine can draft so."""
        if settings.gamma != ADAPTIVE and settings.gamma > MOST:
            raise CassandraError(
                f"gamma must be from 0 to {MOST}, or 'adaptive', not {settings.gamma!r}"
                " (the native engine; --backend torch takes more)"
            )
        if settings.uses_draft_view and not self.has_draft:
            raise CassandraError("draft must be lookup or none: this engine has no draft model")

    def require_room(self, prompt: Sequence[int], settings: Settings) -> None:
        """Raise :class:`CassandraError` unless a prompt, and the reply to it, can be run here."""
        self._ids(prompt, 0, False)
        needed = len(prompt) + settings.max_tokens
        if needed > self.context:
            raise CassandraError(
                f"prompt and reply must fit the engine's {self.context} positions, "
                f"not need {needed}"
            )

    def use_table(self, table: NgramTable | None) -> None:
        """Give the low drafter a table of n-grams of this model's tokens, or take it away."""
        orders = table_orders(table)
        done = self._library.cassandra_engine_set_table(self._open(), orders, len(orders))
        self._require_made(bool(done))
        self.table = table  # keeps the arrays

    def _read_prompt(self, prompt: Sequence[int], counters: Counters) -> int:
        """Run the target over a prompt; the token that follows it."""
        begun = time.perf_counter()
        self._library.cassandra_engine_begin(self._open())
        ids = np.asarray(prompt, np.int32)
        self._history[: len(ids)] = ids
        token = -1
        for start in range(0, len(ids), MAX_ROWS):
            part = ids[start : start + MAX_ROWS]
            last = start + len(part) == len(ids)
            tokens = pointer("tokens", part, np.int32, len(part))
            token = self._require_pass(
                self._library.cassandra_engine_forward(
                    self._open(), tokens, len(part), start, 0, MAX_ROWS, int(last), None
                )
            )
        self._history[len(ids)] = token
        counters.replies += 1
        counters.prompt_tokens += len(ids)
        counters.prompt_seconds += time.perf_counter() - begun
        return token

    def _round(
        self, slot: int, position: int, policy: Policy, budget: int, settings: Settings
    ) -> tuple[Outcome, list[int]]:
        """A round of at most ``budget`` nodes, and the tokens that it emits."""
        plan = policy.plan(position) if budget else Plan()
        stops = np.array(sorted(settings.stop_tokens), np.int32)
        request = round_request(plan, settings, budget, self.config.vocabulary, stops, slot)
        result = RoundResult()
        status = self._library.cassandra_engine_round(
            self._open(),
            pointer("history", self._history, np.int32, self.context + 1),
            position,
            ctypes.byref(request),
            ctypes.byref(result),
        )
        self._require_pass(status)
        outcome = outcome_of(result)
        return outcome, [*(outcome.proposal.nodes[at].token for at in outcome.path), result.next]

    def _policy(self, settings: Settings) -> Policy:
        """An adaptive one goes on over replies with the same sources of drafts."""
        if settings.gamma != ADAPTIVE:
            return make_policy(settings, MeasuredSeconds(), most=MOST)
        key = settings.draft, settings.min_margin, settings.levels
        if key not in self._policies:
            most = min(max(ADAPTIVE_NODES, settings.levels.rows), MOST)
            self._policies[key] = make_policy(settings, MeasuredSeconds(), most=most)
        return self._policies[key]

    def weights(self) -> Iterator[tuple[str, NDArray[np.uint8]]]:
        """The memory of the embedding and of the matrices, by tensor, view and thread.

        The arrays are not copies: they must not be used after the engine is closed.
        """
        yield EMBEDDING, self._embedding.view(np.uint8)
        size = ctypes.c_size_t()
        for name, layer, slot, draft in self._matrices:
            view = "draft" if draft else "target"
            for thread in range(self.threads):
                place = (self._open(), layer, slot, int(draft), thread)
                start = self._library.cassandra_engine_part(*place, ctypes.byref(size))
                if size.value:
                    found = (ctypes.c_uint8 * size.value).from_address(start)
                    yield f"{name} ({view}, thread {thread})", np.ctypeslib.as_array(found)

    def verify(self) -> None:
        """Check the weights in memory against the checksums that were kept when they were loaded.

        Norms, biases and escapes are not covered. Raises :class:`CassandraError` with the tensor.
        """
        if self._checksums is None:
            raise CassandraError("verify must be true of an engine whose weights are to be checked")
        self._checksums.check(self.weights())

    def memory(self) -> dict[str, int]:
        """Bytes of the weights, the embedding, and the keys and values of one position."""
        handle = self._open()
        return {
            "target": self._library.cassandra_engine_weight_bytes(handle, 0),
            "draft": self._library.cassandra_engine_weight_bytes(handle, 1),
            "embedding": self._embedding.nbytes,
            "position": self._library.cassandra_engine_position_bytes(handle),
        }

    def make_report(self, counters: Counters, settings: Settings) -> Report:
        """The figures of counters over replies with some settings, with times, forms and memory."""
        policy = self._policy(settings)
        native = native_figures(
            counters,
            settings,
            threads=self.threads,
            isa=isa(),
            forms=self.forms,
            memory=self.memory(),
            plans=policy.plans if isinstance(policy, AdaptivePolicy) else {},
        )
        return make_report(counters, settings, costs=self.costs, native=native)

    # --- the rest --------------------------------------------------------------------------------

    def close(self) -> None:
        """Give threads and memory back; the engine cannot be used afterwards."""
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


def _required(tensors: Callable[[str], Tensor | None], name: str) -> Tensor:
    found = tensors(name)
    if found is None:
        raise CassandraError(f"the model must have a tensor {name}, and has none of that name")
    return found


def _sized(name: str, values: Patterns, size: int) -> Patterns:
    if values.size != size:
        raise CassandraError(f"{name} must have {size} values, not {values.size}")
    return values
