"""What each round of one reply did: who made its tokens, and what had been read by then."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from cassandra_spec.drafting.counters import Counters, KeyValueCounters
from cassandra_spec.drafting.proposal import Outcome
from cassandra_spec.drafting.report import Costs, traffic
from cassandra_spec.drafting.text import ReplyText

TARGET = "target"
"""Source of tokens that nobody drafted."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TracedRound:
    """A round, or the pass over the prompt; bytes are those of the scope ``all`` of reports."""

    sources: tuple[str, ...]  # of its emitted tokens
    rounds: int = 0  # verifications so far; 0: the pass over the prompt
    drafted: int = 0
    accepted: int = 0
    read: int = 0  # bytes that the passes of all rounds so far have read
    bf16: int = 0  # bytes that plain decoding in BF16 would have read for the same tokens


@dataclasses.dataclass(kw_only=True)
class Trace(Counters):
    """Counters of one reply that remember its rounds.

    The pass over the prompt comes first, unless a round of speculation has read its last token.
    ``costs`` are those of the backend; without them no bytes are known. ``total`` counts its
    rounds, too.
    """

    costs: Costs | None
    total: Counters | None = None
    traced: list[TracedRound] = dataclasses.field(default_factory=list)

    def add_reply(self, prompt_tokens: int) -> None:
        """Count a reply as :class:`Counters` do, and remember where its first token is from."""
        super().add_reply(prompt_tokens)
        if self.total is not None:
            self.total.add_reply(prompt_tokens)
        self.traced.append(TracedRound(sources=(TARGET,)))

    def add_round(
        self, outcome: Outcome, *, position: int, tokens: int, kv: KeyValueCounters | None = None
    ) -> None:
        """Count a round as :class:`Counters` do, and remember it."""
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
    """The rounds of a trace with the text of each token, as plain objects for JSON."""

    def __init__(self, trace: Trace, tokenizer: Any, stop_strings: Sequence[str] = ()) -> None:
        self.rounds: list[dict[str, Any]] = []
        self._trace = trace
        self._text = ReplyText(tokenizer, stop_strings)

    def add(self, tokens: Sequence[int]) -> None:
        """Take the tokens of the next round.

        The text of a token is what can be shown with it and not before: a character that several
        tokens make is the last one's.
        """
        traced = self._trace.traced[len(self.rounds)]
        body = dataclasses.asdict(traced) | {"tokens": []}
        del body["sources"]
        for token, source in zip(tokens, traced.sources, strict=False):
            self._text.add(token)
            body["tokens"].append({"id": token, "text": self._text.new(), "source": source})
        self.rounds.append(body)

    def end(self) -> None:
        """Give the last token the text that was held back."""
        if self.rounds and (tokens := self.rounds[-1]["tokens"]):
            tokens[-1]["text"] += self._text.new(last=True)
