"""Exits of a model on known replies: agreement, rounds, confidence, and the lossy cascade.

An exit behind the target's own layers sees what the target sees, so one teacher-forced pass has all
that any round would draft. Confidence is scaled, and thresholds are chosen, on the development
prompts.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from cassandra_spec.drafting import DraftPass
from cassandra_spec.lab.baselines.methods.exits import EarlyExit
from cassandra_spec.lab.compare.known_replies import (
    Chains,
    KnownReply,
    bundled_texts,
    distinct_share,
    forced_logits,
    known_replies,
    surprise,
)
from cassandra_spec.lab.exits import Exits
from cassandra_spec.lab.exits.calibration import (
    Bin,
    calibration_error,
    cascade_thresholds,
    fit_scale,
    reliability,
)
from cassandra_spec.lab.exits.cascade import generate
from cassandra_spec.lab.exits.cost import speed_up
from cassandra_spec.lab.exits.features import Features, features_of
from cassandra_spec.lab.exits.run import open_exits
from cassandra_spec.lab.exits.training import best_tokens, confidences
from cassandra_spec.model.speculative import CassandraForCausalLM
from cassandra_spec.native.codec import NativeCodec
from cassandra_spec.toolkit.tables import text_table

PRECISION = 0.95
LENGTHS = (3, 5, 7)
_FREE_TOKENS = 64  # length limit of a reply without a verifier


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExitFigures:
    """One exit as a drafter."""

    layer: int
    depth: float  # e / L
    share: float  # bytes of weights of a draft pass, relative to the target's
    chains: dict[int, Chains]  # by drafted tokens
    speed_up: float  # at the first length, in bytes of weights
    reliability: list[Bin]  # with the scale of the development prompts
    calibration_error: float
    own_error: float  # with the scale of the file: of held-out conversations of the model's own


@dataclasses.dataclass(frozen=True, kw_only=True)
class CascadeFigures:
    """The lossy cascade with thresholds chosen in one way."""

    chosen: str
    thresholds: dict[int, float]
    left: dict[int, float]  # share of tokens by layers that they ran through
    precision: float  # share of tokens that are the model's, along its own replies
    perplexity: float  # of free replies, by the model itself
    distinct: float  # share of four-grams of free replies that occur once in their reply
    sample: str  # the first free reply


@dataclasses.dataclass(frozen=True, kw_only=True)
class Figures:
    """All of an exits file."""

    exits: list[ExitFigures]
    cascades: list[CascadeFigures]


class Bench:
    """A packed model with its exits, and known replies."""

    def __init__(self, source: Path, file: Path, *, max_tokens: int, threads: int | None) -> None:
        self._exits = open_exits(file, source)
        self._source, self._file, self._max_tokens = source, file, max_tokens
        self._lm = CassandraForCausalLM.from_pretrained(source, codec=NativeCodec())
        reply = functools.partial(known_replies, source, max_tokens=max_tokens, threads=threads)
        self._known, other = reply(bundled_texts("bench")), reply(bundled_texts("development"))
        self._seen, self._chosen = self._features(self._known), self._features(other)

    def run(self, free: int, say: Callable[[str], object] = lambda line: None) -> Figures:
        """Measure all figures; ``free`` is the number of replies without a verifier."""
        joined = Features.joined(self._seen)
        own, right = confidences(self._exits, joined).sigmoid(), self._right(joined)
        self._scale()
        said = confidences(self._exits, joined).sigmoid()
        exits = [
            self._exit(number, layer, (own[:, number], said[:, number]), right[:, number])
            for number, layer in enumerate(self._exits.layers)
        ]
        say(exit_lines(exits))
        cascades = [self._plain(free)]
        for chosen, precision in (("largest F1", None), (f"precision {PRECISION}", PRECISION)):
            cascades.append(self._cascade(chosen, precision, said, right, free))
            say(cascade_lines(cascades[-1:]))
        return Figures(exits=exits, cascades=cascades)

    def _features(self, replies: Sequence[KnownReply]) -> list[Features]:
        return [
            features_of(self._lm.network, each.tokens, self._exits.layers, len(each.prompt))
            for each in replies
            if len(each.reply) > 1
        ]

    def _right(self, features: Features) -> torch.Tensor:
        """Return whether each exit's best token is that of the reply, bool [tokens, exits]."""
        network = self._lm.network
        found = best_tokens(self._exits, features, network.model.norm, network.lm_head)
        return found == features.labels[:, None]

    def _scale(self) -> None:
        """Scale confidences on the development prompts."""
        joined = Features.joined(self._chosen)
        said, right = confidences(self._exits, joined), self._right(joined)
        for number, head in enumerate(self._exits.heads.values()):
            head.scale(*fit_scale(said[:, number], right[:, number]))

    def _exit(
        self, number: int, layer: int, said: tuple[torch.Tensor, torch.Tensor], right: torch.Tensor
    ) -> ExitFigures:
        pieces = [each.tolist() for each in right.split([len(f) for f in self._seen])]
        chains = {k: Chains.of(pieces, k, self._max_tokens) for k in LENGTHS}
        prepared = EarlyExit(file=self._file, layer=layer).prepare(self._lm)
        draft = prepared.draft_cost(0, DraftPass(0, 1)).weights
        share = draft / prepared.verify_cost(0, 0).weights
        own, bins = (reliability(each, right) for each in said)
        first = LENGTHS[0]
        return ExitFigures(
            layer=layer,
            depth=layer / len(self._lm.network.model.layers),
            share=share,
            chains=chains,
            speed_up=speed_up(chains[first].acceptance * first, first, share),
            reliability=bins,
            calibration_error=calibration_error(bins),
            own_error=calibration_error(own),
        )

    def _cascade(
        self, chosen: str, precision: float | None, said: Any, right: Any, free: int
    ) -> CascadeFigures:
        joined = Features.joined(self._chosen)
        sure = confidences(self._exits, joined).sigmoid()
        thresholds = cascade_thresholds(
            dict(zip(self._exits.layers, sure.T, strict=True)),
            dict(zip(self._exits.layers, self._right(joined).T, strict=True)),
            precision,
        )
        left, good = _routed(self._exits, thresholds, said, right)
        return self._free(chosen, thresholds, left, good, free)

    def _plain(self, free: int) -> CascadeFigures:
        layers = len(self._lm.network.model.layers)
        never = dict.fromkeys(self._exits.layers, 1.0)
        return self._free("no exit", never, {layers: 1.0}, 1.0, free)

    def _free(
        self,
        chosen: str,
        thresholds: Mapping[int, float],
        left: dict[int, float],
        precision: float,
        free: int,
    ) -> CascadeFigures:
        """Generate replies without a verifier, and score them with the model."""
        total, places, texts, distinct = 0.0, 0, list[list[int]](), list[float]()
        for known in self._known[:free]:
            made = generate(
                self._lm,
                self._exits,
                known.prompt,
                max_tokens=_FREE_TOKENS,
                stop_tokens=self._lm.stop_tokens(),
                thresholds=thresholds,
            )
            texts.append([token for token, _ in made])
            spoken = KnownReply(prompt=known.prompt, reply=texts[-1])
            total += surprise(forced_logits(self._lm.network, spoken), texts[-1][1:])
            places += len(texts[-1]) - 1
            distinct.append(distinct_share(texts[-1]))
        return CascadeFigures(
            chosen=chosen,
            thresholds=dict(thresholds),
            left=left,
            precision=precision,
            perplexity=math.exp(total / max(places, 1)),
            distinct=sum(distinct) / max(len(distinct), 1),
            sample=self._lm.tokenizer.decode(texts[0]) if texts else "",
        )


