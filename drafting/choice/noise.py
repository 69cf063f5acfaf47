"""Gumbel noise that belongs to a place: a function of seed, position and token alone.

The words come from Philox4x32-10 (Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3,
2011), which turns a counter and a key into four words of 32 bits. The key is the seed. Tokens are
numbered in blocks of 64: block b has the counters (16 b + lane, position, 0, 0), lane 0 to 15, and
word w of a counter belongs to token 64 b + 16 w + lane. The native engine computes the same noise
(native/src/engine/noise.h).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint32]

_ROUNDS = 10
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_LANES, _WORDS = 16, 4
_MASK = 0xFFFFFFFF


def philox(counters: Words, key: tuple[int, int]) -> Words:
    """Return four random words for each counter; both are uint32 [..., 4]."""
    c0, c1, c2, c3 = (counters[..., at].astype(np.uint64) for at in range(_WORDS))
    (k0, k1), half = key, np.uint64(32)
    for _ in range(_ROUNDS):
        one, two = c0 * np.uint64(_MULTIPLIERS[0]), c2 * np.uint64(_MULTIPLIERS[1])
        c0, c2 = (two >> half) ^ c1 ^ np.uint64(k0), (one >> half) ^ c3 ^ np.uint64(k1)
        c1, c3 = two & np.uint64(_MASK), one & np.uint64(_MASK)
        k0, k1 = (k0 + _WEYL[0]) & _MASK, (k1 + _WEYL[1]) & _MASK
    return np.stack([c0, c1, c2, c3], axis=-1).astype(np.uint32)


def words(seed: int, position: int, count: int) -> Words:
    """Return the random words of tokens 0 to ``count`` - 1 at a position, uint32 [count].

    ``seed`` is taken modulo 2^64.
    """
    blocks = -(-count // (_LANES * _WORDS))
    counters = np.zeros((blocks * _LANES, _WORDS), np.uint32)
    counters[:, 0] = np.arange(len(counters))
    counters[:, 1] = position
    found = philox(counters, (seed & _MASK, seed >> 32 & _MASK))
    return found.reshape(blocks, _LANES, _WORDS).transpose(0, 2, 1).reshape(-1)[:count]


def gumbel(seed: int, position: int, count: int) -> NDArray[np.float64]:
    """Return the noise of tokens 0 to ``count`` - 1 at a position, float64 [count].

    It is -log(-log(u)) with u = (word + 1/2) / 2^32, so it lies between -3.2 and 22.9.
    """
    u = (words(seed, position, count) + 0.5) * 2.0**-32
    return np.asarray(-np.log(-np.log(u)))
