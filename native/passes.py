"""Passes of the native engine over rows of its sequences, and their slots.

The result of a row does not depend on the other rows of its pass (docs/software/lossless.md).
"""

from __future__ import annotations

import ctypes
import os
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.drafting import (
    ADAPTIVE,
    DraftCache,
    KeyValueCounters,
    NgramTable,
    Outcome,
    Settings,
    check_room,
)
from cassandra_spec.golden import CassandraError
from cassandra_spec.native.arrays import int32, pointer
from cassandra_spec.native.build import NativeError
from cassandra_spec.native.engine_binding import (
    RoundRequest,
    RoundResult,
    RoundTimes,
    Row,
    pass_rows,
    table_orders,
)
from cassandra_spec.native.key_values import SealedFormat
from cassandra_spec.native.library import isa
from cassandra_spec.native.limits import CHUNK, MAX_GAMMA, NOT_FINITE, PROMPT_ROWS
from cassandra_spec.native.models.config import ModelConfig
from cassandra_spec.native.models.loaded import LoadedModel, Tensor
from cassandra_spec.native.rounds.planning import Planning

WHOLE_CACHE = DraftCache(window=None)
"""Draft passes attend to all positions."""


class Passes(LoadedModel):
    """A model with the KV caches of sequences, and passes over them.

    Slot 0 serves :meth:`forward`. A slot allocates memory as positions are written, and keeps it.

    With ``key_values``, chunks of committed positions are sealed: the target reads the same values
    from fewer bits, a draft reads some of these bits (:mod:`.key_values`).

    :class:`~cassandra_spec.native.models.loaded.LoadedModel` documents the other parameters.
    """

    def __init__(
        self,
        config: ModelConfig,
        tensors: Callable[[str], Tensor | None],
        *,
        key_values: SealedFormat | None = None,
        **options: Any,
    ) -> None:
        self.planning = Planning(self._machine)
        if key_values is not None:
            key_values.check_engine(config.head_size)  # checked before weights are read
        super().__init__(config, tensors, **options)
        self.use_key_values(key_values)
        self._free_slots = list(range(self.slots, 0, -1))  # the next one last
        self.table: NgramTable | None = None  # n-gram table of the low drafters
        self._window_layers = Counter(config.windows)  # layers by the size of their window

    # --- passes ----------------------------------------------------------------------------------

    def forward(
        self,
        tokens: Sequence[int],
        position: int = 0,
        *,
        draft: bool = False,
        draft_cache: DraftCache = WHOLE_CACHE,
        rows: int = PROMPT_ROWS,
        last: int | None = None,
    ) -> NDArray[np.float32]:
        """Return the logits, float32 [``last``, vocabulary], of the last tokens (default: all).

        The first token is at ``position``; keys and values of all earlier positions must exist. The
        pass runs over ``rows`` tokens at a time, which affects only speed. A draft sees the part of
        the cache visible in a round that begins at ``position``.
        """
        ids = self._ids(tokens, position, draft)
        if not 1 <= rows <= PROMPT_ROWS:
            raise CassandraError(f"rows must be from 1 to {PROMPT_ROWS}, not {rows}")
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
            *((draft_cache.sinks, draft_cache.start(position)) if draft else (0, 0)),
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
        """Run one pass over rows of any slots; return tokens and logits.

        The tokens are the top tokens after the ``last`` rows (default: all). The logits, float32
        [``drawn``, vocabulary], are those of the last rows. Rows of a slot form a tree and take one
        position each in its cache; keys and values of all positions before its first row must
        exist. Raises :class:`CassandraError` like
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
        """Claim a free slot for a sequence. Raises :class:`CassandraError` if all are in use."""
        if not self._free_slots:
            raise CassandraError(f"a slot must be free, not all {self.slots} be claimed")
        return self._free_slots.pop()

    def release_slot(self, slot: int) -> None:
        """Return a claimed slot and drop its sequence."""
        int32("slot", slot, 1, self.slots)
        if slot in self._free_slots:
            raise CassandraError(f"slot must be one that is claimed, not {slot}")
        self._free_slots.append(slot)

    def copy_positions(self, source: int, destination: int, count: int) -> None:
        """Copy the keys and values of the first ``count`` positions to another slot."""
        int32("source", source, 0, self.slots)
        int32("destination", destination, 0, self.slots)
        int32("count", count, 0, self.context)
        if source != destination:
            handle = self._open()
            self._library.cassandra_engine_copy_positions(handle, source, destination, count)

    @property
    def free_slots(self) -> int:
        """Number of slots that can be claimed."""
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

    def _require_pass(self, status: int) -> int:
        """Return the status of a pass, which may be a token; raise if the pass failed."""
        if status == NOT_FINITE:
            raise CassandraError("logits must be finite, not NaN or infinite: check the weights")
        if status < -1:
            raise NativeError(f"the native engine cannot go on: {self._error()}")
        return status

    # --- rounds ----------------------------------------------------------------------------------

    def begin(self, slot: int) -> None:
        """Start a sequence in a slot: reset its low drafters."""
        self._library.cassandra_engine_begin(self._open(), int32("slot", slot, 0, self.slots))

    def run_round(
        self,
        requests: ctypes.Array[RoundRequest],
        results: ctypes.Array[RoundResult],
        stage: int,
    ) -> RoundTimes:
        """Run a stage of a round of sequences; a verification reads its nodes from ``results``.

        Raises :class:`CassandraError` if logits are not finite.
        """
        times, handle = RoundTimes(), self._open()
        status = self._library.cassandra_engine_round(
            handle, requests, len(requests), stage, results, ctypes.byref(times)
        )
        self._require_pass(status)
        return times

    def last_logits(self, first: int, rows: int) -> NDArray[np.float32]:
        """View rows of the last pass's logits [rows, vocabulary], valid until the next pass."""
        address = self._library.cassandra_engine_logits(self._open())
        return np.ctypeslib.as_array(address, (first + rows, self.config.vocabulary))[first:]

    def keep(self, slot: int, position: int, path: Sequence[int]) -> None:
        """Keep the keys and values of a verification's nodes, those on ``path``."""
        rows = np.array(path, np.int32) + np.int32(1)
        kept = pointer("rows", rows, np.int32, len(path))
        self._library.cassandra_engine_keep(self._open(), slot, position, kept, len(path))

    # --- limits and figures ----------------------------------------------------------------------

    def reads(
        self, outcome: Outcome, position: int, tokens: int, cache: DraftCache
    ) -> KeyValueCounters:
        """Return the KV cache bytes that the passes of a round read."""
        passes = outcome.proposal.passes
        sealed = position // CHUNK * CHUNK if self._sealed else 0
        whole = [[(0, position + place + 1)] for place in range(tokens)]
        stops = (position + each.start + each.rows for each in passes)
        return KeyValueCounters(
            draft=sum(
                self._read_bytes(cache.runs(position, 0, stop), sealed, draft=True)
                for stop in stops
            ),
            target=self._read_bytes([(0, position + outcome.drafted + 1)], sealed),
            plain=sum(self._read_bytes(runs, sealed) for runs in whole),
            bf16=sum(map(self._read_bytes, whole)),
        )

    def _read_bytes(
        self, runs: Sequence[tuple[int, int]], sealed: int = 0, *, draft: bool = False
    ) -> int:
        """Return the KV cache bytes of runs of positions; the last run is the token's own.

        Positions before ``sealed`` are sealed.
        """
        config, stop = self.config, runs[-1][1]
        firsts = [
            (max(0, stop - window) if window else 0, layers)
            for window, layers in self._window_layers.items()
        ]

        def seen(low: int, high: int) -> int:
            """Count positions in [``low``, ``high``) that layers attend to, summed over layers."""
            return sum(
                layers * max(0, min(end, high) - max(begin, first, low))
                for first, layers in firsts
                for begin, end in runs
            )

        bits = self._sealed.read_bits(draft=draft) if self._sealed else 16
        values = 2 * config.kv_heads * config.head_size
        return round(values * (bits * seen(0, sealed) + 16 * seen(sealed, stop)) / 8)

    def require_rounds(self, settings: Settings) -> None:
        """Raise :class:`CassandraError` if this engine does not support the settings in rounds."""
        if settings.rejects:
            raise CassandraError("acceptance must be noise in the engine's rounds, not rejection")
        self.require_drafts(settings)

    def require_drafts(self, settings: Settings) -> None:
        """Raise :class:`CassandraError` if this engine does not support the draft settings."""
        if settings.gamma != ADAPTIVE and settings.gamma > MAX_GAMMA:
            raise CassandraError(
                f"gamma must be from 0 to {MAX_GAMMA}, or 'adaptive', not {settings.gamma!r}"
                " (the native engine; --backend torch takes more)"
            )
        if settings.uses_draft_view and not self.has_draft:
            raise CassandraError("draft must be lookup or none: this engine has no draft model")

    def require_room(self, prompt: Sequence[int], settings: Settings) -> None:
        """Raise :class:`CassandraError` if prompt and reply do not fit this engine."""
        needed = len(prompt) + settings.max_tokens
        check_room(needed, context=self.context, longest=self.config.longest)
        self._ids(prompt, 0, False)

    def use_table(self, table: NgramTable | None) -> None:
        """Set the low drafter's n-gram table; None removes it."""
        orders = table_orders(table)
        done = self._library.cassandra_engine_set_table(self._open(), orders, len(orders))
        self._require_made(bool(done))
        self.table = table  # keeps its arrays alive

    def use_key_values(self, format: SealedFormat | None) -> None:
        """Set the format of chunks sealed later, or None to stop; sealed ones stay unchanged."""
        config, structure = self.config, None
        if format is not None:
            format.check_engine(config.head_size)
            structure = format.structure(config.kv_heads, config.head_size)
        done = self._library.cassandra_engine_set_sealed_format(self._open(), structure)
        self._require_made(bool(done))
        self._sealed = format

    def take_product_seconds(self) -> float:
        """Return the seconds that the first thread spent in matrix products since the last call.

        Counting starts with the first call. The rest of a pass's time is spent in barriers, norms,
        attention and the preparation of inputs.
        """
        return float(self._library.cassandra_engine_take_product_seconds(self._open()))

    def _machine(self) -> list[object]:
        """Return what the times of passes depend on; nothing if they are not worth keeping."""
        if not self.digest or self.streamed():
            return []
        library = Path(self._library._name).parent.name
        return [library, isa(), self.threads, self.digest, self.forms["target"], self._sealed]

    def close(self) -> None:
        """Save hints, stop the threads and free the memory; the engine is unusable afterwards."""
        if self._handle is not None and os.getpid() == self._process:
            self.planning.save_hints()
        super().close()
