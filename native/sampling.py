"""Sampled tokens of the native engine, without speculation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from cassandra_spec.drafting import Counters, Settings, cut_at_end
from cassandra_spec.golden import CassandraError
from cassandra_spec.native.batch import Batch
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

    It takes a slot of the engine. Nothing is counted but the reply. Raises :class:`CassandraError`
    if gamma is not 0.
    """
    if settings.gamma != 0:
        raise CassandraError(f"gamma must be 0 for native sampling, not {settings.gamma!r}")
    counters.replies += 1
    counters.prompt_tokens += len(prompt)
    with Batch(engine) as batch:
        batch.claim(prompt, settings)
        while batch.running:
            for emitted in batch.step():
                tokens, over = cut_at_end([emitted.token], frozenset(), ends)
                yield tokens
                if over:
                    return
