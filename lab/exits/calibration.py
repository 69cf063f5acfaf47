"""Confidence of exits: calibration, what it is worth, and thresholds for a cascade.

Everything is computed from the confidence [tokens] of an exit, a probability, and whether its best
token was the model's, bool [tokens], on prompts that trained nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import torch
from torch.nn.functional import binary_cross_entropy_with_logits

_STEPS = 50  # of Newton's method in two dimensions, which needs about ten


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bin:
    """Tokens of similar confidence."""

    confidence: float  # mean
    precision: float  # share that was right
    tokens: int


def fit_scale(logits: torch.Tensor, right: torch.Tensor) -> tuple[float, float]:
    """Fit slope and offset of logits by maximum likelihood (Platt scaling)."""
    parameters = torch.tensor([1.0, 0.0], dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS([parameters], max_iter=_STEPS, line_search_fn="strong_wolfe")
    x, y = logits.double(), right.double()

    def loss() -> torch.Tensor:
        optimiser.zero_grad()
        found = binary_cross_entropy_with_logits(parameters[0] * x + parameters[1], y)
        found.backward()
        return found

    optimiser.step(loss)
    slope, offset = parameters.detach().tolist()
    return slope, offset


def reliability(confidence: torch.Tensor, right: torch.Tensor, bins: int = 10) -> list[Bin]:
    """Return the non-empty bins of equal width, the least confident first."""
    place = (confidence * bins).long().clamp(0, bins - 1)
    found = []
    for number in place.unique().tolist():
        some = place == number
        found.append(
            Bin(
                confidence=confidence[some].mean().item(),
                precision=right[some].float().mean().item(),
                tokens=int(some.sum()),
            )
        )
    return found


def calibration_error(bins: list[Bin]) -> float:
    """Return the expected calibration error (ECE): |confidence - precision|, mean over tokens."""
    total = sum(each.tokens for each in bins)
    return sum(abs(each.confidence - each.precision) * each.tokens for each in bins) / total


def precision_threshold(confidence: torch.Tensor, right: torch.Tensor, precision: float) -> float:
    """Return the smallest threshold with the required precision, or 1."""
    order = confidence.argsort(descending=True, stable=True)
    ranked = confidence[order]
    shares = right[order].double().cumsum(0) / torch.arange(1, len(ranked) + 1)
    last = torch.cat([ranked[1:] < ranked[:-1], torch.ones(min(len(ranked), 1), dtype=torch.bool)])
    good = ranked[last & (shares >= precision)]
    return good.min().item() if len(good) else 1.0


def f1_threshold(confidence: torch.Tensor, right: torch.Tensor) -> float:
    """Return the threshold with the largest F1, as in the CascadeExit paper (section 3.2)."""
    order = confidence.argsort(descending=True, stable=True)
    hits = right[order].double().cumsum(0)
    scores = 2 * hits / (torch.arange(1, len(order) + 1) + right.sum())
    return confidence[order[scores.argmax()]].item()


def cascade_thresholds(
    confidence: Mapping[int, torch.Tensor],
    right: Mapping[int, torch.Tensor],
    precision: float | None,
) -> dict[int, float]:
    """Choose a threshold for each exit, shallowest first, on the tokens that reach it.

    ``precision`` is that of the tokens that leave there; None: the largest F1.
    """
    found: dict[int, float] = {}
    reach = torch.ones_like(next(iter(right.values())), dtype=torch.bool)
    for layer, said in confidence.items():
        some, good = said[reach], right[layer][reach]
        found[layer] = (
            f1_threshold(some, good)
            if precision is None
            else precision_threshold(some, good, precision)
        )
        reach = reach & (said < found[layer])
    return found