def _routed(
    exits: Exits, thresholds: Mapping[int, float], said: torch.Tensor, right: torch.Tensor
) -> tuple[dict[int, float], float]:
    """Return the share of tokens that leave at each exit (0: none), and the accuracy."""
    stay, good, left = torch.ones(len(said), dtype=torch.bool), 0, dict[int, float]()
    for number, layer in enumerate(exits.layers):
        out = stay & (said[:, number] >= thresholds[layer])
        left[layer], good = float(out.float().mean()), good + int(right[out, number].sum())
        stay &= ~out
    left[0] = float(stay.float().mean())
    return left, (good + int(stay.sum())) / len(said)


def exit_lines(found: Sequence[ExitFigures]) -> str:
    """Format a table of exits as drafters."""
    lengths = [f"per verification, K={k}" for k in LENGTHS]
    rates = [f"accepted/K, K={LENGTHS[0]}"]
    header = [
        "layer",
        "e/L",
        "share read",
        "agreement",
        *lengths,
        *rates,
        "speed-up",
        "ECE",
        "ECE as trained",
    ]
    first = LENGTHS[0]
    rows = [
        [
            f"{each.layer}",
            f"{each.depth:.2f}",
            f"{each.share:.3f}",
            f"{each.chains[first].agreement:.3f}",
            *(f"{each.chains[k].per_verification:.2f}" for k in LENGTHS),
            f"{each.chains[first].acceptance:.3f}",
            f"{each.speed_up:.2f}",
            f"{each.calibration_error:.3f}",
            f"{each.own_error:.3f}",
        ]
        for each in found
    ]
    return text_table(header, rows)


def cascade_lines(found: Sequence[CascadeFigures]) -> str:
    """Format a table of cascades, with the beginning of each one's first reply."""
    header = ["thresholds", "values", "left at (share)", "right", "perplexity", "distinct"]
    rows = [
        [
            each.chosen,
            " ".join(f"{value:.2f}" for value in each.thresholds.values()),
            " ".join(f"{layer or 'end'}: {share:.2f}" for layer, share in each.left.items()),
            f"{each.precision:.3f}",
            f"{each.perplexity:.1f}",
            f"{each.distinct:.2f}",
        ]
        for each in found
    ]
    samples = [f"{each.chosen}: {' '.join(each.sample.split())[:200]}" for each in found]
    return "\n".join(itertools.chain([text_table(header, rows, left=3), ""], samples))


def draw(found: Sequence[ExitFigures], *, title: str) -> bytes:
    """Draw reliability as an SVG: precision against confidence, one curve per exit."""
    from matplotlib.figure import Figure as Plot

    from cassandra_spec.toolkit.plots import described_svg

    plot = Plot(figsize=(5, 4), layout="constrained")
    axes = plot.add_subplot()
    axes.plot([0, 1], [0, 1], "--", color="grey", label="as sure as right")
    for each in found:
        points = [(bin.confidence, bin.precision) for bin in each.reliability]
        axes.plot(*zip(*points, strict=True), "o-", label=f"layer {each.layer}")
    axes.set(title=title, xlabel="confidence", ylabel="share of tokens that are the model's")
    axes.legend()
    text = "; ".join(f"layer {e.layer}: calibration error {e.calibration_error:.3f}" for e in found)
    return described_svg(plot, title=title, text=f"Precision against confidence. {text}.")
