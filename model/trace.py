"""Replies recorded as a page of HTML that shows what made each token."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from cassandra_spec.drafting import (
    GREEDY,
    Backend,
    Counters,
    Emitted,
    Prompt,
    ReplyText,
    Sequences,
    Settings,
    Trace,
    TraceText,
)
from cassandra_spec.model.output import write_file
from cassandra_spec.toolkit.trace_page import recorded_page


class Recorder:
    """A backend that remembers the rounds of its replies (:class:`drafting.Backend`)."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._asked: list[tuple[Sequence[int], Settings]] = []
        self._texts: list[TraceText] = []
        self.tokenizer, self.costs = backend.tokenizer, backend.costs
        self.make_report, self.stop_tokens = backend.make_report, backend.stop_tokens

    def rounds(
        self, prompt: Sequence[int], settings: Settings, counters: Counters, **more: Any
    ) -> Iterator[list[int]]:
        """Run the backend's rounds; ``counters`` include them when the reply ends."""
        trace = Trace(costs=self.costs)
        text = self.begin(trace, prompt, settings)
        try:
            for tokens in self._backend.rounds(prompt, settings, trace, **more):
                text.add(tokens)
                yield tokens
        finally:
            text.end()
            counters.add(trace)

    def sequences(self, counters: Counters | None = None, *, keep: bool = False) -> Sequences:
        """Return the backend's sequences, which record their rounds; ``counters`` include them."""
        return _Recorded(self, self._backend.sequences(counters, keep=keep), counters)

    def begin(self, trace: Trace, prompt: Sequence[int], settings: Settings) -> TraceText:
        """Remember a reply to a prompt; return the text that its rounds are added to."""
        text = TraceText(trace, self.tokenizer, settings.stop_strings)
        self._asked.append((prompt, settings))
        self._texts.append(text)
        return text

    def save(self, path: Path, title: str, prompts: Sequence[Prompt]) -> None:
        """Write the replies to these prompts so far, beside plain decoding that repeats them."""
        replies = zip(prompts, list(self._texts), list(self._asked), strict=True)
        bodies = [
            {"prompt": prompt, "reply": text.rounds, "plain": self._plain(*arguments)}
            for prompt, text, arguments in replies
        ]
        write_file(path, recorded_page(title, bodies).html().encode())

    def _plain(self, prompt: Sequence[int], settings: Settings) -> list[dict[str, Any]] | None:
        """Return the rounds of the same reply without drafts; None if they would add nothing."""
        repeats = settings.seed is not None and not settings.rejects
        if not settings.gamma or not (settings.sampling == GREEDY or repeats):
            return None
        ends = ReplyText(self.tokenizer, settings.stop_strings).add
        plain = dataclasses.replace(settings, gamma=0)
        for _ in self.rounds(prompt, plain, Counters(), ends=ends):
            pass
        return self._texts[-1].rounds


class _Recorded:
    """Sequences whose rounds a recorder remembers (:class:`drafting.Sequences`)."""

    def __init__(self, recorder: Recorder, inner: Sequences, total: Counters | None) -> None:
        self._recorder, self._inner, self._total = recorder, inner, total
        self._texts: dict[int, TraceText] = {}  # its rounds, by slot
        self.cached = inner.cached

    @property
    def free(self) -> int:
        """Number of free slots."""
        return self._inner.free

    def claim(
        self,
        prompt: Sequence[int],
        settings: Settings,
        trace: Counters | None = None,
        **more: Any,
    ) -> int:
        """Start a sequence; ``trace`` counts its rounds instead of the shared counters."""
        own = Trace(costs=self._recorder.costs, total=self._total if trace is None else trace)
        slot = self._inner.claim(prompt, settings, own, **more)
        self._texts[slot] = self._recorder.begin(own, prompt, settings)
        return slot

    def step(self) -> list[Emitted]:
        """Advance the running sequences and record their rounds; return their new tokens."""
        emitted = self._inner.step()
        for slot, round in groupby(emitted, lambda each: each.slot):
            tokens = list(round)
            if tokens[-1].error is None:
                self._texts[slot].add([each.token for each in tokens])
            if tokens[-1].ended:
                self._texts.pop(slot).end()
        return emitted

    def release(self, slot: int) -> None:
        """Cancel a sequence and free its slot."""
        self._texts.pop(slot).end()
        self._inner.release(slot)
