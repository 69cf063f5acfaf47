"""Training exits on cached states: distillation of the adapters, then their confidence.

CascadeExit, section 3.2, with the model frozen. The loss of an adapter at a token is

    alpha CE(y, p) + (1 - alpha) T^2 KL(full_T || p_T)

with the next token of the text y, the exit's distribution p, the model's own distribution full, and
both at temperature T in the second term. Both are over a part of the vocabulary in each step: all
tokens that the text has, and others drawn at random.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, kl_div, linear

from cassandra_spec.golden import CassandraError
from cassandra_spec.lab.exits.adapters import BOTTLENECK, HIDDEN, Exits
from cassandra_spec.lab.exits.features import Features
from cassandra_spec.model.output import write_file

_WARMUP = 0.05  # of all steps
_CLIP = 1.0
_PIECE = 512  # tokens of a pass without training
_SAMPLE = 16384  # tokens that confidence is learned on, at most


@dataclasses.dataclass(frozen=True, kw_only=True)
class Training:
    """Settings of the training."""

    layers: tuple[int, ...] = (9, 17, 24)  # before each exit
    epochs: int = 3
    batch: int = 256  # tokens of a step
    rate: float = 2e-3
    bottleneck: int = BOTTLENECK
    hidden: int = HIDDEN
    temperature: float = 2.0
    alpha: float = 0.5
    classes: int = (
        8192  # classes of the vocabulary in a step; those of the text are always included
    )
    precision: float = 0.95  # share of correct tokens at the exits of a cascade
    seed: int = 0

    def __post_init__(self) -> None:
        for field in ("epochs", "batch", "bottleneck", "hidden", "classes"):
            if getattr(self, field) < 1:
                raise CassandraError(f"{field} must be at least 1, not {getattr(self, field)}")
        if not 0 <= self.alpha <= 1:
            raise CassandraError(f"alpha must be from 0 to 1, not {self.alpha}")
        if not 0 < self.precision <= 1:
            raise CassandraError(f"precision must be above 0, to 1, not {self.precision}")


class Trainer:
    """The training of exits; :meth:`restore` resumes from a file of :meth:`keep`."""

    def __init__(self, network: Any, features: Features, training: Training) -> None:
        torch.manual_seed(training.seed)
        width = features.final.shape[-1]
        self.exits = Exits.new(training.layers, width, training.bottleneck, training.hidden)
        self._features, self._training = features, training
        self.norm = network.model.norm
        self.rows = network.lm_head.weight.detach()
        self._common = features.labels.unique()
        heads = list(self.exits.heads.values())
        self._adapters = _adam([p for head in heads for p in head.adapter()], training)
        self._estimators = _adam([p for head in heads for p in head.estimator()], training)
        self.steps = training.epochs * -(-len(features.labels) // training.batch)

    def epoch(self, number: int, update: Callable[[float], object] = lambda loss: None) -> None:
        """Train the adapters for one epoch; ``update`` gets the loss of each step."""
        each = self.steps // self._training.epochs
        for at, (chosen, random) in enumerate(self._batches(number)):
            _set_rate(self._adapters, self._training.rate, number * each + at, self.steps)
            loss = self._distil(chosen, random)
            _step(self._adapters, loss)
            update(loss.item())

    def estimate(self, epochs: int = 8) -> None:
        """Train the confidence estimators on what the adapters get right, on a part of the tokens:
        only there the whole vocabulary is looked at.
        """
        sample = next(self._batches(self._training.epochs, _SAMPLE))[0]
        some = self._features.chosen(sample)
        right = agreement(self.exits, some, self.norm, self.rows)
        steps, at = epochs * -(-len(right) // self._training.batch), 0
        for number in range(epochs):
            order = torch.randperm(len(right), generator=torch.Generator().manual_seed(number))
            for chosen in order.split(self._training.batch):
                states = some.states[chosen]
                said = torch.stack(
                    [head.confidence(states[:, n]) for n, head in enumerate(self._heads())], 1
                )
                _set_rate(self._estimators, self._training.rate, at, steps)
                _step(self._estimators, binary_cross_entropy_with_logits(said, right[chosen]))
                at += 1

    def keep(self, path: Path, epochs: int, seconds: float) -> None:
        """Write what the adapters are after some epochs, whole or not at all."""
        moments = self._adapters.state_dict()["state"]
        state = {f"exits.{name}": value for name, value in self.exits.state().items()}
        for number, of_one in moments.items():
            state |= {f"adam.{number}.{name}": value for name, value in of_one.items()}
        state["done"] = torch.tensor([epochs, seconds], dtype=torch.float64)
        write_file(path, save({name: value.contiguous() for name, value in state.items()}))

    def restore(self, path: Path) -> tuple[int, float]:
        """Restore epochs and seconds from a file; 0 if it is missing or damaged."""
        try:
            state = load_file(path)
        except (OSError, SafetensorError):
            return 0, 0.0
        self.exits.load_state(_below(state, "exits."))
        whole = self._adapters.state_dict()
        whole["state"] = {
            number: _below(state, f"adam.{number}.")
            for number in range(len(whole["param_groups"][0]["params"]))
        }
        self._adapters.load_state_dict(whole)
        epochs, seconds = state["done"].tolist()
        return int(epochs), seconds

    def _heads(self) -> list[Any]:
        return list(self.exits.heads.values())

    def _batches(
        self, number: int, batch: int | None = None
    ) -> Iterator[tuple[torch.Tensor, torch.Generator]]:
        """Yield the tokens of each step of an epoch; they depend on the seed and its number
        alone.
        """
        random = torch.Generator().manual_seed(self._training.seed * 1000 + number)
        order = torch.randperm(len(self._features.labels), generator=random)
        yield from ((chosen, random) for chosen in order.split(batch or self._training.batch))

    def _distil(self, chosen: torch.Tensor, random: torch.Generator) -> torch.Tensor:
        """Return the loss of one step, all exits together."""
        features, training = self._features, self._training
        others = torch.randint(
            len(self.rows), (max(training.classes - len(self._common), 0),), generator=random
        )
        classes = torch.cat([self._common, others]).unique()
        rows = self.rows[classes]
        labels = torch.searchsorted(classes, features.labels[chosen])
        with torch.no_grad():
            full = linear(features.final[chosen], rows).float() / training.temperature
            full = full.log_softmax(-1)
        loss = torch.zeros(())
        for number, head in enumerate(self._heads()):
            adapted = self.norm(head(features.states[chosen, number]))
            logits = linear(adapted.to(rows.dtype), rows).float()
            soft = (logits / training.temperature).log_softmax(-1)
            apart = kl_div(soft, full, reduction="batchmean", log_target=True)
            loss = loss + training.alpha * cross_entropy(logits, labels)
            loss = loss + (1 - training.alpha) * training.temperature**2 * apart
        return loss


@torch.inference_mode()
def agreement(exits: Exits, features: Features, norm: Any, rows: torch.Tensor) -> torch.Tensor:
    """Return whether each exit's best token is the model's, float32 [tokens, exits]."""

    def head(states: torch.Tensor) -> torch.Tensor:
        return linear(states.to(rows.dtype), rows)

    best = torch.cat([head(piece.final).argmax(-1) for piece in features.split(_PIECE)])
    return (best_tokens(exits, features, norm, head) == best[:, None]).float()


@torch.inference_mode()
def best_tokens(exits: Exits, features: Features, norm: Any, head: Any) -> torch.Tensor:
    """Return the best token of each exit, int64 [tokens, exits]; ``head`` computes logits."""
    found = []
    for piece in features.split(_PIECE):
        said = [
            head(norm(each(piece.states[:, n])).to(piece.states.dtype)).argmax(-1)
            for n, each in enumerate(exits.heads.values())
        ]
        found.append(torch.stack(said, 1))
    return torch.cat(found)


@torch.inference_mode()
def confidences(exits: Exits, features: Features) -> torch.Tensor:
    """Return the confidence of each exit as a logit, float32 [tokens, exits]."""
    heads = list(exits.heads.values())
    said = [
        torch.stack([head.confidence(piece.states[:, n]) for n, head in enumerate(heads)], 1)
        for piece in features.split(_PIECE)
    ]
    return torch.cat(said)


def _below(state: Mapping[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    """Return the entries with a prefix, by the rest of their names."""
    return {n.removeprefix(prefix): value for n, value in state.items() if n.startswith(prefix)}


def _adam(parameters: list[torch.nn.Parameter], training: Training) -> torch.optim.AdamW:
    return torch.optim.AdamW(parameters, training.rate, betas=(0.9, 0.95), weight_decay=0.01)


def _set_rate(optimiser: torch.optim.AdamW, rate: float, step: int, steps: int) -> None:
    """Cosine decay behind a linear warm-up."""
    warm = max(int(_WARMUP * steps), 1)
    scale = min((step + 1) / warm, 0.5 * (1 + math.cos(math.pi * step / steps)))
    for group in optimiser.param_groups:
        group["lr"] = rate * scale


def _step(optimiser: torch.optim.AdamW, loss: torch.Tensor) -> None:
    optimiser.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(optimiser.param_groups[0]["params"], _CLIP)
    optimiser.step()
