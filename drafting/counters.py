"""Counters over the rounds of replies, shared by both runtimes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from cassandra_spec.drafting.proposal import COPIES, Outcome


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReadBytes:
    """Bytes read by one pass: by the draft, by the target, and by a BF16 model."""

    draft: int = 0
    target: int = 0
    bf16: int = 0

    def __add__(self, other: ReadBytes) -> ReadBytes:
        return ReadBytes(
            draft=self.draft + other.draft,
            target=self.target + other.target,
            bf16=self.bf16 + other.bf16,
        )


@dataclasses.dataclass(kw_only=True)
class KeyValueCounters:
    """KV cache bytes: read by passes (summed), and stored in memory (summed over replies)."""

    draft: int = 0  # read by draft passes
    target: int = 0  # by verification passes
    plain: int = 0  # by plain decoding of the same tokens and sealed blocks
    bf16: int = 0  # by plain decoding in BF16
    stored: int = 0  # in memory at the end of the replies
    stored_bf16: int = 0  # the same positions in BF16


@dataclasses.dataclass(kw_only=True)
class SourceCounters:
    """Nodes of one draft source, and the rounds that contain any."""

    rounds: int = 0
    drafted: int = 0
    accepted: int = 0


@dataclasses.dataclass(kw_only=True)
class Counters:
    """Sums over the rounds of one or more replies; times in seconds.

    Traffic is computed from the positions and ``kv``. Only the native engine measures times.
    """

    replies: int = 0
    prompt_tokens: int = 0
    rounds: int = 0  # verification passes
    drafts: int = 0  # rounds with drafted tokens
    passes: int = 0  # draft view passes
    drafted: int = 0  # tokens
    accepted: int = 0
    tested: int = 0  # drafted tokens whose predecessors in the round were all accepted
    tokens: int = 0  # emitted by rounds; the first token of a reply comes from its prompt
    sources: dict[str, SourceCounters] = dataclasses.field(default_factory=dict)
    lengths: dict[int, int] = dataclasses.field(default_factory=dict)  # rounds by accepted tokens
    draft_positions: int = 0  # positions that the draft passes attended to, summed
    target_positions: int = 0  # positions that the verification passes attended to, summed
    plain_positions: int = 0  # positions that plain decoding of the same tokens attends to, summed
    kv: KeyValueCounters | None = dataclasses.field(default=None, compare=False)  # if measured
    prompt_seconds: float = 0.0
    draft_seconds: float = 0.0
    verify_seconds: float = 0.0

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> Counters:
        """Build counters from the output of ``dataclasses.asdict``, also after JSON."""
        kv, sources = body["kv"], body["sources"].items()
        parts = {
            "sources": {name: SourceCounters(**each) for name, each in sources},
            "lengths": {int(length): count for length, count in body["lengths"].items()},
            "kv": None if kv is None else KeyValueCounters(**kv),
        }
        return cls(**{**body, **parts})

    @property
    def copies(self) -> SourceCounters:
        """Counts of the nodes copied from the context."""
        return self.sources.get(COPIES, SourceCounters())

    @property
    def decode_seconds(self) -> float:
        """Time of all rounds, without prompt processing."""
        return self.draft_seconds + self.verify_seconds

    def add_reply(self, prompt_tokens: int) -> None:
        """Count a reply whose first token was produced by prompt processing."""
        self.replies += 1
        self.prompt_tokens += prompt_tokens

    def add_prompt_seconds(self, seconds: float) -> None:
        """Count the time of a pass over tokens of a prompt."""
        self.prompt_seconds += seconds

    def add_stored(self, stored: ReadBytes) -> None:
        """Count the memory of a reply's keys and values."""
        self._add_key_values(KeyValueCounters(stored=stored.target, stored_bf16=stored.bf16))

    def add_round(
        self, outcome: Outcome, *, position: int, tokens: int, kv: KeyValueCounters | None = None
    ) -> None:
        """Count a round that began at ``position`` and emitted ``tokens``.

        ``kv`` is the KV cache traffic of the round, if measured.
        """
        self.rounds += 1
        self.drafts += outcome.drafted > 0
        self.passes += outcome.passes
        self.drafted += outcome.drafted
        self.accepted += outcome.accepted
        self.tokens += tokens
        self.lengths[outcome.accepted] = self.lengths.get(outcome.accepted, 0) + 1
        self.draft_positions += sum(
            position + each.start + each.rows for each in outcome.proposal.passes
        )
        self.target_positions += position + outcome.drafted + 1
        self.plain_positions += sum(range(position + 1, position + 1 + tokens))
        self.draft_seconds += outcome.draft_seconds
        self.verify_seconds += outcome.verify_seconds
        for name, count in outcome.counts().items():
            self.tested += count.tested
            source = self.sources.setdefault(name, SourceCounters())
            source.rounds += 1
            source.drafted += count.drafted
            source.accepted += count.accepted
        self._add_key_values(kv)

    def add(self, other: Counters) -> None:
        """Add the counts of ``other``."""
        _add_numbers(self, other)
        for length, count in other.lengths.items():
            self.lengths[length] = self.lengths.get(length, 0) + count
        for name, source in other.sources.items():
            _add_numbers(self.sources.setdefault(name, SourceCounters()), source)
        self._add_key_values(other.kv)

    def _add_key_values(self, kv: KeyValueCounters | None) -> None:
        if kv is not None:
            self.kv = self.kv or KeyValueCounters()
            _add_numbers(self.kv, kv)

    def key_values(self, position: int) -> KeyValueCounters:
        """Return KV cache bytes, measured ones or else ``position`` bytes for each position."""
        if self.kv is not None:
            return self.kv
        return KeyValueCounters(
            draft=self.draft_positions * position,
            target=self.target_positions * position,
            plain=self.plain_positions * position,
            bf16=self.plain_positions * position,
        )


def _add_numbers(total: object, other: object) -> None:
    """Add the numeric fields of ``other`` to those of ``total``, an object of the same class."""
    for name, value in vars(other).items():
        if isinstance(value, int | float):
            setattr(total, name, getattr(total, name) + value)
