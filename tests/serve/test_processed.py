"""Processed and scored replies of both backends, beside plain decoding by whole histories."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cassandra_spec.drafting import Counters, Sampling, Score, Settings
from cassandra_spec.model.backends import BACKENDS, CheckedBackend, Opening
from tests.drafting.processors import PROCESSORS, naive_reply, naive_score, require_close
from tests.serve.conftest import SPECULATION, STOPS

PROMPTS = ([5, 9, 13], [at % 90 + 2 for at in range(21)])


@pytest.fixture(scope="module", params=["torch", "native"])
def backend(request: pytest.FixtureRequest, packed: Path) -> Iterator[CheckedBackend]:
    with BACKENDS[request.param](packed, Opening(threads=1), SPECULATION) as made:
        yield made


def settings_of(**fields: Any) -> Settings:
    common = {"max_tokens": 16, "stop_tokens": STOPS, "logprobs": 3, "seed": 5}
    return Settings(**{**common, **fields})


def reply(
    backend: CheckedBackend, prompt: list[int], settings: Settings
) -> tuple[list[int], list[Score]]:
    scores: list[Score] = []
    rounds = backend.rounds(prompt, settings, Counters(), scores=scores)
    return list(itertools.chain(*rounds)), scores


@pytest.mark.parametrize("processors", [(), *PROCESSORS])
@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=1.2, min_p=0.02)])
def test_replies_are_those_of_plain_decoding(
    backend: CheckedBackend, processors: Any, sampling: Sampling
) -> None:
    for prompt in PROMPTS:
        settings = settings_of(processors=processors, sampling=sampling, gamma=0)
        passes = backend.passes(len(prompt) + settings.max_tokens)

        def after(tokens: list[int], passes: Any = passes) -> Any:
            return np.array(passes(tokens, 0, 1))[0]

        tokens, scores = naive_reply(after, prompt, settings)
        found = reply(backend, prompt, settings)
        assert found[0] == tokens
        for score, expected in zip(found[1], scores, strict=True):
            require_close(score, expected)
        for draft in ("hybrid", "model", "lookup"):
            drafted = dataclasses.replace(settings, gamma=4, draft=draft)
            assert reply(backend, prompt, drafted) == found


def test_prompts_are_scored_one_at_a_time(packed: Path) -> None:
    with BACKENDS["torch"](packed, Opening(), SPECULATION) as backend:
        whole = [*PROMPTS[1], *reply(backend, PROMPTS[1], settings_of())[0]]
        cut = settings_of(prompt_logprobs=True, gamma=4, draft="hybrid")
        sequences, scores, found = backend.sequences(), list[Score](), list[int]()
        sequences.claim(PROMPTS[1], cut, ends=lambda token: len(scores) > 30, scores=scores)
        while not sequences.free:
            found += [each.token for each in sequences.step()]
        assert found == whole[len(PROMPTS[1]) :][: len(found)]
        assert [each.token for each in scores] == whole[: len(scores)]
        rows = np.array(backend.passes(len(whole))(whole, 0, len(whole)))
        assert scores[0] == Score(whole[0], None, ())
        for score, row, token in zip(scores[1:], rows, whole[1:], strict=False):
            require_close(score, naive_score(row, token, 3))
