"""Sampled tokens of the native engine beside passes over the whole sequence."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from cassandra_spec.drafting import Counters, Sampling, Settings, draw, probabilities
from cassandra_spec.golden import CassandraError
from cassandra_spec.native.engine import Engine
from cassandra_spec.native.sampling import sampled_rounds
from tests.native.models import small

PROMPT = [5, 9, 3, 60, 2, 8, 1, 4, 7, 30]


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    config, tensors = small()
    with Engine.from_tensors(config, tensors, threads=1, pin=False) as made:
        yield made


def sample(engine: Engine, counters: Counters | None = None, **settings: Any) -> list[int]:
    chosen = Settings(**{"gamma": 0, "max_tokens": 12, "seed": 3, **settings})
    rounds = sampled_rounds(engine, PROMPT, chosen, counters or Counters())
    return list(itertools.chain.from_iterable(rounds))


@pytest.mark.parametrize(
    "sampling", [Sampling(temperature=1.0), Sampling(temperature=0.7, top_k=5)]
)
def test_tokens_are_drawn_from_the_logits_of_all_before(engine: Engine, sampling: Sampling) -> None:
    random, tokens = np.random.default_rng(3), list(PROMPT)
    for _ in range(12):
        logits = engine.forward(tokens, last=1)
        tokens.append(draw(probabilities(logits, sampling)[0], random))
    assert sample(engine, sampling=sampling) == tokens[len(PROMPT) :]


def test_without_a_temperature_they_are_the_greedy_reply(engine: Engine) -> None:
    rounds = engine.rounds(PROMPT, Settings(gamma=0, max_tokens=12), Counters())
    assert sample(engine) == list(itertools.chain.from_iterable(rounds))


def test_a_stop_token_ends_them(engine: Engine) -> None:
    counters, sampling = Counters(), Sampling(temperature=1.0)
    whole = sample(engine, counters, sampling=sampling)
    stop = whole[4]
    found = sample(engine, sampling=sampling, stop_tokens=frozenset({stop}))
    assert found == whole[: whole.index(stop) + 1]
    assert (counters.replies, counters.prompt_tokens) == (1, len(PROMPT))


def test_speculation_is_refused(engine: Engine) -> None:
    with pytest.raises(CassandraError, match="gamma must be 0 for native sampling, not 3"):
        sample(engine, gamma=3)
