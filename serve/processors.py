"""Define logits processors of fields that other servers have."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_Logits = NDArray[np.float32]


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecentPenalty:
    """llama-server's ``repeat_penalty``: a penalty for the last tokens of prompt and reply."""

    penalty: float  # divides positive logits of these tokens, multiplies the others
    last: int | None = 64  # number of tokens; None: all

    def begin(self, prompt: Sequence[int]) -> _Recent:
        """Return the state of an empty reply."""
        return _Recent(self, prompt)


class _Recent:
    """The last tokens of a prompt and its reply (:class:`ProcessorState`)."""

    def __init__(self, rule: RecentPenalty, prompt: Sequence[int]) -> None:
        self._by = np.float32(rule.penalty)
        self._tokens = collections.deque(prompt, maxlen=rule.last)

    def apply(self, logits: _Logits) -> None:
        tokens = np.fromiter(set(self._tokens), np.intp)
        repeated = logits[tokens]
        logits[tokens] = np.where(repeated > 0, repeated / self._by, repeated * self._by)

    def advance(self, token: int) -> None:
        self._tokens.append(token)


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoEnd:
    """Forbid the tokens that end a reply: the first ``count`` tokens are others (None: all are)."""

    tokens: frozenset[int]
    count: int | None = None

    def begin(self, prompt: Sequence[int]) -> _Endless:
        """Return the state of an empty reply."""
        return _Endless(self)


class _Endless:
    """The length of a reply so far (:class:`ProcessorState`)."""

    def __init__(self, rule: NoEnd) -> None:
        self._count, self._length = rule.count, 0
        self._tokens = np.array(sorted(rule.tokens), np.intp)

    def apply(self, logits: _Logits) -> None:
        if self._count is None or self._length < self._count:
            logits[self._tokens] = -np.inf

    def advance(self, token: int) -> None:
        self._length += 1
