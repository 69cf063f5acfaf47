"""Sequences that a native engine decodes side by side: one pass a step for all of them.

The rows of a pass do not depend on each other. So a sequence has the tokens that it would have
alone, whatever the others are and whenever they come and go (native.md). One that runs alone
is decoded in rounds of speculation if its settings say so, which emit the same tokens; it goes on
in plain passes when another one comes, and the other way round.
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
from cassandra_spec.native.engine import Engine
from cassandra_spec.native.engine_binding import MAX_ROWS, Row
from cassandra_spec.native.slots import Slots


class Batch:
    """Sequences in slots of an engine (:class:`cassandra_spec.drafting.Sequences`).

    Use it as a context manager, or :meth:`close` it.

    Each sequence has one row in a pass. Rows that are left take further tokens of prompts, those
    of the sequence that has waited longest first. A batch must not be used after a step of it was
    interrupted, except to close it. ``counters`` count the rounds of speculation. A trace counts
    all tokens of its sequence, those of shared passes as if each pass was its own.

    A prompt that begins with tokens of another running sequence takes over their keys and values,
    which depend on nothing else. With ``keep`` those of sequences that have ended serve, too: the
    batch has its slots for itself until it is closed.
    """

    def __init__(
        self, engine: Engine, counters: Counters | None = None, *, keep: bool = False
    ) -> None:
        self._engine = engine
        self._slots = Slots(engine, keep=keep)
        self._counters = Counters() if counters is None else counters
        self._running: dict[int, _Sequence] = {}
        self._speculated: _Sequence | None = None  # the last one

    def claim(
        self,
        prompt: Sequence[int],
        settings: Settings,
        trace: Counters | None = None,
        *,
        ends: Ends = never,
        scores: list[Score] | None = None,
    ) -> int:
        """Begin a sequence with a prompt, and return its slot, which it has until it ends.

        Stop strings of ``settings`` are not looked for. A prompt whose tokens are scored is read as
        a whole, whatever is there of it. Raises :class:`CassandraError` if no slot
        is free, the prompt is empty or has other tokens than the model, prompt and reply do not fit
        the engine's positions, or the engine cannot run such rounds, as none of sampled tokens.
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
        """Tokens of the prompt of a running sequence whose keys and values were there."""
        return self._running[slot].cached

    def step(self) -> list[Emitted]:
        """One pass over all sequences, and the tokens that follow those whose prompts are read.

        Or a round of speculation of the only one. Raises :class:`CassandraError` if logits are not
        finite.
        """
        if not self._running:
            return []
        if len(self._running) == 1:
            [(slot, sequence)] = self._running.items()
            if sequence.speculates:
                return self._round(slot, sequence)
        return self._pass()

    def release(self, slot: int) -> None:
        """End a sequence, whose slot is free then."""
        if slot not in self._running:
            raise CassandraError(f"slot must be that of a running sequence, not {slot!r}")
        self._slots.release(slot, self._running.pop(slot).read)

    @property
    def free(self) -> int:
        """Sequences that can begin now."""
        return self._slots.free

    @property
    def running(self) -> tuple[int, ...]:
        """Slots of sequences that have not ended, the oldest first."""
        return tuple(self._running)

    def close(self) -> None:
        """End all sequences."""
        for slot in self.running:
            self.release(slot)
        self._slots.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _round(self, slot: int, sequence: _Sequence) -> list[Emitted]:
        """A round of speculation of a sequence that has one token to read."""
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
                except CassandraError as error:  # of its processors: the others go on
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
        """The last rows of a sequence in a pass that a token follows, or is scored by."""
        sequence = self._running[slot]
        if sequence.settings.prompt_logprobs and not sequence.begun:
            return count
        return int(count == sequence.waiting)

    def _take(self, slot: int, tokens: Sequence[int]) -> Iterator[Emitted]:
        """Emit the token of a plain pass and those that it forces, up to the end of the reply."""
        for token in tokens:
            emitted = self._emit(slot, self._running[slot].end(token))
            yield emitted
            if emitted.over:
                return

    def _trace(self, sequence: _Sequence) -> None:
        """Count the token that follows a plain pass, which may be that over the prompt."""
        if sequence.trace is None:
            return
        if sequence.begun:
            self._engine.count_round(sequence.trace, Outcome(), sequence.position - 1, 1)
        else:
            sequence.trace.add_reply(sequence.position)

    def _share_rows(self) -> dict[int, int]:
        """Rows of each sequence in the next pass: one, and what is free for prompts."""
        free = MAX_ROWS - len(self._running)
        counts = {}
        for slot, sequence in self._running.items():
            more = min(sequence.waiting - 1, free)
            counts[slot], free = 1 + more, free - more
        return counts

    def _rows(
        self, counts: dict[int, int], wanted: dict[int, int], order: Sequence[int]
    ) -> list[Row]:
        """Rows of a pass: those that are wanted come last, in the order of slots in ``order``."""
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
        """The last token of a sequence, which may be over with it."""
        token = self._running[slot].tokens[-1]
        if over:
            self.release(slot)
        return Emitted(slot, token, over)


class _Sequence:
    """A prompt and the reply to it so far."""

    def __init__(
        self,
        prompt: Sequence[int],
        settings: Settings,
        cached: int,
        trace: Counters | None,
        ends: Ends,
        scores: list[Score] | None,
    ) -> None:
        self.tokens = list(map(int, prompt))  # and those of the reply
        self.position = cached  # of the first token that was in no pass yet
        self.cached, self.settings, self.trace = cached, settings, trace
        self._begin, self._end = len(prompt), len(prompt) + settings.max_tokens
        self.chooser = Chooser(prompt, settings, scores=scores)  # of tokens that need logits
        self.ending = Ending(ends)

    @property
    def read(self) -> list[int]:
        """Tokens whose keys and values are in the slot."""
        return self.tokens[: self.position]

    @property
    def waiting(self) -> int:
        """Tokens that were in no pass yet, at least one."""
        return len(self.tokens) - self.position

    @property
    def begun(self) -> bool:
        """Whether the reply has a token."""
        return len(self.tokens) > self._begin

    @property
    def left(self) -> int:
        """Tokens that the reply may still have."""
        return self._end - len(self.tokens)

    @property
    def speculates(self) -> bool:
        """Whether a round can be next."""
        return self.settings.gamma != 0 and self.waiting == 1

    def forced(self) -> list[int]:
        """The tokens that a grammar forces after one that was chosen; later passes read them."""
        return self.chooser.forced(self.left - 1) if self.trace is None else []

    def score(self, logits: NDArray[np.float32]) -> None:
        """Take the logits of all rows of the prompt in a pass, if they are wanted."""
        if self.settings.prompt_logprobs and not self.begun:
            self.chooser.read_prompt(self.position, logits)

    def choose(self, logits: NDArray[np.float32]) -> int:
        """The token that follows the last of some rows, by their logits."""
        token = self.chooser.first(logits[-1])
        self.chooser.settle(1)
        return token

    def end(self, token: int) -> bool:
        """Take the next token of a plain pass; whether the sequence ends with it."""
        self.ending(token)
        return self.take([token])

    def take(self, tokens: Sequence[int]) -> bool:
        """Take tokens, of which the last was asked about; whether the sequence ends with it."""
        self.tokens += tokens
        return self.ending.ended or tokens[-1] in self.settings.stop_tokens or self.left == 0
