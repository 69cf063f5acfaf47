"""A closed-form probe beside the trained adapters: ridge regression from a state to the last one.

With X the states behind a layer in units of their root mean square and a column of ones, and F what
the head gets, the probe is (X^T X + lambda n I)^-1 X^T F, and its logits are head(X probe).
"""

from __future__ import annotations

import torch
from torch.nn.functional import linear

from cassandra_spec.lab.exits.adapters import unit
from cassandra_spec.lab.exits.features import Features

PENALTIES = (1e-5, 1e-3, 1e-1)
"""Candidate penalties; the best on the held-out tokens is used."""

_PIECE = 512  # tokens


def fit(features: Features, exit_number: int, penalty: float) -> torch.Tensor:
    """Fit the probe of one exit, float32 [width + 1, width]."""
    x = _inputs(features.states[:, exit_number])
    gram = x.T @ x + penalty * len(x) * torch.eye(x.shape[1])
    return torch.linalg.solve(gram, x.T @ features.final.float())


def agreement(
    probe: torch.Tensor, features: Features, exit_number: int, rows: torch.Tensor
) -> float:
    """Return the share of tokens at which probe and model agree; ``rows`` is the head."""
    right = 0
    for piece in features.split(_PIECE):
        guess = linear((_inputs(piece.states[:, exit_number]) @ probe).to(rows.dtype), rows)
        best = linear(piece.final, rows)
        right += int((guess.argmax(-1) == best.argmax(-1)).sum())
    return right / len(features)


def best_agreement(
    train: Features, held_out: Features, exit_number: int, rows: torch.Tensor
) -> float:
    """Return the agreement of the best probe of one exit on held-out tokens."""
    return max(
        agreement(fit(train, exit_number, penalty), held_out, exit_number, rows)
        for penalty in PENALTIES
    )


def _inputs(states: torch.Tensor) -> torch.Tensor:
    x = unit(states)
    return torch.cat([x, torch.ones(len(x), 1)], 1)
