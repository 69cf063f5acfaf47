"""Replies recorded as a page of HTML that shows what made each token."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from cassandra_spec.drafting import (
    GREEDY,
    Backend,
    Counters,
    Prompt,
    ReplyText,
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
        text = TraceText(trace, self.tokenizer, settings.stop_strings)
        self._asked.append((prompt, settings))
        self._texts.append(text)
        try:
            for tokens in self._backend.rounds(prompt, settings, trace, **more):
                text.add(tokens)
                yield tokens
        finally:
            text.end()
            counters.add(trace)

    def save(self, path: Path, title: str, prompts: Sequence[Prompt]) -> None:
        """Write the replies to these prompts so far; greedy ones beside plain decoding."""
        replies = zip(prompts, list(self._texts), list(self._asked), strict=True)
        bodies = [
            {"prompt": prompt, "reply": text.rounds, "plain": self._plain(*asked)}
            for prompt, text, asked in replies
        ]
        write_file(path, recorded_page(title, bodies).html().encode())

    def _plain(self, prompt: Sequence[int], settings: Settings) -> list[dict[str, Any]] | None:
        """Return the rounds of the same reply without drafts; None if they would add nothing."""
        if not settings.gamma or settings.sampling != GREEDY:
            return None
        ends = ReplyText(self.tokenizer, settings.stop_strings).add
        plain = dataclasses.replace(settings, gamma=0)
        for _ in self.rounds(prompt, plain, Counters(), ends=ends):
            pass
        return self._texts[-1].rounds
