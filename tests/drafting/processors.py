"""Processors for tests, and plain decoding that applies them to a whole history."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from cassandra_spec.drafting import (
    Bias,
    Penalties,
    Processor,
    ProcessorState,
    Score,
    Settings,
    probabilities,
)
from cassandra_spec.drafting.choice.noise import gumbel

PENALTIES = Penalties(frequency=0.7, presence=1.1)
BIAS = Bias(((7, 3.0), (30, -100.0), (5, 0.5)))


@dataclasses.dataclass(frozen=True)
class Alternate:
    """Only tokens of one remainder are allowed, by the tokens of prompt and reply so far."""

    modulus: int

    def begin(self, prompt: Sequence[int]) -> ProcessorState:
        return _Alternating(self.modulus, sum(prompt))


class _Alternating:
    def __init__(self, modulus: int, total: int) -> None:
        self._modulus, self._total = modulus, total

    def apply(self, logits: NDArray[np.float32]) -> None:
        allowed = np.arange(len(logits)) % self._modulus == self._total % self._modulus
        logits[~allowed] = -np.inf

    def advance(self, token: int) -> None:
        self._total += token


PROCESSORS: tuple[tuple[Processor, ...], ...] = (
    (PENALTIES,),
    (BIAS,),
    (Alternate(3),),
    (PENALTIES, Alternate(2), BIAS),
)
"""Processors of replies in tests."""


def naive_reply(
    logits_after: Callable[[list[int]], NDArray[np.float32]],
    prompt: Sequence[int],
    settings: Settings,
) -> tuple[list[int], list[Score]]:
    """Return the tokens of a reply and their log-probabilities.

    One token after another, each from the row after all before it, by processors that begin anew
    and take the whole reply so far.
    """
    reply, scores = list[int](), list[Score]()
    while len(reply) < settings.max_tokens and not set(reply) & settings.stop_tokens:
        raw = logits_after([*prompt, *reply])
        row = raw.copy()
        for processor in settings.processors:
            state = processor.begin(prompt)
            for token in reply:
                state.advance(token)
            state.apply(row)
        reply.append(naive_token(row, settings, len(prompt) + len(reply)))
        scores.append(naive_score(raw, reply[-1], settings.logprobs or 0))
    return reply, scores


def naive_token(row: NDArray[np.float32], settings: Settings, position: int) -> int:
    """Return the allowed token with the largest logit plus temperature times noise."""
    sampling = settings.sampling
    if sampling.temperature == 0:
        return int(row.argmax())
    finite = np.where(row == -np.inf, np.float32(-1e30), row)
    allowed = np.flatnonzero(probabilities(finite[None], sampling)[0])
    noise = gumbel(settings.seed or 0, position, len(row))
    return max(allowed.tolist(), key=lambda at: float(row[at]) / sampling.temperature + noise[at])


def naive_score(row: NDArray[np.float32], token: int, count: int) -> Score:
    """Log-probabilities by a softmax in double precision."""
    exact = row.astype(np.float64)
    logprobs = exact - np.log(np.exp(exact - exact.max()).sum()) - exact.max()
    order = sorted(range(len(row)), key=lambda at: (-row[at], at))[:count]
    return Score(token, logprobs[token], tuple((at, logprobs[at]) for at in order))


def require_close(found: Score, expected: Score) -> None:
    """Require equal tokens and log-probabilities, but for roundings of float32."""
    assert found.logprob == pytest.approx(expected.logprob, abs=2e-6, rel=2e-6)
    assert [token for token, _ in found.top] == [token for token, _ in expected.top]
    values = [value for _, value in expected.top]
    assert [value for _, value in found.top] == pytest.approx(values, abs=2e-6, rel=2e-6)
