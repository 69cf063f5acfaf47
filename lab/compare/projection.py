"""Measure the HyperTensor papers' methods by rank: attention, keys and values, residuals.

All figures come from one teacher-forced pass over known replies, with the network's own keys and
values; rounds of a prefix-only drafter follow from it exactly. Agreement is with the target in a
pass of the same kind. For attention, agreement of a round's first token is measured, too: the draft
predicts it from the target's keys and values.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import torch

from cassandra_spec.bench.study.chains import Sequences
from cassandra_spec.drafting import DraftPass
from cassandra_spec.lab.baselines import clone
from cassandra_spec.lab.baselines.methods.geodesic import Geodesic
from cassandra_spec.lab.baselines.teacher_forced import keys_and_values, predicted_together
from cassandra_spec.lab.compare.known_replies import (
    Chains,
    bundled_texts,
    forced_logits,
    known_replies,
    own_conversations,
    surprise,
)
from cassandra_spec.lab.exits.cost import geometric_tokens, speed_up
from cassandra_spec.lab.geodesic.low_rank import (
    KEY_VALUES,
    Grams,
    by_activations,
    by_weights,
    check_rank,
    gather_grams,
    output_error,
    project,
    projections,
    weight_of,
)
from cassandra_spec.lab.geodesic.residuals import STRENGTH, block_residuals
from cassandra_spec.model.speculative import CassandraForCausalLM
from cassandra_spec.native.codec import NativeCodec
from cassandra_spec.toolkit.tables import text_table

By = Literal["weights", "activations"]

GAMMA = 4  # of the HyperTensor paper
KEY_VALUE_RANKS = (144, 96, 48)
CONTEXTS = (8192, 32768)
BLOCKS = 6
_VALUES = "model.layers.1.self_attn.v_proj"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Forced:
    """A network along known replies."""

    chains: Chains
    perplexity: float  # of the replies, by this network alone: without a verifier


@dataclasses.dataclass(frozen=True, kw_only=True)
class Projected:
    """A draft with attention of one rank."""

    rank: int
    by: By
    forced: Forced
    shared: float  # agreement on the target's keys and values
    closed_form: float  # (1 - a^(gamma + 1)) / (1 - a) at the agreement a
    share: float  # bytes of weights of a draft pass, relative to the target's
    speed_up: float  # of rounds, in bytes of weights
    values_error: float  # share of the second layer's value outputs that is lost


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProjectedCache:
    """Keys and values of one rank."""

    rank: int
    by: By
    forced: Forced
    megabytes: dict[int, float]  # of a cache, by positions


@dataclasses.dataclass(frozen=True, kw_only=True)
class Residuals:
    """Block attention residuals with some queries."""

    queries: str
    strength: float
    forced: Forced


@dataclasses.dataclass(frozen=True, kw_only=True)
class Figures:
    """All of a model."""

    target: Forced
    attention: list[Projected]
    caches: list[ProjectedCache]
    residuals: list[Residuals]


class Bench:
    """A packed model, known replies, and Gram matrices of the calibration text.

    With ``own_text``, they are of as many tokens of the model's conversations with itself.
    """

    def __init__(
        self,
        source: Path,
        ranks: Sequence[int],
        *,
        max_tokens: int,
        threads: int | None,
        own_text: int | None = None,
    ) -> None:
        self._lm = CassandraForCausalLM.from_pretrained(source, codec=NativeCodec())
        for rank in ranks:
            check_rank(rank, self._lm.network)
        texts = bundled_texts("bench")
        replies = known_replies(source, texts, max_tokens=max_tokens, threads=threads)
        self._replies = [each for each in replies if len(each.reply) > 1]
        self._ranks, self._max_tokens = ranks, max_tokens
        self.grams = self._gather(source, own_text, threads)
        self._tails = [(each.tokens[:-1], len(each.reply) - 1) for each in self._replies]
        self._best = [
            forced_logits(self._lm.network, each).argmax(-1).tolist() for each in self._replies
        ]

    def _gather(self, source: Path, own_text: int | None, threads: int | None) -> Grams:
        if own_text is None:
            return Geodesic(by="activations").grams(self._lm) or {}
        talks = own_conversations(source, own_text, threads=threads)
        return gather_grams(self._lm.network, talks)

    def run(self, say: Callable[[str], object] = lambda line: None) -> Figures:
        """Measure all figures."""
        target = self._forced(self._lm.network)
        attention, caches = list[Projected](), list[ProjectedCache]()
        ways: tuple[By, ...] = ("weights", "activations")
        for rank in self._ranks:
            attention += [self._attention(rank, by) for by in ways]
            say(attention_lines(attention[-2:]))
        for rank in KEY_VALUE_RANKS:
            caches += [self._cache(rank, by) for by in ways]
            say(cache_lines(caches[-2:]))
        return Figures(
            target=target, attention=attention, caches=caches, residuals=self._residuals()
        )

    def _forced(self, network: Any) -> Forced:
        right, total = list[list[bool]](), 0.0
        for known, best in zip(self._replies, self._best, strict=True):
            logits = forced_logits(network, known)
            right.append([a == b for a, b in zip(logits.argmax(-1).tolist(), best, strict=True)])
            total += surprise(logits, known.reply[1:])
        return Forced(
            chains=Chains.of(right, GAMMA, self._max_tokens),
            perplexity=math.exp(total / sum(map(len, right))),
        )

    def _attention(self, rank: int, by: By) -> Projected:
        prepared = Geodesic(rank=rank, by=by, own=True).of_grams(self._lm, self.grams)
        draft = prepared.draft_cost(0, DraftPass(0, 1)).weights
        share = draft / prepared.verify_cost(0, 0).weights
        forced = self._forced(prepared.network)
        return Projected(
            rank=rank,
            by=by,
            forced=forced,
            shared=self._shared(prepared.network),
            closed_form=geometric_tokens(forced.chains.agreement, GAMMA),
            share=share,
            speed_up=speed_up(forced.chains.acceptance * GAMMA, GAMMA, share),
            values_error=self._values_error(rank, by),
        )

    @functools.cached_property
    def _target_sequences(self) -> Sequences:
        return keys_and_values(clone(self._lm), self._tails)

    def _shared(self, network: Any) -> float:
        """Agreement with the target where a round begins, whichever token it begins at."""
        said = predicted_together(network, self._tails, target=self._target_sequences)
        pairs = zip(itertools.chain(*said), itertools.chain(*self._best), strict=True)
        return sum(ours == theirs for ours, theirs in pairs) / sum(map(len, self._best))

    def _values_error(self, rank: int, by: By) -> float:
        weight = weight_of(dict(projections(self._lm.network))[_VALUES])
        gram, weights = self.grams[_VALUES], by == "weights"
        factors = by_weights(weight, rank) if weights else by_activations(weight, rank, gram)
        return output_error(weight, factors, gram)

    def _cache(self, rank: int, by: By) -> ProjectedCache:
        grams = self.grams if by == "activations" else None
        network = project(self._lm, rank, grams, only=KEY_VALUES)
        rows = [
            min(rank, *weight_of(layer).shape)
            for name, layer in projections(self._lm.network)
            if name.endswith(KEY_VALUES)
        ]
        return ProjectedCache(
            rank=rank,
            by=by,
            forced=self._forced(network),
            megabytes={length: 2 * sum(rows) * length / 1e6 for length in CONTEXTS},
        )

    def _residuals(self) -> list[Residuals]:
        width = self._lm.network.config.hidden_size
        random = torch.Generator().manual_seed(0)
        drawn = [torch.randn(width, generator=random) for _ in range(BLOCKS - 1)]
        found = []
        for name, queries in (("zero", [0 * each for each in drawn]), ("drawn", drawn)):
            with block_residuals(self._lm.network, queries):
                forced = self._forced(self._lm.network)
            found.append(Residuals(queries=name, strength=STRENGTH, forced=forced))
        return found


def attention_lines(found: Sequence[Projected]) -> str:
    """Format a table of drafts by rank."""
    header = ["rank", "by", "agreement", "per verification", "on the target's", "closed form"]
    header += ["perplexity", "share read", "speed-up", "layer 1 values lost"]
    rows = [
        [
            *_cells(each.rank, each.by, each.forced),
            f"{each.shared:.3f}",
            f"{each.closed_form:.2f}",
            f"{each.forced.perplexity:.2f}",
            f"{each.share:.3f}",
            f"{each.speed_up:.2f}",
            f"{each.values_error:.4f}",
        ]
        for each in found
    ]
    return text_table(header, rows, left=2)


def cache_lines(found: Sequence[ProjectedCache]) -> str:
    """Format a table of keys and values by rank."""
    header = ["rank", "by", "agreement", "per verification", "perplexity"]
    header += [f"MB at {length}" for length in CONTEXTS]
    rows = [
        [
            *_cells(each.rank, each.by, each.forced),
            f"{each.forced.perplexity:.2f}",
            *(f"{size:.0f}" for size in each.megabytes.values()),
        ]
        for each in found
    ]
    return text_table(header, rows, left=2)


def _cells(rank: int, by: str, forced: Forced) -> list[str]:
    chains = forced.chains
    return [f"{rank}", by, f"{chains.agreement:.3f}", f"{chains.per_verification:.2f}"]


def lines(found: Figures) -> str:
    """Format all tables."""
    residuals = [
        [each.queries, f"{each.strength}", f"{each.forced.chains.agreement:.3f}"]
        + [f"{each.forced.perplexity:.2f}"]
        for each in found.residuals
    ]
    parts = [
        f"the target's own perplexity of its replies: {found.target.perplexity:.2f}",
        "attention as a draft",
        attention_lines(found.attention),
        "keys and values",
        cache_lines(found.caches),
        f"block attention residuals, {BLOCKS} blocks",
        text_table(["queries", "strength", "agreement", "perplexity"], residuals),
    ]
    return "\n\n".join(parts)
