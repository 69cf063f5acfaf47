"""The decode loop: rounds of one or several sequences, over the passes of a runtime.

In a round every sequence drafts, and one target pass verifies the drafts of all (section II.B of
the paper, for several sequences). A sequence's tokens depend on its own rows of logits, its
settings and its seed alone, so each reply is the one that it would be alone, for any other
sequences and any order of arrival (docs/software/lossless.md).
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol, Self

from cassandra_spec.drafting.choice.chooser import Chooser, Score
from cassandra_spec.drafting.choice.sampling import Picker
from cassandra_spec.drafting.counters import Counters, KeyValueCounters, ReadBytes
from cassandra_spec.drafting.proposal import Outcome
from cassandra_spec.drafting.replies import Emitted, Ends, cut_at_end, never
from cassandra_spec.drafting.settings import Settings
from cassandra_spec.golden import CassandraError

PLAIN = Outcome()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Part:
    """One sequence's part of a round: the target reads ``count`` tokens, from ``position`` on."""

    slot: int
    tokens: Sequence[int]  # prompt and reply so far
    position: int
    count: int
    prompt: bool  # the tokens are of the prompt
    budget: int  # maximum nodes of drafts
    settings: Settings
    seed: int
    chooser: Chooser

    @property
    def ends(self) -> bool:
        """True if a token follows: no other tokens wait."""
        return self.position + self.count == len(self.tokens)

    @property
    def wanted(self) -> int:
        """Number of the last tokens whose logits are needed."""
        return self.count if self.scored else int(self.ends)

    @property
    def scored(self) -> bool:
        """True if the tokens' log-probabilities are requested."""
        return self.prompt and self.settings.prompt_logprobs

    @property
    def needs_logits(self) -> bool:
        """True if the chooser needs logits; else the runtime may choose by noise itself."""
        return self.settings.needs_logits


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """One sequence's result of a round: an outcome and the token after it, or an error."""

    outcome: Outcome = PLAIN
    token: int | None = None  # None: the sequence's prompt is not complete
    seconds: float = 0.0  # its share of the target pass
    error: CassandraError | None = None


class Runtime(Protocol):
    """Sequences in slots, and the passes over them."""

    @property
    def free(self) -> int:
        """Number of free slots."""

    @property
    def picker(self) -> Picker:
        """Function that chooses a token from a row of logits."""

    def share(self, waiting: Mapping[int, int]) -> tuple[dict[int, int], int]:
        """Return the number of tokens to read of each slot, and the maximum nodes of drafts.

        ``waiting`` has the number of tokens that wait, at least one; with more than one they are
        of a prompt.
        """

    def claim(
        self, prompt: Sequence[int], settings: Settings, running: Mapping[int, Sequence[int]]
    ) -> tuple[int, int]:
        """Claim a slot for a prompt; return it and the number of prompt tokens cached in it.

        At least one token is left to read. ``running`` holds the tokens that other slots have read.
        Raises :class:`CassandraError` if no slot is free, or if the runtime does not support prompt
        or settings.
        """

    def release(self, slot: int, tokens: Sequence[int]) -> None:
        """Free a slot, in which some tokens have been read."""

    def close(self) -> None:
        """Give back all free slots."""

    def round(self, parts: Sequence[Part]) -> list[Result]:
        """Run a round: draft, verify, and choose the tokens of each part."""

    def settle(self, part: Part, outcome: Outcome, tokens: int) -> KeyValueCounters | None:
        """Commit the tokens that a round emitted; return its KV cache traffic, if it is known."""

    def stored(self, slot: int) -> ReadBytes | None:
        """Return the memory of a sequence's keys and values, if it is known."""


