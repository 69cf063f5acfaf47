"""Replies to prompts by any backend: rounds of tokens, and the text that they make."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from traceback import clear_frames
from typing import Any, Protocol, runtime_checkable

from cassandra_spec.drafting.choosing import Score
from cassandra_spec.drafting.counters import Counters
from cassandra_spec.drafting.report import Costs, Report
from cassandra_spec.drafting.settings import Settings
from cassandra_spec.drafting.text import Prompt, ReplyText, encode_prompt
from cassandra_spec.golden import CassandraError

_RESERVE = 1 << 22
"""Bytes that are given up when a reply fails: memory to tell the rest with."""


class Backend(Protocol):
    """What generates: a model with its tokenizer."""

    @property
    def costs(self) -> Costs | None:
        """Bytes that its passes read."""

    @property
    def tokenizer(self) -> Any:
        """Transformers' tokenizer of the model."""

    def rounds(
        self,
        prompt: Sequence[int],
        settings: Settings,
        counters: Counters,
        *,
        ends: Callable[[int], bool] = ...,
        scores: list[Score] | None = ...,
    ) -> Iterator[list[int]]:
        """Yield the emitted tokens of a reply: one by the prompt, then each round's.

        ``ends`` is asked once about each token, in order, whether the reply ends with it for
        another reason than a stop token. ``counters`` go on counting. ``scores`` get the
        log-probabilities of the tokens, if the settings ask for them.
        """

    def make_report(self, counters: Counters, settings: Settings) -> Report:
        """The figures of counters over replies with some settings."""

    def stop_tokens(self) -> frozenset[int]:
        """The model's own stop tokens."""


Ends = Callable[[int], bool]
"""Whether a reply ends with a token; asked once about each, in order."""


def never(token: int) -> bool:
    """Return False: the reply goes on (:data:`Ends`)."""
    return False


class Ending:
    """Remembers what ``ends`` said of the last token."""

    def __init__(self, ends: Ends) -> None:
        self._ends = ends
        self.ended = False

    def __call__(self, token: int) -> bool:
        """Ask about the next token."""
        self.ended = self._ends(token)
        return self.ended


@dataclasses.dataclass(frozen=True)
class Emitted:
    """The next token of a sequence."""

    slot: int
    token: int
    over: bool  # whether the sequence ends with it: the slot is free again
    error: CassandraError | None = None  # in place of a token: why the sequence ended


class Sequences(Protocol):
    """Prompts and their replies, side by side."""

    @property
    def free(self) -> int:
        """Sequences that can begin now."""

    def claim(
        self,
        prompt: Sequence[int],
        settings: Settings,
        trace: Counters | None = None,
        *,
        ends: Ends = ...,
        scores: list[Score] | None = ...,
    ) -> int:
        """Begin a sequence with a prompt, and return its slot, which it has until it ends.

        ``trace`` counts its rounds, in place of the counters of all. ``ends`` and ``scores`` are as
        for :meth:`Backend.rounds`: a sequence ends with the token for which ``ends`` is true.
        """

    def step(self) -> list[Emitted]:
        """Go on with all sequences: some tokens of some of them, in order."""

    def cached(self, slot: int) -> int:
        """Tokens of the prompt of a running sequence whose keys and values were there."""

    def release(self, slot: int) -> None:
        """End a sequence, whose slot is free then."""


@runtime_checkable
class SideBySide(Protocol):
    """A backend that runs several sequences at once."""

    def sequences(self, counters: Counters | None = None, *, keep: bool = False) -> Sequences:
        """Room for them; ``counters`` count their rounds of speculation.

        With ``keep``, keys and values of sequences that have ended serve later ones.
        """


