"""Generate replies to prompts with any backend: rounds of tokens, and their text."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from traceback import clear_frames
from typing import Any, Protocol

from cassandra_spec.drafting.choice.chooser import Score
from cassandra_spec.drafting.counters import Counters
from cassandra_spec.drafting.report import Costs, Report
from cassandra_spec.drafting.settings import Settings
from cassandra_spec.golden import CassandraError
from cassandra_spec.text.reply import Prompt, ReplyText, encode_prompt

_RESERVE = 1 << 22
"""Reserve of memory, freed when a reply fails, so that the error can be reported."""


class Backend(Protocol):
    """A model with its tokenizer that generates replies."""

    @property
    def costs(self) -> Costs | None:
        """Bytes that its passes read."""

    @property
    def tokenizer(self) -> Any:
        """Tokenizer of the model (transformers)."""

    def rounds(
        self,
        prompt: Sequence[int],
        settings: Settings,
        counters: Counters,
        *,
        ends: Callable[[int], bool] = ...,
        scores: list[Score] | None = ...,
    ) -> Iterator[list[int]]:
        """Yield the emitted tokens of a reply: first the prompt's token, then each round's tokens.

        ``ends`` is called once per token, in order, and returns True to end the reply there; stop
        tokens end it anyway. ``counters`` is updated. ``scores`` receives log-probabilities if the
        settings ask for them.
        """

    def sequences(self, counters: Counters | None = None, *, keep: bool = False) -> Sequences:
        """Return slots for sequences; ``counters`` counts their rounds.

        With ``keep``, the KV cache of ended sequences is reused by later ones.
        """

    def make_report(self, counters: Counters, settings: Settings) -> Report:
        """Return the metrics of ``counters`` over replies with these settings."""

    def stop_tokens(self) -> frozenset[int]:
        """Return the model's own stop tokens."""


Ends = Callable[[int], bool]
"""Called once per token, in order; returns True to end the reply with it."""


def never(token: int) -> bool:
    """Return False: do not end the reply (:data:`Ends`)."""
    return False


@dataclasses.dataclass(frozen=True)
class Emitted:
    """One new token of a sequence."""

    slot: int
    token: int
    ended: bool  # the sequence ends with this token and its slot is free again
    error: CassandraError | None = None  # the reason the sequence ended, instead of a token


class Sequences(Protocol):
    """Prompts and their replies, run concurrently."""

    @property
    def free(self) -> int:
        """Number of free slots."""

    def claim(
        self,
        prompt: Sequence[int],
        settings: Settings,
        trace: Counters | None = None,
        *,
        ends: Ends = ...,
        scores: list[Score] | None = ...,
    ) -> int:
        """Start a sequence for ``prompt`` and return its slot, held until the sequence ends.

        ``trace`` counts its rounds instead of the shared counters. ``ends`` and ``scores`` work as
        in :meth:`Backend.rounds`: a sequence ends with the token for which ``ends`` returns True.
        """

    def step(self) -> list[Emitted]:
        """Advance the running sequences; return their new tokens, in order."""

    def cached(self, slot: int) -> int:
        """Return the number of prompt tokens whose keys and values were reused from the cache."""

    def release(self, slot: int) -> None:
        """Cancel a sequence and free its slot."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Generation:
    """Replies to prompts, and the metrics over all of them."""

    prompts: tuple[Prompt, ...]
    texts: tuple[str, ...]  # without special tokens, cut before a stop string
    tokens: tuple[tuple[int, ...], ...]  # tokens of each reply, including its final one
    stop_reasons: tuple[str, ...]  # stop_token, stop_string, length or interrupted
    scores: tuple[tuple[Score, ...], ...]  # of each reply's tokens, if the settings ask for them
    reports: tuple[Report, ...]  # of each reply
    report: Report

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-serializable objects, without the parts of single replies."""
        names = ("prompts", "texts", "tokens", "stop_reasons")
        return {**{name: getattr(self, name) for name in names}, "report": self.report.to_dict()}


@contextmanager
def _freeing() -> Iterator[None]:
    """Free the keys and values of a reply that fails, and a reserve, so that it can be told."""
    reserve = bytearray(_RESERVE)
    try:
        yield
    except BaseException as error:
        reserve.clear()
        clear_frames(error.__traceback__)
        raise


class _Begun:
    """A reply that has begun, or is about to."""

    def __init__(self, prompt: Prompt, text: ReplyText, *, scored: bool) -> None:
        self.prompt, self.text, self.counters = prompt, text, Counters()
        self.scores: list[Score] | None = [] if scored else None


