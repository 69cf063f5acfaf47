"""Sampled tokens of the native engine, without speculation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from cassandra_spec.drafting import Counters, Settings, cut_at_end, draw, probabilities
from cassandra_spec.golden import CassandraError
from cassandra_spec.native.engine import Engine


def sampled_rounds(
    engine: Engine,
    prompt: Sequence[int],
    settings: Settings,
    counters: Counters,
    *,
    ends: Callable[[int], bool] = lambda token: False,
) -> Iterator[list[int]]:
    """As :meth:`Engine.rounds` of plain decoding, but each token is drawn from the logits.

    Nothing is counted but the reply. Raises :class:`CassandraError` if gamma is not 0.
    """
    if settings.gamma != 0:
        raise CassandraError(f"gamma must be 0 for native sampling, not {settings.gamma!r}")
    random = np.random.default_rng(settings.seed)
    tokens, position = list(prompt), 0
    counters.replies += 1
    counters.prompt_tokens += len(tokens)
    for _ in range(settings.max_tokens):
        logits = engine.forward(tokens, position, last=1)
        position += len(tokens)
        drawn = draw(probabilities(logits, settings.sampling)[0], random)
        tokens, over = cut_at_end([drawn], settings.stop_tokens, ends)
        yield tokens
        if over:
            return
