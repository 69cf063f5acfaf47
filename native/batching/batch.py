"""Batched decoding: one pass per step over several sequences of a native engine.

Rows of a pass do not affect each other. A sequence therefore gets the same tokens as alone, for any
other sequences and any order of arrival (native.md). A sequence that runs alone is decoded in
rounds of speculation if its settings ask for them, with the same tokens. It switches to plain
passes when another sequence joins, and back when it is alone again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.drafting import (
    Chooser,
    Counters,
    Emitted,
    Ending,
    Ends,
    Outcome,
    Score,
    Settings,
    never,
)
from cassandra_spec.drafting.proposal import ROOT
from cassandra_spec.golden import CassandraError
from cassandra_spec.native.batching.slots import Slots
from cassandra_spec.native.engine import Engine
from cassandra_spec.native.engine_binding import MAX_ROWS, Row


class Batch:
    """Sequences in slots of an engine (:class:`cassandra_spec.drafting.Sequences`).

    Use it as a context manager, or :meth:`close` it.

    Each sequence has one row in a pass. Free rows read further prompt tokens, those of the longest
    waiting sequence first. After an interrupted step a batch can only be closed. ``counters``
    counts the rounds of speculation. A trace counts all tokens of its sequence; shared passes count
    as if the sequence ran alone.

    A prompt that begins with tokens of another running sequence copies their keys and values, which
    depend only on these tokens. With ``keep``, ended sequences are sources too: the batch then owns
    its slots until it is closed.
    """

    def __init__(
        self, engine: Engine, counters: Counters | None = None, *, keep: bool = False
    ) -> None:
        self._engine = engine
        self._slots = Slots(engine, keep=keep)
        self._counters = Counters() if counters is None else counters
        self._running: dict[int, _Sequence] = {}
        self._speculated: _Sequence | None = None  # the sequence of the last speculative round

    def claim(
        self,
        prompt: Sequence[int],
        settings: Settings,
        trace: Counters | None = None,
        *,
        ends: Ends = never,
        scores: list[Score] | None = None,
    ) -> int:
        """Start a sequence for ``prompt`` and return its slot, held until the sequence ends.

        Stop strings of ``settings`` are ignored. A prompt whose tokens are scored is read in full,
        without reusing cached positions. Raises :class:`CassandraError` if no slot is free, the
        prompt is empty or has tokens outside the vocabulary, prompt and reply exceed the engine's
        positions, or the engine does not support the settings, such as batched sampling.
        """
        if settings.gamma:
            self._engine.require_rounds(settings)
        self._engine.require_room(prompt, settings)
        running = {slot: each.read for slot, each in self._running.items()}
        known = prompt[:1] if settings.prompt_logprobs else prompt
        slot, cached = self._slots.claim(known, running)
        self._running[slot] = _Sequence(prompt, settings, cached, trace, ends, scores)
        return slot

    def cached(self, slot: int) -> int:
        """Return the number of prompt tokens whose keys and values were reused from the cache."""
        return self._running[slot].cached

    def step(self) -> list[Emitted]:
        """Run one pass over all sequences; return the next token of each whose prompt is read.

        A sequence that is alone may run a round of speculation instead. Raises
        :class:`CassandraError` if logits are not finite.
        """
        if not self._running:
            return []
        if len(self._running) == 1:
            [(slot, sequence)] = self._running.items()
            if sequence.speculates:
                return self._round(slot, sequence)
        return self._pass()

    def release(self, slot: int) -> None:
        """Cancel a sequence and free its slot."""
        if slot not in self._running:
            raise CassandraError(f"slot must be that of a running sequence, not {slot!r}")
        self._slots.release(slot, self._running.pop(slot).read)

    @property
    def free(self) -> int:
        """Number of free slots."""
        return self._slots.free

    @property
    def running(self) -> tuple[int, ...]:
        """Slots of running sequences, oldest first."""
        return tuple(self._running)

    def close(self) -> None:
        """Cancel all sequences."""
        for slot in self.running:
            self.release(slot)
        self._slots.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _round(self, slot: int, sequence: _Sequence) -> list[Emitted]:
        """Run a round of speculation of a sequence with one pending token."""
        begins = sequence is not self._speculated
        self._speculated = sequence
        counters = self._counters if sequence.trace is None else sequence.trace
        rest = sequence.left, sequence.settings, counters
        chooser = sequence.chooser if sequence.settings.needs_logits else None
        asked: dict[str, Any] = {"ends": sequence.ending, "chooser": chooser}
        tokens = self._engine.run_round(slot, sequence.tokens, *rest, begins=begins, **asked)
        sequence.position += len(tokens)
        over = sequence.take(tokens)
        return [*(Emitted(slot, token, False) for token in tokens[:-1]), self._emit(slot, over)]

    def _pass(self) -> list[Emitted]:
        counts = self._share_rows()
        ready = [slot for slot, each in self._running.items() if counts[slot] == each.waiting]
        wanted = {slot: self._wanted(slot, count) for slot, count in counts.items()}
        order = sorted(self._running, key=lambda slot: self._running[slot].settings.needs_logits)
        drawn = sum(wanted[slot] for slot in order if self._running[slot].settings.needs_logits)
        rows = self._rows(counts, wanted, order)
        best, logits = self._engine.run_rows(rows, last=sum(wanted.values()), drawn=drawn)
        tokens, failed, at = dict[int, list[int]](), dict[int, CassandraError](), 0
        for slot in order:
            sequence, row = self._running[slot], at - (len(best) - drawn)
            if sequence.settings.needs_logits:
                own = logits[row : row + wanted[slot]]
                try:
                    sequence.score(own)
                    if slot in ready:
                        tokens[slot] = [sequence.choose(own), *sequence.forced()]
                except CassandraError as error:  # a processor failed; the other sequences continue
                    failed[slot] = error
            elif wanted[slot]:
                tokens[slot] = [best[at]]
            at += wanted[slot]
            sequence.position += counts[slot]
        for slot in failed:
            self.release(slot)
        for slot in tokens:
            self._trace(self._running[slot])
        emitted = [each for slot in tokens for each in self._take(slot, tokens[slot])]
        return emitted + [Emitted(slot, -1, True, error) for slot, error in failed.items()]

    def _wanted(self, slot: int, count: int) -> int:
        """Return the number of a sequence's last rows in a pass whose logits are needed."""
        sequence = self._running[slot]
        if sequence.settings.prompt_logprobs and not sequence.begun:
            return count
        return int(count == sequence.waiting)

    def _take(self, slot: int, tokens: Sequence[int]) -> Iterator[Emitted]:
        """Emit a plain pass's token and the tokens it forces, up to the end of the reply."""
        for token in tokens:
            emitted = self._emit(slot, self._running[slot].end(token))
            yield emitted
            if emitted.ended:
                return

    def _trace(self, sequence: _Sequence) -> None:
        """Count the token that follows a plain pass, which may be the prompt's."""
        if sequence.trace is None:
            return
        if sequence.begun:
            self._engine.count_round(sequence.trace, Outcome(), sequence.position - 1, 1)
        else:
            sequence.trace.add_reply(sequence.position)

    def _share_rows(self) -> dict[int, int]:
        """Return each sequence's rows in the next pass: one, plus free rows for its prompt."""
        free = MAX_ROWS - len(self._running)
        counts = {}
        for slot, sequence in self._running.items():
            more = min(sequence.waiting - 1, free)
            counts[slot], free = 1 + more, free - more
        return counts

    def _rows(
        self, counts: dict[int, int], wanted: dict[int, int], order: Sequence[int]
    ) -> list[Row]:
        """Return the rows of a pass; rows in ``wanted`` come last, in the order of ``order``."""
        rows, latest = list[Row](), dict[int, int]()

        def add(slot: int, at: int) -> None:
            sequence = self._running[slot]
            parent = latest.get(slot, ROOT)
            latest[slot] = len(rows)
            place = sequence.position + at
            rows.append(Row(slot, place, sequence.tokens[place], parent))

        for slot, count in counts.items():
            for at in range(count - wanted[slot]):
                add(slot, at)
        for slot in order:
            for at in range(counts[slot] - wanted[slot], counts[slot]):
                add(slot, at)
        return rows

    def _emit(self, slot: int, over: bool) -> Emitted:
        """Return the last token of a sequence; ``over`` ends the sequence."""
        token = self._running[slot].tokens[-1]
        if over:
            self.release(slot)
        return Emitted(slot, token, over)