class Replies:
    """Generate replies to prompts. The results stay readable after an interrupt.

    The model's own stop tokens are added to those of ``settings``; ``raw`` prompts are used without
    the chat template.
    """

    def __init__(self, backend: Backend, settings: Settings, *, raw: bool = False) -> None:
        stops = settings.stop_tokens | backend.stop_tokens()
        self._backend = backend
        self._settings = dataclasses.replace(settings, stop_tokens=stops)
        self._raw = raw
        self._begun: list[_Begun] = []

    def __bool__(self) -> bool:
        """Return True once a reply has begun."""
        return any(reply.counters.replies for reply in self._begun)

    @property
    def begun(self) -> int:
        """Number of replies that have a token."""
        return sum(bool(reply.text.tokens) for reply in self._begun)

    @property
    def last_text(self) -> str:
        """Text of the last reply so far."""
        return self._begun[-1].text.text

    def pieces(self, prompt: Prompt) -> Generator[str, None, None]:
        """Yield the new text of each round of a reply that has any, then the rest of its text.

        The chat template is used if the model has one. After an error or interrupt the rest of the
        text is in :meth:`generation`.
        """
        reply, tokens = self._begin(prompt)
        with _freeing():
            for _ in self._rounds(reply, tokens):
                if piece := reply.text.new():
                    yield piece
        if piece := reply.text.new(last=True):
            yield piece

    def run(self, prompts: Iterable[Prompt], on_text: Callable[[int, str], object]) -> None:
        """Reply to each prompt separately, with the chat template if the model has one.

        ``on_text`` is called with the reply's number and each new piece of its text; after an error
        or interrupt it receives the rest of the text. The next prompt begins when the reply before
        it is complete.
        """
        for number, prompt in enumerate(prompts):
            reply, tokens = self._begin(prompt)
            try:
                with _freeing():
                    for _ in self._rounds(reply, tokens):
                        on_text(number, reply.text.new())
            finally:
                on_text(number, reply.text.new(last=True))

    def run_together(
        self, prompts: Sequence[Prompt], on_text: Callable[[int, str], object]
    ) -> None:
        """Reply to prompts like :meth:`run`, with as many at once as there are slots.

        ``on_text`` gets each text whole, in the order of the prompts.
        """
        sequences = self._backend.sequences()
        running: dict[int, int] = {}  # reply numbers by slot
        before = shown = len(self._begun)
        begun = 0
        try:
            while begun < len(prompts) or running:
                while begun < len(prompts) and sequences.free:
                    running[self._claim(sequences, prompts[begun])] = before + begun
                    begun += 1
                for emitted in sequences.step():
                    if emitted.ended:
                        del running[emitted.slot]
                    if emitted.error:
                        raise emitted.error
                ready = min(running.values(), default=before + begun)
                self._show(range(shown, ready), before, on_text)
                shown = ready
        finally:
            for slot in running:
                sequences.release(slot)
            self._show(range(shown, len(self._begun)), before, on_text)

    def _show(self, numbers: range, first: int, on_text: Callable[[int, str], object]) -> None:
        for number in numbers:
            on_text(number - first, self._begun[number].text.new(last=True))

    def _claim(self, sequences: Sequences, prompt: Prompt) -> int:
        reply, tokens = self._begin(prompt)
        return sequences.claim(
            tokens, self._settings, reply.counters, ends=reply.text.add, scores=reply.scores
        )

    def _rounds(self, reply: _Begun, tokens: list[int]) -> Iterator[list[int]]:
        return self._backend.rounds(
            tokens, self._settings, reply.counters, ends=reply.text.add, scores=reply.scores
        )

    def _begin(self, prompt: Prompt) -> tuple[_Begun, list[int]]:
        """Start the next reply; return it and the tokens of its prompt."""
        tokens = encode_prompt(self._backend.tokenizer, prompt, raw=self._raw)
        text = ReplyText(self._backend.tokenizer, self._settings.stop_strings)
        reply = _Begun(prompt, text, scored=self._settings.logprobs is not None)
        self._begun.append(reply)
        return reply, tokens

    def generation(self) -> Generation:
        """Return the replies that have begun, and their metrics."""
        begun = [reply for reply in self._begun if reply.text.tokens]
        total = Counters()
        for reply in self._begun:
            total.add(reply.counters)
        return Generation(
            prompts=tuple(reply.prompt for reply in begun),
            texts=tuple(reply.text.text for reply in begun),
            tokens=tuple(tuple(reply.text.tokens) for reply in begun),
            stop_reasons=tuple(self._stop_reason(reply.text) for reply in begun),
            scores=tuple(tuple(reply.scores or ()) for reply in begun),
            reports=tuple(self._report(reply.counters) for reply in begun),
            report=self._report(total),
        )

    def _report(self, counters: Counters) -> Report:
        return self._backend.make_report(counters, self._settings)

    def _stop_reason(self, text: ReplyText) -> str:
        if text.stopped:
            return "stop_string"
        if text.tokens[-1] in self._settings.stop_tokens:
            return "stop_token"
        return "length" if len(text.tokens) == self._settings.max_tokens else "interrupted"


def cut_at_end(
    tokens: Sequence[int], stop_tokens: frozenset[int], ends: Callable[[int], bool]
) -> tuple[list[int], bool]:
    """Return the tokens up to the one that ends the reply, and True if one does."""
    for place, token in enumerate(tokens):
        if ends(token) or token in stop_tokens:
            return list(tokens[: place + 1]), True
    return list(tokens), False
