"""Generate replies to prompts with any backend: rounds of tokens, and their text."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
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
    tokens: tuple[tuple[int, ...], ...]  # of each reply, including its final token
    stop_reasons: tuple[str, ...]  # stop_token, stop_string, length or interrupted
    report: Report

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-serializable objects."""
        return {**vars(self), "report": self.report.to_dict()}


class Replies:
    """Generate replies to prompts. The results stay readable after an interrupt.

    The model's own stop tokens are added to those of ``settings``; ``raw`` prompts are used without
    the chat template.
    """

    def __init__(self, backend: Backend, settings: Settings, *, raw: bool = False) -> None:
        stops = settings.stop_tokens | backend.stop_tokens()
        self._backend = backend
        self._settings = dataclasses.replace(settings, stop_tokens=stops)
        self._counters = Counters()
        self._raw = raw
        self._prompts: list[Prompt] = []
        self._texts: list[ReplyText] = []

    def __bool__(self) -> bool:
        """Return True once a reply has begun."""
        return self._counters.replies > 0

    @property
    def last_text(self) -> str:
        """Text of the last reply so far."""
        return self._texts[-1].text

    def run(self, prompts: Iterable[Prompt], on_text: Callable[[int, str], object]) -> None:
        """Reply to each prompt separately, with the chat template if the model has one.

        ``on_text`` is called with the reply's number and each new piece of its text; after an error
        or interrupt it receives the rest of the text. The next prompt begins when the reply before
        it is complete.
        """
        for number, prompt in enumerate(prompts):
            text, tokens = self._begin(prompt)
            reserve = bytearray(_RESERVE)
            rounds = self._backend.rounds(tokens, self._settings, self._counters, ends=text.add)
            try:
                for _ in rounds:
                    on_text(number, text.new())
            except BaseException as error:
                reserve.clear()
                clear_frames(error.__traceback__)  # frees their keys and values
                raise
            finally:
                on_text(number, text.new(last=True))

    def run_together(
        self, prompts: Sequence[Prompt], on_text: Callable[[int, str], object]
    ) -> None:
        """Reply to prompts like :meth:`run`, with as many at once as there are slots.

        ``on_text`` gets each text whole, in the order of the prompts.
        """
        sequences = self._backend.sequences(self._counters)
        running: dict[int, int] = {}  # reply numbers by slot
        begun = shown = 0
        try:
            while begun < len(prompts) or running:
                while begun < len(prompts) and sequences.free:
                    text, tokens = self._begin(prompts[begun])
                    running[sequences.claim(tokens, self._settings, ends=text.add)] = begun
                    begun += 1
                for emitted in sequences.step():
                    if emitted.error:
                        raise emitted.error
                    if emitted.ended:
                        del running[emitted.slot]
                ready = min(running.values(), default=begun)
                for number in range(shown, ready):
                    on_text(number, self._texts[number].new(last=True))
                shown = ready
        finally:
            for number in range(shown, begun):
                on_text(number, self._texts[number].new(last=True))

    def _begin(self, prompt: Prompt) -> tuple[ReplyText, list[int]]:
        """Start the next reply; return its text and the tokens of its prompt."""
        text = ReplyText(self._backend.tokenizer, self._settings.stop_strings)
        self._texts.append(text)
        self._prompts.append(prompt)
        return text, encode_prompt(self._backend.tokenizer, prompt, raw=self._raw)

    def generation(self) -> Generation:
        """Return the replies that have begun, and their metrics."""
        known = zip(self._prompts, self._texts, strict=True)
        prompts = [prompt for prompt, text in known if text.tokens]
        begun = [text for text in self._texts if text.tokens]
        return Generation(
            prompts=tuple(prompts),
            texts=tuple(text.text for text in begun),
            tokens=tuple(tuple(text.tokens) for text in begun),
            stop_reasons=tuple(map(self._stop_reason, begun)),
            report=self._backend.make_report(self._counters, self._settings),
        )

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
