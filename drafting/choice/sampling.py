"""Token sampling: filters, the choice by noise, and the paper's acceptance rule.

A token is chosen by noise that belongs to its place (:mod:`.noise`): of the tokens that the filters
allow, the one with the largest logit plus temperature times noise. Such a token is distributed as
the target says (the Gumbel-max trick), and depends on the target's row, the seed and the position
alone. So a drafted token is accepted if it is the chosen one, as in greedy decoding, and a sampled
reply is the same for any draft (docs/software/lossless.md).

:func:`verify` is the paper's rule (section II.B), for chains: p is the target's distribution, q the
draft's, gamma the number of drafted tokens, n the number of accepted ones, r_i uniform in [0, 1).
"""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cassandra_spec.drafting.choice.noise import gumbel
from cassandra_spec.drafting.settings import Sampling
from cassandra_spec.golden import CassandraError

Probabilities = NDArray[np.float64]


def probabilities(logits: ArrayLike, sampling: Sampling) -> Probabilities:
    """Return float64 [rows, vocabulary] from float32 logits of that shape; each row sums to 1.

    Among equal logits the smaller token ranks higher. Raises :class:`CassandraError` if a logit
    is NaN or infinite.
    """
    values = require_finite(logits)
    return np.stack([distribution(row, sampling) for row in values])


def require_finite(logits: ArrayLike) -> NDArray[Any]:
    """Return logits as an array. Raises :class:`CassandraError` if one is NaN or infinite."""
    values = np.asarray(logits)
    if not np.isfinite(values).all():
        raise CassandraError("logits must be finite, not NaN or infinite: check the weights")
    return values


def distribution(logits: NDArray[Any], sampling: Sampling) -> Probabilities:
    """Return the probabilities of one row of logits, float64 [vocabulary].

    A token whose logit is -inf has probability 0.
    """
    if sampling.temperature == 0:
        chosen = np.zeros(logits.shape)
        chosen[logits.argmax()] = 1.0
        return chosen
    return _scaled(np.asarray(logits, np.float64) / sampling.temperature, sampling)


def _scaled(logits: Probabilities, sampling: Sampling) -> Probabilities:
    """Apply top-k, then top-p, then min-p to the scaled logits of one position."""
    if not sampling.filters:
        every = np.exp(logits - logits.max())
        return np.asarray(every / every.sum())
    order = np.argsort(-logits, kind="stable")[: sampling.top_k]
    likely = np.exp(logits[order] - logits[order[0]])
    likely /= likely.sum()
    if sampling.top_p is not None:
        before = np.cumsum(likely) - likely  # probability of all higher-ranked tokens
        likely[before >= sampling.top_p] = 0
        likely /= likely.sum()
    if sampling.min_p:
        likely[likely < sampling.min_p * likely[0]] = 0
        likely /= likely.sum()
    distribution = np.zeros(logits.shape)
    distribution[order] = likely
    return distribution


@dataclasses.dataclass(frozen=True)
class Pick:
    """The token chosen from a row, and the second-best one."""

    token: int
    second: int  # -1: no other token is allowed
    margin: float  # noisy logit of the first less that of the second


Picker = Callable[[NDArray[np.float32], Sampling, int, int], Pick]
"""Chooses from a row of logits with a sampling, a seed and the position of the token."""


def pick(logits: NDArray[np.float32], sampling: Sampling, seed: int, position: int) -> Pick:
    """Return the choice from a row of logits [vocabulary]; among equals the smaller token.

    ``position`` is that of the token in its sequence. A token whose logit is -inf is not allowed.
    """
    scores, scale = logits.astype(np.float64), 1.0
    if sampling.temperature:
        scale = max(sampling.temperature, 1.0)
        noise = gumbel(seed, position, len(logits)) * min(sampling.temperature, 1.0)
        scores = scores * (1 / scale) + noise
        if sampling.filters:
            scores[distribution(logits, sampling) == 0] = -np.inf
    token = int(scores.argmax())
    best, scores[token] = scores[token], -np.inf
    second = int(scores.argmax())
    if scores[second] == -np.inf:
        return Pick(token, -1, np.inf)
    return Pick(token, second, float((best - scores[second]) * scale))


def seed_of(seed: int | None) -> int:
    """Return a seed, or a new one for None."""
    return secrets.randbits(64) if seed is None else seed


def top_tokens(logits: NDArray[np.float32], count: int) -> list[int]:
    """Return the ``count`` top tokens by logits [vocabulary]; among equals the smaller first."""
    count = min(count, len(logits))
    least = np.partition(logits, -count)[-count]
    candidates = np.flatnonzero(logits >= least)
    order = np.argsort(-logits[candidates], kind="stable")[:count]
    top: list[int] = candidates[order].tolist()
    return top


def draw(distribution: Probabilities, random: np.random.Generator) -> int:
    """Draw a token from a distribution, float64 [vocabulary], which need not sum to exactly 1."""
    sums = np.cumsum(distribution)
    return int(np.searchsorted(sums, random.random() * sums[-1], side="right"))


def verify(
    p: Iterable[Probabilities],
    q: Probabilities,
    drafted: Sequence[int],
    random: np.random.Generator,
) -> tuple[int, int]:
    """Apply Eq. 1; return the number of accepted tokens and the token to emit after them.

    ``p`` has gamma + 1 rows [vocabulary]; row i is read only after the tokens before it are
    accepted. ``q`` is [gamma, vocabulary]. Row i of both is the distribution of drafted token i;
    the last row of p is that of the bonus token. A drafted token must have been drawn from its row
    of q. The token after the accepted ones is drawn from the residual distribution, max(p - q, 0)
    scaled to 1, or from the last row of p if all are accepted. All emitted tokens are then
    distributed as p.
    """
    rows = iter(p)
    for n, token in enumerate(drafted):
        row = next(rows)
        if random.random() * q[n, token] >= row[token]:  # r_i > p_i(x) / q_i(x), without dividing
            residual = np.maximum(row - q[n], 0)
            return n, draw(residual if residual.any() else row, random)  # p equals q up to rounding
    return len(drafted), draw(next(rows), random)
