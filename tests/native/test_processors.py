"""Replies of the native engine with logits processors, beside plain decoding by whole histories."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

from cassandra_spec.drafting import Counters, Processor, Sampling, Settings
from cassandra_spec.native.batch import Batch
from cassandra_spec.native.engine import Engine
from cassandra_spec.native.sampling import sampled_rounds
from tests.drafting.processors import PROCESSORS, naive_reply
from tests.native.models import packed, small

PROMPTS = [np.random.default_rng(at).integers(0, 97, 5 + 9 * at).tolist() for at in range(5)]
DRAFTS: tuple[dict[str, Any], ...] = (
    {"gamma": 4, "draft": "hybrid"},
    {"gamma": "adaptive", "draft": "hybrid"},
    {"gamma": 3, "draft": "model"},
    {"gamma": 7, "draft": "lookup"},
    {"gamma": 0},
)
STOPS = frozenset({60, 61})


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    config, tensors = small()
    whole = packed(tensors)
    with Engine.from_tensors(config, whole, threads=2, slots=8, pin=False) as made:
        yield made


def expected(engine: Engine, prompt: list[int], settings: Settings) -> list[int]:
    def after(tokens: list[int]) -> Any:
        return engine.forward(tokens, last=1)[0]

    return naive_reply(after, prompt, settings)[0]


def settings_of(processors: tuple[Processor, ...], **fields: Any) -> Settings:
    return Settings(
        **{"max_tokens": 30, "stop_tokens": STOPS, "processors": processors, "seed": 3, **fields}
    )


@pytest.mark.parametrize("processors", PROCESSORS)
def test_drafts_do_not_change_a_processed_reply(
    engine: Engine, processors: tuple[Processor, ...]
) -> None:
    plain = list(itertools.chain(*engine.rounds(PROMPTS[1], settings_of(()), Counters())))
    counters = Counters()
    for prompt in PROMPTS:
        reply = expected(engine, prompt, settings_of(processors))
        for drafts in DRAFTS:
            rounds = engine.rounds(prompt, settings_of(processors, **drafts), counters)
            assert list(itertools.chain(*rounds)) == reply
    assert counters.accepted
    assert expected(engine, PROMPTS[1], settings_of(processors)) != plain


def test_samples_are_drawn_from_processed_logits(engine: Engine) -> None:
    for processors, prompt in zip(PROCESSORS, PROMPTS, strict=False):
        for sampling in (Sampling(temperature=0.8), Sampling(temperature=1.5, min_p=0.05)):
            settings = settings_of(processors, sampling=sampling, gamma=0)
            rounds = sampled_rounds(engine, prompt, settings, Counters())
            assert list(itertools.chain(*rounds)) == expected(engine, prompt, settings)


def test_processed_replies_of_a_batch_are_those_alone(engine: Engine) -> None:
    kinds = itertools.cycle(((), *PROCESSORS))
    asked = []
    for number, prompt in enumerate(PROMPTS * 2):
        sampled = number % 3 == 2
        fields = {"gamma": 0} if sampled else DRAFTS[number % len(DRAFTS)]
        settings = settings_of(next(kinds), **fields)
        if sampled:
            settings = dataclasses.replace(settings, sampling=Sampling(temperature=1.0))
        asked.append((prompt, settings))
    wanted = list(itertools.starmap(partial(expected, engine), asked))
    found: list[list[int]] = [[] for _ in asked]
    rng, numbers, waiting = np.random.default_rng(0), dict[int, int](), list(range(len(asked)))
    with Batch(engine) as batch:
        while waiting or batch.running:
            while waiting and batch.free and rng.random() < 0.1:
                numbers[batch.claim(*asked[waiting[0]])] = waiting.pop(0)
            for each in batch.step():
                found[numbers[each.slot]].append(each.token)
    assert found == wanted