class OneByOne:
    """Sequences of a backend that runs one at a time (:class:`Sequences`)."""

    def __init__(self, backend: Backend, counters: Counters | None = None) -> None:
        self._backend = backend
        self._counters = Counters() if counters is None else counters
        self._running: tuple[Iterator[list[int]], Settings, Ending] | None = None
        self._emitted = 0

    @property
    def free(self) -> int:
        """Sequences that can begin now."""
        return self._running is None

    def claim(
        self,
        prompt: Sequence[int],
        settings: Settings,
        trace: Counters | None = None,
        *,
        ends: Ends = never,
        scores: list[Score] | None = None,
    ) -> int:
        """Begin a sequence with a prompt, and return its slot."""
        counters, ending = self._counters if trace is None else trace, Ending(ends)
        rounds = self._backend.rounds(prompt, settings, counters, ends=ending, scores=scores)
        self._running = rounds, settings, ending
        self._emitted = 0
        return 0

    def step(self) -> list[Emitted]:
        """The tokens of a round."""
        if self._running is None:
            return []
        rounds, settings, ending = self._running
        tokens = next(rounds)
        self._emitted += len(tokens)
        stopped = ending.ended or tokens[-1] in settings.stop_tokens
        over = stopped or self._emitted == settings.max_tokens
        if over:
            self.release(0)
        return [Emitted(0, token, False) for token in tokens[:-1]] + [Emitted(0, tokens[-1], over)]

    def cached(self, slot: int) -> int:
        """None: keys and values of a reply end with it."""
        return 0

    def release(self, slot: int) -> None:
        """End the sequence."""
        self._running = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Generation:
    """Replies to prompts, and the figures over all of them."""

    prompts: tuple[Prompt, ...]
    texts: tuple[str, ...]  # without special tokens, up to a stop string
    tokens: tuple[tuple[int, ...], ...]  # of each reply, the one that ended it included
    stop_reasons: tuple[str, ...]  # stop_token, stop_string, length or interrupted
    report: Report

    def to_dict(self) -> dict[str, Any]:
        """Plain objects for JSON."""
        return {**vars(self), "report": self.report.to_dict()}


class Replies:
    """Replies to prompts; usable at any time, after an interrupt, too.

    The model's own stop tokens are added to those of ``settings``; ``raw`` prompts get no chat
    template.
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
        """Whether a reply has begun."""
        return self._counters.replies > 0

    @property
    def last_text(self) -> str:
        """The text of the last reply so far."""
        return self._texts[-1].text

    def run(self, prompts: Iterable[Prompt], on_text: Callable[[int, str], object]) -> None:
        """Reply to each prompt on its own, with the chat template if the model has one.

        ``on_text`` is called with the number of the reply and each new piece of its text: all that
        there is, if an error or an interrupt ends the reply. The next prompt is taken when the
        reply before it is complete.
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
                clear_frames(error.__traceback__)  # keys and values, too
                raise
            finally:
                on_text(number, text.new(last=True))

    def run_together(
        self, prompts: Sequence[Prompt], on_text: Callable[[int, str], object], sequences: Sequences
    ) -> None:
        """As :meth:`run`, with as many prompts at once as there is room for.

        Each text comes whole, in the order of the prompts.
        """
        running: dict[int, int] = {}  # numbers of replies by slot
        begun = shown = 0
        try:
            while begun < len(prompts) or running:
                while begun < len(prompts) and sequences.free:
                    _, tokens = self._begin(prompts[begun])
                    running[sequences.claim(tokens, self._settings)] = begun
                    self._counters.add_reply(len(tokens))
                    begun += 1
                for emitted in sequences.step():
                    if emitted.error:
                        raise emitted.error
                    if emitted.slot in running and self._take(running[emitted.slot], emitted):
                        del running[emitted.slot]
                        if not emitted.over:
                            sequences.release(emitted.slot)
                ready = min(running.values(), default=begun)
                for number in range(shown, ready):
                    on_text(number, self._texts[number].new(last=True))
                shown = ready
        finally:
            for number in range(shown, begun):
                on_text(number, self._texts[number].new(last=True))

    def _begin(self, prompt: Prompt) -> tuple[ReplyText, list[int]]:
        """The text of the next reply, and the tokens of its prompt."""
        text = ReplyText(self._backend.tokenizer, self._settings.stop_strings)
        self._texts.append(text)
        self._prompts.append(prompt)
        return text, encode_prompt(self._backend.tokenizer, prompt, raw=self._raw)

    def _take(self, number: int, emitted: Emitted) -> bool:
        """The next token of a reply; whether it ends with it, by a stop string or otherwise."""
        text = self._texts[number]
        self._counters.tokens += bool(text.tokens)  # the first is its prompt's
        return text.add(emitted.token) or emitted.over

    def generation(self) -> Generation:
        """The replies that have begun, and their figures."""
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
    """The tokens up to the one that ends the reply, and whether there is such a one."""
    for place, token in enumerate(tokens):
        if ends(token) or token in stop_tokens:
            return list(tokens[: place + 1]), True
    return list(tokens), False
