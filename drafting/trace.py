"""Trace of one reply: the sources of each round's tokens, and the bytes read so far."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from cassandra_spec.drafting.counters import Counters, KeyValueCounters, ReadBytes
from cassandra_spec.drafting.proposal import Outcome
from cassandra_spec.drafting.report import Costs, traffic
from cassandra_spec.text.reply import ReplyText

TARGET = "target"
"""Source of tokens that were not drafted."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TracedRound:
    """A round, or the prompt pass; bytes are those of the reports' scope ``all``."""

    sources: tuple[str, ...]  # draft sources of its emitted tokens
    rounds: int = 0  # verifications so far; 0: the prompt pass
    drafted: int = 0
    accepted: int = 0
    read: int = 0  # bytes read by the passes of all rounds so far
    bf16: int = 0  # bytes that plain BF16 decoding reads for the same tokens


@dataclasses.dataclass(kw_only=True)
class Trace(Counters):
    """Counters of one reply that also record each round.

    The prompt pass comes first. ``costs`` are those of the backend; without them byte counts are
    zero. ``total`` counts the same rounds.
    """

    costs: Costs | None
    total: Counters | None = None
    traced: list[TracedRound] = dataclasses.field(default_factory=list)

    def add_reply(self, prompt_tokens: int) -> None:
        """Count a reply like :class:`Counters`, and record the source of its first token."""
        super().add_reply(prompt_tokens)
        if self.total is not None:
            self.total.add_reply(prompt_tokens)
        self.traced.append(TracedRound(sources=(TARGET,)))

    def add_prompt_seconds(self, seconds: float) -> None:
        """Count the time of a pass over tokens of a prompt."""
        super().add_prompt_seconds(seconds)
        if self.total is not None:
            self.total.add_prompt_seconds(seconds)

    def add_stored(self, stored: ReadBytes) -> None:
        """Count the memory of the reply's keys and values."""
        super().add_stored(stored)
        if self.total is not None:
            self.total.add_stored(stored)

    def add_round(
        self, outcome: Outcome, *, position: int, tokens: int, kv: KeyValueCounters | None = None
    ) -> None:
        """Count a round like :class:`Counters`, and record it."""
        super().add_round(outcome, position=position, tokens=tokens, kv=kv)
        if self.total is not None:
            self.total.add_round(outcome, position=position, tokens=tokens, kv=kv)
        read = None if self.costs is None else traffic("all", self, self.costs)
        sources = [outcome.proposal.nodes[at].source for at in outcome.path]
        made = TracedRound(
            sources=(*sources, TARGET)[:tokens],
            rounds=self.rounds,
            drafted=outcome.drafted,
            accepted=outcome.accepted,
            read=round(read.speculative * self.tokens) if read else 0,
            bf16=round(read.bf16 * self.tokens) if read else 0,
        )
        self.traced.append(made)


class TraceText:
    """Rounds of a trace with the text of each token, as JSON-serializable objects."""

    def __init__(self, trace: Trace, tokenizer: Any, stop_strings: Sequence[str] = ()) -> None:
        self.rounds: list[dict[str, Any]] = []
        self._trace = trace
        self._text = ReplyText(tokenizer, stop_strings)

    def add(self, tokens: Sequence[int]) -> None:
        """Append the tokens of the next round.

        A token's text is the text that becomes visible with it: a character made of several tokens
        belongs to the last one.
        """
        traced = self._trace.traced[len(self.rounds)]
        body = dataclasses.asdict(traced) | {"tokens": []}
        del body["sources"]
        for token, source in zip(tokens, traced.sources, strict=False):
            self._text.add(token)
            body["tokens"].append({"id": token, "text": self._text.new(), "source": source})
        self.rounds.append(body)

    def end(self) -> None:
        """Append the text that was held back to the last token."""
        if self.rounds and (tokens := self.rounds[-1]["tokens"]):
            tokens[-1]["text"] += self._text.new(last=True)
