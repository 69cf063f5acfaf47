"""Logits processors: change the target's logits before a token is chosen.

The draft does not use them. Verification applies them to the target's rows along the accepted path,
so the reply equals that of plain decoding for any draft
(:class:`cassandra_spec.drafting.Chooser`).
"""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.golden import CassandraError

Logits = NDArray[np.float32]


class ProcessorState(Protocol):
    """State of a processor along one reply."""

    def apply(self, logits: Logits) -> None:
        """Change the next token's row of logits [vocabulary] in place.

        Logits of the target are finite; set -inf to forbid a token. At least one token must stay
        possible.
        """

    def advance(self, token: int) -> None:
        """Consume the next token of the reply. Stop tokens are not passed, because they end it."""


class Processor(Protocol):
    """Change the target's logits of replies (``Settings.processors``).

    An object is immutable and serves any number of replies at once.
    """

    def begin(self, prompt: Sequence[int]) -> ProcessorState:
        """Return the state before the first token of the reply to ``prompt``."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Penalties:
    """Penalties for repeated tokens: all three count the reply, repetition also the prompt."""

    repetition: float = 1.0  # divides logits of earlier tokens; multiplies negative ones
    frequency: float = 0.0  # subtracted once per occurrence of the token
    presence: float = 0.0  # subtracted once if the token occurred

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if not math.isfinite(value):
                raise CassandraError(f"{field.name} must be a finite number, not {value}")
        if self.repetition <= 0:
            raise CassandraError(f"repetition must be above 0, not {self.repetition}")

    def begin(self, prompt: Sequence[int]) -> ProcessorState:
        """Return the state of an empty reply."""
        return _Counted(self, prompt)


class _Counted:
    """Occurrences of each token so far (:class:`ProcessorState`)."""

    def __init__(self, penalties: Penalties, prompt: Sequence[int]) -> None:
        self._penalties = penalties
        self._counts = collections.Counter[int]()
        self._seen = set(prompt) if penalties.repetition != 1 else set[int]()

    def apply(self, logits: Logits) -> None:
        if self._seen:
            seen, by = np.fromiter(self._seen, np.intp), np.float32(self._penalties.repetition)
            logits[seen] = np.where(logits[seen] < 0, logits[seen] * by, logits[seen] / by)
        tokens = np.fromiter(self._counts, np.intp, len(self._counts))
        counts = np.fromiter(self._counts.values(), np.float64, len(self._counts))
        lost = counts * self._penalties.frequency + self._penalties.presence
        logits[tokens] -= lost.astype(np.float32)

    def advance(self, token: int) -> None:
        self._counts[token] += 1
        if self._penalties.repetition != 1:
            self._seen.add(token)


@dataclasses.dataclass(frozen=True)
class Bias:
    """Numbers added to the logits of some tokens (OpenAI's ``logit_bias``)."""

    values: tuple[tuple[int, float], ...]  # token and number

    def __post_init__(self) -> None:
        for token, value in self.values:
            if not math.isfinite(value):
                raise CassandraError(f"bias of token {token} must be a finite number, not {value}")

    def begin(self, prompt: Sequence[int]) -> ProcessorState:
        """Return a state that does not change."""
        return _Biased(self.values)


class _Biased:
    """Identical biases at each position (:class:`ProcessorState`)."""

    def __init__(self, values: Sequence[tuple[int, float]]) -> None:
        self._tokens = np.array([token for token, _ in values], np.intp)
        self._added = np.array([value for _, value in values], np.float32)

    def apply(self, logits: Logits) -> None:
        logits[self._tokens] += self._added

    def advance(self, token: int) -> None:
        """Do nothing: the biases do not depend on the reply."""