class Batch:
    """Sequences in the slots of a runtime (:class:`cassandra_spec.drafting.Sequences`).

    Use it as a context manager, or :meth:`close` it. After an interrupted step it can only be
    closed. ``counters`` counts the rounds of all sequences; a trace counts those of one instead. A
    shared pass counts for each of its sequences as if it ran alone, and its time in parts.
    """

    def __init__(self, runtime: Runtime, counters: Counters | None = None) -> None:
        self._runtime = runtime
        self._counters = Counters() if counters is None else counters
        self._running: dict[int, _Sequence] = {}

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
        without reusing cached positions. Raises :class:`CassandraError` like
        :meth:`Runtime.claim`.
        """
        running = {slot: each.read for slot, each in self._running.items()}
        chooser = Chooser(prompt, settings, scores=scores, picker=self._runtime.picker)
        slot, cached = self._runtime.claim(prompt, settings, running)
        counters = self._counters if trace is None else trace
        self._running[slot] = _Sequence(slot, prompt, chooser, cached, counters, ends)
        return slot

    def cached(self, slot: int) -> int:
        """Return the number of prompt tokens whose keys and values were reused from the cache."""
        return self._running[slot].cached

    def step(self) -> list[Emitted]:
        """Run one round; return the new tokens of each sequence whose prompt is read.

        Raises :class:`CassandraError` if logits are not finite.
        """
        if not self._running:
            return []
        waiting = {slot: each.waiting for slot, each in self._running.items()}
        counts, budget = self._runtime.share(waiting)
        parts = [each.part(counts[slot], budget) for slot, each in self._running.items()]
        results = self._runtime.round(parts)
        return [
            emitted
            for part, result in zip(parts, results, strict=True)
            for emitted in self._take(part, result)
        ]

    def release(self, slot: int) -> None:
        """Cancel a sequence and free its slot."""
        if slot not in self._running:
            raise CassandraError(f"slot must be that of a running sequence, not {slot!r}")
        self._runtime.release(slot, self._running.pop(slot).read)

    @property
    def free(self) -> int:
        """Number of free slots."""
        return self._runtime.free

    @property
    def running(self) -> tuple[int, ...]:
        """Slots of running sequences, oldest first."""
        return tuple(self._running)

    def close(self) -> None:
        """Cancel all sequences."""
        for slot in self.running:
            self.release(slot)
        self._runtime.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _take(self, part: Part, result: Result) -> Iterator[Emitted]:
        """Emit what a round gave a sequence."""
        sequence = self._running[part.slot]
        if result.error is not None:
            self.release(part.slot)
            yield Emitted(part.slot, -1, True, result.error)
            return
        tokens, over = sequence.take(part, result, self._runtime)
        if over:
            if stored := self._runtime.stored(part.slot):
                sequence.counters.add_stored(stored)
            self.release(part.slot)
        for place, token in enumerate(tokens, start=1):
            yield Emitted(part.slot, token, over and place == len(tokens))


class _Sequence:
    """A prompt and its reply so far."""

    def __init__(
        self,
        slot: int,
        prompt: Sequence[int],
        chooser: Chooser,
        cached: int,
        counters: Counters,
        ends: Ends,
    ) -> None:
        self.slot, self.cached, self.counters = slot, cached, counters
        self.tokens = list(map(int, prompt))  # prompt and reply
        self.position = cached  # position of the first pending token
        self._chooser, self._settings = chooser, chooser.settings
        self._begin, self._end = len(prompt), len(prompt) + chooser.settings.max_tokens
        self._ending = ends

    @property
    def read(self) -> list[int]:
        """Tokens whose keys and values are in the slot."""
        return self.tokens[: self.position]

    @property
    def waiting(self) -> int:
        """Number of pending tokens, at least one."""
        return len(self.tokens) - self.position

    def part(self, count: int, budget: int) -> Part:
        """Return the sequence's part of a round in which the target reads ``count`` tokens."""
        prompt = len(self.tokens) == self._begin
        return Part(
            slot=self.slot,
            tokens=self.tokens,
            position=self.position,
            count=count,
            prompt=prompt,
            budget=0 if prompt else min(budget, self._end - len(self.tokens) - 1),
            settings=self._settings,
            seed=self._chooser.seed,
            chooser=self._chooser,
        )

    def take(self, part: Part, result: Result, runtime: Runtime) -> tuple[list[int], bool]:
        """Append the tokens of a round; return those that were emitted, and True at the end."""
        if part.prompt:
            self.counters.add_prompt_seconds(result.seconds)
        if result.token is None:
            self.position += part.count
            return [], False
        nodes = result.outcome.proposal.nodes
        tokens = [*(nodes[at].token for at in result.outcome.path), result.token]
        emitted, over = cut_at_end(tokens, self._settings.stop_tokens, self._ending)
        self._chooser.settle(len(emitted))
        kv = runtime.settle(part, result.outcome, len(emitted))
        if part.prompt:
            self.counters.add_reply(self._begin)
        else:
            counted = {"position": part.position, "tokens": len(emitted)}
            self.counters.add_round(result.outcome, **counted, kv=kv)
        self.tokens += emitted
        self.position += part.count - 1 + len(emitted)
        return emitted, over or len(self.tokens) == self._end


def reply_rounds(
    batch: Batch,
    prompt: Sequence[int],
    settings: Settings,
    *,
    ends: Callable[[int], bool] = never,
    scores: list[Score] | None = None,
) -> Iterator[list[int]]:
    """Yield the tokens of one reply: first the prompt's token, then those of each round.

    ``ends`` is called once per token, in order, and returns True to end the reply there; stop
    tokens end it anyway. ``scores`` receives log-probabilities if the settings ask for them. Raises
    :class:`CassandraError`. The sequence is the batch's only one, and ends with the iteration.
    """
    slot = batch.claim(prompt, settings, ends=ends, scores=scores)
    with contextlib.closing(batch):
        while slot in batch.running:
            emitted = batch.step()
            for each in emitted:
                if each.error is not None:
                    raise each.error
            if emitted:
                yield [each.token for each in emitted]
