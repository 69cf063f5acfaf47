"""The native engine: lossless speculative decoding in C++.

Draft and target share one KV cache. A round drafts up to gamma tokens one after another. The target
then runs over all of them in one pass, which overwrites the draft's keys and values. The round
emits the drafted tokens up to the first one that differs from the target's choice, and then the
target's choice (section II.B of the paper). The result of a row does not depend on the other rows
of its pass, so the reply equals plain decoding token for token (docs/software/lossless.md).
"""

from __future__ import annotations

import ctypes
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.drafting import (
    ADAPTIVE,
    GREEDY,
    AdaptivePolicy,
    Chooser,
    Counters,
    DraftCache,
    Ends,
    KeyValueCounters,
    Levels,
    MeasuredSeconds,
    NgramTable,
    Outcome,
    Plan,
    Policy,
    Proposal,
    Report,
    Score,
    Settings,
    check_room,
    cut_at_end,
    make_policy,
    make_report,
    native_figures,
    never,
)
from cassandra_spec.drafting.proposal import ROOT
from cassandra_spec.golden import CassandraError
from cassandra_spec.native.arrays import int32, pointer
from cassandra_spec.native.build import NativeError
from cassandra_spec.native.engine_binding import (
    DRAFT,
    MAX_GAMMA,
    NOT_FINITE,
    PROMPT_ROWS,
    VERIFY,
    RoundRequest,
    RoundResult,
    Row,
    outcome_of,
    pass_rows,
    round_request,
    table_orders,
    verification_input,
)
from cassandra_spec.native.hints import hint_path, read_hint, write_hint
from cassandra_spec.native.key_values import CHUNK, ChunkSealer
from cassandra_spec.native.library import isa
from cassandra_spec.native.models.config import ModelConfig
from cassandra_spec.native.models.loaded import LoadedModel, Tensor

ADAPTIVE_NODES = 7
"""Maximum nodes planned by an adaptive gamma, unless verifications are filled with more."""


WHOLE_CACHE = DraftCache(window=None)
"""Draft passes attend to all positions."""


