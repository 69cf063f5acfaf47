"""Transformers' logits processors in replies, and the scores that they leave."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers import GenerationConfig, LogitsProcessorList

from cassandra_spec.drafting import Processor, ProcessorState, Sampling
from cassandra_spec.drafting.choice.processors import Logits
from cassandra_spec.golden import CassandraError

PROCESSED = (
    *("sequence_bias", "repetition_penalty", "no_repeat_ngram_size", "bad_words_ids"),
    *("min_length", "min_new_tokens", "suppress_tokens", "begin_suppress_tokens"),
)
"""Entries of a generation config that transformers turns into logits processors."""

AllowedTokens = Callable[[int, torch.Tensor], list[int]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Processing:
    """The processors of the logits of all replies of a call, and the kept rows."""

    entries: dict[str, Any]  # entries of :data:`PROCESSED`, by name
    stops: tuple[int, ...]  # tokens that end a reply
    sampling: Sampling
    custom: Sequence[Any] = ()  # logits processors of the caller
    allowed: AllowedTokens | None = None  # prefix_allowed_tokens_fn
    records: bool = False  # keep logits and scores

    def of_row(self, network: Any, row: int, ids: torch.Tensor, padding: int) -> RowProcessor:
        """Return the processor of one reply; its padded prompt is ``ids`` [width]."""
        allowed = self.allowed
        made = {
            "input_ids_seq_length": len(ids),
            "prefix_allowed_tokens_fn": allowed and (lambda _, seen: allowed(row, seen)),
            "logits_processor": LogitsProcessorList(self.custom),
            "device": "cpu",
            "model_kwargs": {"attention_mask": (torch.arange(len(ids)) >= padding)[None]},
        }
        plain, warped = (
            network._get_logits_processor(config, **made) for config in self._configs()
        )
        return RowProcessor(
            ids=ids,
            processors=plain,
            warpers=LogitsProcessorList(warped[len(plain) :]),
            recorded=Recorded() if self.records else None,
        )

    def _configs(self) -> tuple[GenerationConfig, GenerationConfig]:
        """Return two configs: without sampling, and with it."""
        greedy = self.sampling.temperature == 0
        sampling = {
            "temperature": self.sampling.temperature,
            "top_k": self.sampling.top_k or 0,
            "top_p": self.sampling.top_p or 1.0,
        }
        config: Any = GenerationConfig(**self.entries, **({} if greedy else sampling))
        config._eos_token_tensor = torch.tensor(self.stops) if self.stops else None
        config.num_beams = 1
        config.do_sample = False
        drawn = copy.copy(config)
        drawn.do_sample = not greedy
        return config, drawn


@dataclasses.dataclass
class Recorded:
    """Rows of one reply by token, float32 [vocabulary]."""

    logits: list[torch.Tensor] = dataclasses.field(default_factory=list)
    scores: list[torch.Tensor] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class RowProcessor:
    """Transformers' processors on one reply (:class:`cassandra_spec.drafting.Processor`)."""

    ids: torch.Tensor  # prompt with its padding, int64 [width]
    processors: LogitsProcessorList
    warpers: LogitsProcessorList  # applied to the scores by sampling
    recorded: Recorded | None

    def begin(self, prompt: Sequence[int]) -> ProcessorState:
        """Return the state of a reply without tokens."""
        return _RowState(self)

    @property
    def in_settings(self) -> tuple[Processor, ...]:
        """Return the processors for :class:`Settings`, without those that have no effect."""
        return (self,) if self.processors or self.recorded is not None else ()


class _RowState:
    """The tokens so far (:class:`cassandra_spec.drafting.ProcessorState`)."""

    def __init__(self, row: RowProcessor) -> None:
        self._row, self._ids = row, row.ids[None]

    def apply(self, logits: Logits) -> None:
        row, raw = self._row, torch.from_numpy(logits)[None].clone()
        processed: Any = row.processors(self._ids, raw.clone())  # type: ignore[arg-type]
        if processed.shape != raw.shape:
            raise CassandraError(
                f"logits_processor must give scores {list(raw.shape)}, not {list(processed.shape)}"
            )
        if row.recorded is not None:
            row.recorded.logits.append(raw[0])
            scores: Any = row.warpers(self._ids, processed.clone())  # type: ignore[arg-type]
            row.recorded.scores.append(scores[0])
        logits[:] = processed[0].float().numpy()

    def advance(self, token: int) -> None:
        self._ids = torch.cat([self._ids, torch.tensor([[token]])], dim=1)


def stacked(rows: Sequence[Sequence[torch.Tensor]], pad: int | None) -> tuple[torch.Tensor, ...]:
    """Stack rows of replies by token: float32 [replies, vocabulary] for each.

    A reply that has ended has only its padding, for certain: 0 for that token, -inf for the others.
    """
    over = torch.full_like(rows[0][0], -torch.inf)
    if pad is not None:
        over[pad] = 0
    return tuple(
        torch.stack([row[at] if at < len(row) else over for row in rows])
        for at in range(max(map(len, rows)))
    )
