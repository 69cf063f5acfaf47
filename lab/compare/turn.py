"""One prompt that all contenders on a model answer; what they have in common is computed once."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Sequence
from typing import Any

import torch

from cassandra_spec.bench.answers import Answers
from cassandra_spec.drafting import (
    ADAPTIVE,
    Candidates,
    Counters,
    Drafter,
    Node,
    Settings,
    decode,
)
from cassandra_spec.lab.baselines import NetworkSize
from cassandra_spec.lab.baselines.teacher_forced import accepted_lengths
from cassandra_spec.lab.compare.contenders import Ready
from cassandra_spec.lab.compare.sums import Recorder, Sums
from cassandra_spec.model.packing.packer import open_packed
from cassandra_spec.model.speculative import CassandraForCausalLM, ModelSession


class PromptSession:
    """A session for several replies to one prompt, one after the other
    (:class:`cassandra_spec.drafting.Session`).

    The prompt's logits, keys and values are computed once: no draft changes them. A reply writes
    behind the prompt alone, and the next one overwrites that before it sees it. No stop token is
    among the first ``min_tokens`` tokens of a reply: its logit is the least number there
    (HyperTensor, section 5.5.1).
    """

    def __init__(
        self, lm: CassandraForCausalLM, prompt: Sequence[int], room: int, *, min_tokens: int = 0
    ) -> None:
        self._session = lm.session(len(prompt) + room)
        self._start, self._least = len(prompt), min_tokens
        self._stops = torch.tensor(sorted(lm.stop_tokens()), dtype=torch.int64)
        self._after = self._guarded(self._session.prompt(prompt), [0])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def prompt(self, tokens: Sequence[int]) -> torch.Tensor:
        """Compute the target's logits of the last token of the prompt."""
        return self._after

    def target(self, pending: int, nodes: Sequence[Node], position: int) -> torch.Tensor:
        """Compute the target's logits of a tree."""
        places = [position + 1 - self._start]
        for node in nodes:
            places.append(places[node.parent + 1] + 1)
        return self._guarded(self._session.target(pending, nodes, position), places)

    def _guarded(self, logits: torch.Tensor, places: Sequence[int]) -> torch.Tensor:
        """Mask stop tokens in the logits of early positions of the reply."""
        early = torch.tensor([place < self._least for place in places])
        if not early.any():
            return logits
        guarded = logits.index_fill(1, self._stops, torch.finfo(logits.dtype).min)
        return torch.where(early[:, None], guarded, logits)


def reply_key(lm: CassandraForCausalLM, prompt: Sequence[int], most: int) -> list[object]:
    """Return, as JSON, all that a reply of at most ``most`` tokens depends on."""
    return [open_packed(lm.folder).digest, list(prompt), most, sorted(lm.stop_tokens())]


class Turn:
    """Replies of contenders to one prompt, on one model."""

    def __init__(
        self,
        lm: CassandraForCausalLM,
        prompt: Sequence[int],
        most: int,
        *,
        min_tokens: int,
        answers: Answers,
    ) -> None:
        self._lm, self._prompt, self._most = lm, prompt, most
        self._min_tokens, self._answers = min_tokens, answers

    @functools.cached_property
    def plain(self) -> list[int]:
        """The reply of plain decoding."""
        found: list[int] = self._answers.get(self._key, self._decode_plain)
        return found

    def sums(self, ready: Ready) -> Sums:
        """Return the counts over the reply of a contender."""
        key = [*self._key, ready.contender.key()]
        return Sums.of(self._answers.get(key, lambda: dataclasses.asdict(self._reply(ready))))

    @functools.cached_property
    def _key(self) -> list[object]:
        """Return all that the plain reply depends on."""
        return [*reply_key(self._lm, self._prompt, self._most), self._min_tokens]

    @functools.cached_property
    def _session(self) -> Any:
        return PromptSession(self._lm, self._prompt, self._most, min_tokens=self._min_tokens)

    def _decode_plain(self) -> list[int]:
        settings = self._settings(Settings(gamma=0, max_tokens=self._most))
        rounds = decode(self._session, self._prompt, settings, Counters())
        return list(itertools.chain.from_iterable(rounds))

    def _settings(self, settings: Settings) -> Settings:
        return dataclasses.replace(settings, stop_tokens=self._lm.stop_tokens())

    def _reply(self, ready: Ready) -> Sums:
        sums, recorders = Sums(turns=1, looped=1), list[Recorder]()
        settings = self._settings(ready.contender.settings)

        def make(
            session: ModelSession,
            settings: Settings,
            seed: int,
            table: Candidates | None,
        ) -> Drafter:
            inner = ready.prepared.drafter(session, settings, seed, table)
            recorders.append(Recorder(inner, ready.prepared, sums))
            return recorders[0]

        counters, table = sums.counters, self._lm.table
        rounds = decode(self._session, self._prompt, settings, counters, table=table, make=make)
        tokens = list(itertools.chain.from_iterable(rounds))
        sums.identical = int(tokens == self.plain)
        size = NetworkSize.of(self._lm.network)
        for place in range(len(tokens) - 1):
            sums.plain += size.cost(len(self._prompt) + place, 1)
        if settings.draft == "model" and settings.gamma != ADAPTIVE:
            lengths = accepted_lengths(
                ready.prepared,
                self._prompt,
                tokens,
                gamma=int(settings.gamma),
                max_tokens=settings.max_tokens,
            )
            sums.forced = int(lengths is not None)
            sums.forced_equal = int(lengths == recorders[0].accepted)
        return sums