class Engine(LoadedModel):
    """A model with the KV caches of sequences.

    Slot 0 serves :meth:`forward` and :meth:`rounds`, which run one sequence at a time. Further
    ``slots`` serve batched sequences (:mod:`cassandra_spec.native.batching`); a slot allocates
    memory as positions are written, and keeps it. :meth:`run_round` works in any slot.

    With ``key_values``, chunks of committed positions are sealed: the target reads the same values
    from fewer bits, a draft reads some of these bits (:mod:`.key_values`).

    :class:`~cassandra_spec.native.models.loaded.LoadedModel` documents the other parameters.
    """

    def __init__(
        self,
        config: ModelConfig,
        tensors: Callable[[str], Tensor | None],
        *,
        key_values: ChunkSealer | None = None,
        **options: Any,
    ) -> None:
        self._costs: list[tuple[Path | None, MeasuredSeconds]] = []  # with the paths of their hints
        if key_values is not None:
            key_values.form.check_size(config.head_size)  # checked before weights are read
        super().__init__(config, tensors, **options)
        self.use_key_values(key_values)
        self._policies: dict[tuple[str, float, Levels, DraftCache], Policy] = {}
        self._free_slots = list(range(self.slots, 0, -1))  # the next one last
        self.table: NgramTable | None = None  # n-gram table of the low drafter
        self._history = np.zeros(self.context + 1, np.int32)
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
        self._seal_chunks(0, position)
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
        for row in rows:
            if row.parent == ROOT:
                self._seal_chunks(row.slot, row.position)
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

    def read_chunk(self, slot: int, chunk: int, *, draft: bool = False) -> NDArray[np.uint16]:
        """Return the keys and values of a chunk of positions, as target or draft read them.

        BF16 patterns [keys and values, layers, CHUNK, heads, head size]; zeros for positions that
        were never written.
        """
        int32("slot", slot, 0, self.slots)
        int32("chunk", chunk, 0, (self.context - 1) // CHUNK)
        patterns = np.empty(self._chunk_shape, np.uint16)
        place = pointer("patterns", patterns, np.uint16, *patterns.shape, writable=True)
        read = self._library.cassandra_engine_read_chunk
        self._require_made(bool(read(self._open(), slot, chunk, int(draft), place)))
        return patterns

    @property
    def _chunk_shape(self) -> tuple[int, ...]:
        config = self.config
        return 2, config.layers, CHUNK, config.kv_heads, config.head_size

    def _seal_chunks(self, slot: int, position: int) -> None:
        """Seal the complete chunks before the position at which a pass begins."""
        if self._sealer is None:
            return
        handle, shape = self._open(), self._chunk_shape
        while (chunk := self._library.cassandra_engine_unsealed(handle, slot, position)) >= 0:
            sealed = [self._sealer.seal(each) for each in self.read_chunk(slot, chunk)]
            read = [np.stack(each) for each in zip(*sealed, strict=True)]
            places = (pointer("values", each, np.uint16, *shape) for each in read)
            done = self._library.cassandra_engine_seal(handle, slot, chunk, *places)
            self._require_made(bool(done))

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

    # --- replies ---------------------------------------------------------------------------------

    def rounds(
        self,
        prompt: Sequence[int],
        settings: Settings,
        counters: Counters,
        *,
        ends: Ends = never,
        scores: list[Score] | None = None,
    ) -> Iterator[list[int]]:
        """Yield the emitted tokens of a reply: first the prompt's token, then each round's tokens.

        ``ends`` is called once per token, in order, and returns True to end the reply there; stop
        tokens end it anyway, stop strings are ignored. ``counters`` is updated. ``scores`` receives
        the log-probabilities of the reply's tokens if the settings ask for them; use a
        :class:`~cassandra_spec.native.batching.batch.Batch` for those of prompts. Ctrl-C takes
        effect between two passes, while no thread runs.
        """
        self.require_room(prompt, settings)
        self.require_rounds(settings)
        if settings.prompt_logprobs:
            raise CassandraError("prompt_logprobs must be false in the engine's own rounds")
        chooser = Chooser(prompt, settings, scores=scores) if settings.needs_logits else None
        token = self._read_prompt(prompt, counters, chooser)
        emitted, over = cut_at_end([token], settings.stop_tokens, ends)
        if chooser:
            chooser.settle(1)
        yield emitted
        position, left = len(prompt), settings.max_tokens - 1
        while left and not over:
            emitted, over = self._counted_round(
                0, position, left, settings, counters, ends, chooser
            )
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
        ends: Ends = never,
        chooser: Chooser | None = None,
    ) -> list[int]:
        """Run one round after the tokens of a slot; return the emitted tokens, up to the reply's
        end.

        Keys and values of all tokens but the last must exist. ``left`` is the number of tokens
        until the reply's limit; ``settings`` must pass :meth:`require_rounds`. ``chooser`` is the
        reply's if its tokens need logits. Set ``begins`` if the round before belonged to another
        sequence, which resets the low drafters.
        """
        if begins:
            self._library.cassandra_engine_begin(self._open())
        self._history[: len(tokens)] = tokens
        position = len(tokens) - 1
        return self._counted_round(slot, position, left, settings, counters, ends, chooser)[0]

    def _counted_round(
        self,
        slot: int,
        position: int,
        left: int,
        settings: Settings,
        counters: Counters,
        ends: Ends = never,
        chooser: Chooser | None = None,
    ) -> tuple[list[int], bool]:
        """Run and count a round after the history up to ``position``, cut at the reply's end."""
        policy = self._policy(settings)
        outcome, emitted = self._round(slot, position, policy, left - 1, settings, chooser)
        emitted, over = cut_at_end(emitted, settings.stop_tokens, ends)
        if chooser:
            chooser.settle(len(emitted))
        policy.observe(outcome)
        self.count_round(counters, outcome, position, len(emitted), settings.draft_cache)
        return emitted, over

    def count_round(
        self,
        counters: Counters,
        outcome: Outcome,
        position: int,
        tokens: int,
        cache: DraftCache = WHOLE_CACHE,
    ) -> None:
        """Count a round that began at ``position`` and emitted ``tokens``, with its KV traffic."""
        kv = self._reads(outcome, position, tokens, cache)
        counters.add_round(outcome, position=position, tokens=tokens, kv=kv)

    def _reads(
        self, outcome: Outcome, position: int, tokens: int, cache: DraftCache
    ) -> KeyValueCounters:
        """Return the KV cache bytes that the passes of a round read."""
        passes = outcome.proposal.passes
        sealed = position // CHUNK * CHUNK if self._sealer else 0
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

        bits = self._sealer.form.read_bits(draft=draft) if self._sealer else 16
        values = 2 * config.kv_heads * config.head_size
        return round(values * (bits * seen(0, sealed) + 16 * seen(sealed, stop)) / 8)

    def require_rounds(self, settings: Settings) -> None:
        """Raise :class:`CassandraError` if this engine does not support the settings in rounds."""
        if settings.sampling != GREEDY:
            raise CassandraError(
                "sampling must be greedy (temperature 0) in the engine's own rounds, "
                f"not {settings.sampling}"
            )
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

    def use_key_values(self, sealer: ChunkSealer | None) -> None:
        """Set the sealing of later chunks, or None to stop; sealed chunks stay unchanged."""
        if sealer is not None:
            sealer.form.check_size(self.config.head_size)
            form = sealer.form.structure()
            self._library.cassandra_engine_set_sealed_form(self._open(), form)
        self._sealer = sealer

    def _read_prompt(
        self, prompt: Sequence[int], counters: Counters, chooser: Chooser | None
    ) -> int:
        """Run the target over a prompt; return the token that follows it."""
        begun = time.perf_counter()
        self._library.cassandra_engine_begin(self._open())
        ids = np.asarray(prompt, np.int32)
        self._history[: len(ids)] = ids
        token = -1
        for start in range(0, len(ids), PROMPT_ROWS):
            part = ids[start : start + PROMPT_ROWS]
            last = start + len(part) == len(ids)
            tokens = pointer("tokens", part, np.int32, len(part))
            self._seal_chunks(0, start)
            token = self._require_pass(
                self._library.cassandra_engine_forward(
                    self._open(), tokens, len(part), start, 0, 0, 0, PROMPT_ROWS, int(last), None
                )
            )
        if chooser:
            token = chooser.first(self._last_logits(1)[0])
        self._history[len(ids)] = token
        counters.add_reply(len(ids))
        counters.prompt_seconds += time.perf_counter() - begun
        return token

    def _last_logits(self, rows: int) -> NDArray[np.float32]:
        """View the last pass's logits [rows, vocabulary], valid until the next pass."""
        found = self._library.cassandra_engine_logits(self._open())
        return np.ctypeslib.as_array(found, (rows, self.config.vocabulary))

    def _round(
        self,
        slot: int,
        position: int,
        policy: Policy,
        budget: int,
        settings: Settings,
        chooser: Chooser | None,
    ) -> tuple[Outcome, list[int]]:
        """Run a round of at most ``budget`` nodes; return its outcome and emitted tokens."""
        plan = policy.plan(position) if budget else Plan()
        stops = np.array(sorted(settings.stop_tokens), np.int32)
        request = round_request(
            plan, settings, budget, self.config.vocabulary, stops, slot, position
        )
        self._seal_chunks(slot, position)
        if chooser:
            outcome, token = self._choose(position, request, chooser)
        else:
            result = self._run_stage(position, request, RoundResult())
            outcome, token = outcome_of(result), result.next
        return outcome, [*(outcome.proposal.nodes[at].token for at in outcome.path), token]

    def _choose(
        self, position: int, request: RoundRequest, chooser: Chooser
    ) -> tuple[Outcome, int]:
        """Run a round whose tokens are chosen from logits; return its outcome and last token."""

        def draft() -> Proposal:
            request.stage = DRAFT
            return outcome_of(self._run_stage(position, request, RoundResult())).proposal

        proposal = chooser.propose(draft, request.budget)
        request.stage = VERIFY
        result = self._run_stage(position, request, verification_input(proposal.nodes))
        path, token = chooser.choose(proposal, self._last_logits(1 + len(proposal.nodes)))
        rows = np.array(path, np.int32) + np.int32(1)
        kept = pointer("rows", rows, np.int32, len(path))
        self._library.cassandra_engine_keep(self._open(), request.slot, position, kept, len(path))
        seconds = result.verify_seconds
        return Outcome(proposal=proposal, path=path, verify_seconds=seconds), token

    def _run_stage(self, position: int, request: RoundRequest, result: RoundResult) -> RoundResult:
        """Run the stage in ``request``; a verification reads its nodes from ``result``."""
        status = self._library.cassandra_engine_round(
            self._open(),
            pointer("history", self._history, np.int32, self.context + 1),
            position,
            ctypes.byref(request),
            ctypes.byref(result),
        )
        self._require_pass(status)
        return result

    def _policy(self, settings: Settings) -> Policy:
        """Return the policy; an adaptive one is shared by replies with the same draft settings."""
        if settings.gamma != ADAPTIVE:
            return make_policy(settings, MeasuredSeconds(), max_nodes=MAX_GAMMA)
        key = settings.draft, settings.min_margin, settings.levels, settings.draft_cache
        if key not in self._policies:
            nodes = MAX_GAMMA if self.streamed() else ADAPTIVE_NODES  # drafts are cheap then
            max_nodes = min(max(nodes, settings.levels.rows), MAX_GAMMA)
            costs = MeasuredSeconds(settings.draft_cache)
            hint = self._hint_path(settings)
            found = read_hint(hint) if hint else None
            if found:
                costs.begin(found)
            self._costs.append((hint, costs))
            self._policies[key] = make_policy(settings, costs, max_nodes=max_nodes)
        return self._policies[key]

    def _hint_path(self, settings: Settings) -> Path | None:
        """Return the file that keeps the times of an adaptive policy between processes."""
        if not self.digest or self.streamed():
            return None
        library = Path(self._library._name).parent.name
        sealed = self._sealer and self._sealer.form
        machine = library, isa(), self.threads, self.digest, self.forms["target"], sealed
        return hint_path(*machine, settings.draft_cache)

    def save_hints(self) -> None:
        """Save the times of adaptive rounds for the next process (:mod:`.hints`)."""
        for path, costs in self._costs:
            state = costs.state()
            if path and state["verify"]["times"]:
                write_hint(path, state)

    def close(self) -> None:
        """Save hints, stop the threads and free the memory; the engine is unusable afterwards."""
        if self._handle is not None and os.getpid() == self._process:
            self.save_hints()
        super().close()

    def take_product_seconds(self) -> float:
        """Return the seconds that the first thread spent in matrix products since the last call.

        Counting starts with the first call. The rest of a pass's time is spent in barriers, norms,
        attention and the preparation of inputs.
        """
        return float(self._library.cassandra_engine_take_product_seconds(self._open()))

    def make_report(self, counters: Counters, settings: Settings) -> Report:
        """Return the metrics of ``counters`` with these settings, with times, forms and memory."""
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