class _Sequence:
    """A prompt and its reply so far."""

    def __init__(
        self,
        prompt: Sequence[int],
        settings: Settings,
        cached: int,
        trace: Counters | None,
        ends: Ends,
        scores: list[Score] | None,
    ) -> None:
        self.tokens = list(map(int, prompt))  # prompt and reply
        self.position = cached  # position of the first pending token
        self.cached, self.settings, self.trace = cached, settings, trace
        self._begin, self._end = len(prompt), len(prompt) + settings.max_tokens
        self.chooser = Chooser(prompt, settings, scores=scores)  # for tokens that need logits
        self.ending = Ending(ends)

    @property
    def read(self) -> list[int]:
        """Tokens whose keys and values are in the slot."""
        return self.tokens[: self.position]

    @property
    def waiting(self) -> int:
        """Number of pending tokens, at least one."""
        return len(self.tokens) - self.position

    @property
    def begun(self) -> bool:
        """True once the reply has a token."""
        return len(self.tokens) > self._begin

    @property
    def left(self) -> int:
        """Number of tokens until the reply's limit."""
        return self._end - len(self.tokens)

    @property
    def speculates(self) -> bool:
        """True if the next step can be a round of speculation."""
        return self.settings.gamma != 0 and self.waiting == 1

    def forced(self) -> list[int]:
        """Append the tokens that a grammar forces after the chosen one; later passes read them."""
        return self.chooser.forced(self.left - 1) if self.trace is None else []

    def score(self, logits: NDArray[np.float32]) -> None:
        """Score prompt tokens from the logits of a pass, if requested."""
        if self.settings.prompt_logprobs and not self.begun:
            self.chooser.read_prompt(self.position, logits)

    def choose(self, logits: NDArray[np.float32]) -> int:
        """Choose the token that follows the last of these rows."""
        token = self.chooser.first(logits[-1])
        self.chooser.settle(1)
        return token

    def end(self, token: int) -> bool:
        """Append the next token of a plain pass; return True if it ends the sequence."""
        self.ending(token)
        return self.take([token])

    def take(self, tokens: Sequence[int]) -> bool:
        """Append tokens after asking ``ends`` about the last; return True if the sequence ends."""
        self.tokens += tokens
        return self.ending.ended or tokens[-1] in self.settings.stop_tokens or self.left == 0
