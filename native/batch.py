"""Sequences that a native engine decodes side by side, plainly: one pass a step for all of them.

The rows of a pass do not depend on each other. So a sequence has the tokens that it would have
alone, whatever the others are and whenever they come and go (docs/native.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.drafting import GREEDY, Emitted, Settings, draw, probabilities
from cassandra_spec.drafting.proposal import ROOT
from cassandra_spec.golden import CassandraError
from cassandra_spec.native.engine import Engine
from cassandra_spec.native.engine_binding import MAX_ROWS, Row


class Batch:
    """Sequences in slots of an engine (:class:`cassandra_spec.drafting.Sequences`).

    Use it as a context manager, or :meth:`close` it.

    Each sequence has one row in a pass. Rows that are left take further tokens of prompts, those
    of the sequence that has waited longest first. A batch must not be used after a step of it was
    interrupted, except to close it.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._running: dict[int, _Sequence] = {}

    def claim(self, prompt: Sequence[int], settings: Settings) -> int:
        """Begin a sequence with a prompt, and return its slot, which it has until it ends.

        Of ``settings`` the sampling, the seed, stop tokens and ``max_tokens`` count. Raises
        :class:`CassandraError` if gamma is not 0, no slot is free, the prompt is empty or has other
        tokens than the model, or prompt and reply do not fit the engine's positions.
        """
        if settings.gamma != 0:
            raise CassandraError(f"gamma must be 0 for a batch, not {settings.gamma!r}")
        self._engine.require_room(prompt, settings)
        slot = self._engine.claim_slot()
        self._running[slot] = _Sequence(prompt, settings)
        return slot

    def step(self) -> list[Emitted]:
        """One pass over all sequences, and the tokens that follow those whose prompts are read.

        Raises :class:`CassandraError` if logits are not finite.
        """
        if not self._running:
            return []
        counts = self._share_rows()
        ready = [slot for slot, each in self._running.items() if counts[slot] == len(each.waiting)]
        ready.sort(key=lambda slot: self._running[slot].sampled)
        drawn = sum(self._running[slot].sampled for slot in ready)
        rows = self._rows(counts, ready)
        best, logits = self._engine.run_rows(rows, last=len(ready), drawn=drawn)
        for slot, count in counts.items():
            self._running[slot].advance(count)
        greedy = len(ready) - drawn
        tokens = best[:greedy]
        for slot, row in zip(ready[greedy:], logits, strict=True):
            tokens.append(self._running[slot].draw(row))
        return [self._emit(slot, token) for slot, token in zip(ready, tokens, strict=True)]

    def release(self, slot: int) -> None:
        """End a sequence, whose slot is free then."""
        if slot not in self._running:
            raise CassandraError(f"slot must be that of a running sequence, not {slot!r}")
        del self._running[slot]
        self._engine.release_slot(slot)

    @property
    def free(self) -> int:
        """Sequences that can begin now."""
        return self._engine.free_slots

    @property
    def running(self) -> tuple[int, ...]:
        """Slots of sequences that have not ended, the oldest first."""
        return tuple(self._running)

    def close(self) -> None:
        """End all sequences."""
        for slot in self.running:
            self.release(slot)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _share_rows(self) -> dict[int, int]:
        """Rows of each sequence in the next pass: one, and what is free for prompts."""
        free = MAX_ROWS - len(self._running)
        counts = {}
        for slot, sequence in self._running.items():
            more = min(len(sequence.waiting) - 1, free)
            counts[slot], free = 1 + more, free - more
        return counts

    def _rows(self, counts: dict[int, int], ready: Sequence[int]) -> list[Row]:
        """Rows of a pass: those that a token follows come last, in the order of ``ready``."""
        rows, latest = list[Row](), dict[int, int]()

        def add(slot: int, at: int) -> None:
            sequence = self._running[slot]
            parent = latest.get(slot, ROOT)
            latest[slot] = len(rows)
            rows.append(Row(slot, sequence.position + at, sequence.waiting[at], parent))

        for slot, count in counts.items():
            for at in range(count - (slot in ready)):
                add(slot, at)
        for slot in ready:
            add(slot, counts[slot] - 1)
        return rows

    def _emit(self, slot: int, token: int) -> Emitted:
        over = self._running[slot].emit(token)
        if over:
            self.release(slot)
        return Emitted(slot, token, over)


class _Sequence:
    """A prompt and the reply to it so far."""

    def __init__(self, prompt: Sequence[int], settings: Settings) -> None:
        self.waiting = list(map(int, prompt))  # tokens that were in no pass yet
        self.position = 0  # of the first of them
        self._emitted = 0
        self._settings = settings
        self._random = np.random.default_rng(settings.seed)

    @property
    def sampled(self) -> bool:
        """Whether tokens are drawn from logits."""
        return self._settings.sampling != GREEDY

    def advance(self, count: int) -> None:
        """Say that so many tokens were in a pass."""
        self.position += count
        del self.waiting[:count]

    def draw(self, logits: NDArray[np.float32]) -> int:
        """The next token by its logits, float32 [vocabulary]."""
        return draw(probabilities(logits[None], self._settings.sampling)[0], self._random)

    def emit(self, token: int) -> bool:
        """Take the next token; whether the sequence ends with it."""
        self.waiting.append(token)
        self._emitted += 1
        return token in self._settings.stop_tokens or self._emitted == self._settings.max_tokens
