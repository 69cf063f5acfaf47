"""Token sampling: distributions from logits, and the acceptance rule of speculative decoding.

Names as in the paper (section II.B): p is the target's distribution, q the draft's, gamma the
number of drafted tokens, n the number of accepted ones, r_i uniform in [0, 1). Further terms:

* accepted: a drafted token that is emitted;
* recovered: the token emitted in place of the first rejected one;
* bonus: the token emitted after gamma accepted ones, from the last row of p.

Greedy decoding is the case of distributions with one token each: p/q is then 1 where the draft
agrees and 0 elsewhere, so Eq. 1 accepts the longest prefix that agrees, and the recovered token is
p's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

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
    if sampling.top_k is None and sampling.top_p is None and not sampling.min_p:
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


def top_tokens(logits: NDArray[np.float32], count: int) -> list[int]:
    """Return the ``count`` top tokens by logits [vocabulary]; among equals the smaller first."""
    count = min(count, len(logits))
    least = np.partition(logits, -count)[-count]
    some = np.flatnonzero(logits >= least)
    order = np.argsort(-logits[some], kind="stable")[:count]
    found: list[int] = some[order].tolist()
    return found


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
