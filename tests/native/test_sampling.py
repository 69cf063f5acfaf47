"""Sampled tokens of the native engine beside passes over the whole sequence."""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from cassandra_spec.native.sampling import sampled_rounds

from cassandra_spec.drafting import Counters, Levels, Sampling, Settings, draw, probabilities
from cassandra_spec.golden import CassandraError
from cassandra_spec.native.engine import Engine
from tests.native.models import KINDS, packed, small

REPLIES = 1000
PROMPT = [5, 9, 3, 60, 2, 8, 1, 4, 7, 30]


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    config, tensors = small()
    with Engine.from_tensors(config, tensors, draft=False, threads=1, pin=False) as made:
        yield made


@pytest.fixture(scope="module")
def drafting(request: pytest.FixtureRequest) -> Iterator[Engine]:
    config, tensors = small(getattr(request, "param", "llama"))
    with Engine.from_tensors(config, packed(tensors), threads=1, pin=False) as made:
        yield made


def sample(engine: Engine, counters: Counters | None = None, **settings: Any) -> list[int]:
    chosen = Settings(**{"gamma": 0, "max_tokens": 12, "seed": 3, **settings})
    rounds = sampled_rounds(engine, PROMPT, chosen, counters or Counters())
    return list(itertools.chain.from_iterable(rounds))


@pytest.mark.parametrize(
    "sampling", [Sampling(temperature=1.0), Sampling(temperature=0.7, top_k=5)]
)
@pytest.mark.parametrize("drafting", KINDS, indirect=True)
def test_tokens_are_drawn_from_the_logits_of_all_before(
    drafting: Engine, sampling: Sampling
) -> None:
    random, tokens = np.random.default_rng(3), list(PROMPT)
    for _ in range(12):
        logits = drafting.forward(tokens, last=1)
        tokens.append(draw(probabilities(logits, sampling)[0], random))
    assert sample(drafting, sampling=sampling) == tokens[len(PROMPT) :]


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


NEW = [kind for kind in KINDS if kind != "llama"]
CHAINS = [
    Settings(gamma=3, draft="model"),
    Settings(gamma=4, draft="lookup"),
    Settings(gamma=3, draft="hybrid", min_margin=0.4),
    Settings(gamma="adaptive", draft="hybrid"),
]
BRANCHLESS = Levels(branches=1, alternatives=0)


@pytest.mark.parametrize("settings", CHAINS, ids=repr)
def test_greedy_rounds_of_the_shared_loop_are_those_of_the_engine(
    drafting: Engine, settings: Settings
) -> None:
    asked = dataclasses.replace(settings, max_tokens=40, levels=BRANCHLESS)
    shared, own = Counters(), Counters()
    found = list(itertools.chain.from_iterable(sampled_rounds(drafting, PROMPT, asked, shared)))
    assert found == list(itertools.chain.from_iterable(drafting.rounds(PROMPT, asked, own)))
    assert found == sample(drafting, max_tokens=40)
    assert shared.drafted > 0
    if settings.gamma != "adaptive":  # which costs seconds in the engine, bytes here
        assert counts(shared) == counts(own)


def counts(counters: Counters) -> Counters:
    """Return counters without times."""
    return dataclasses.replace(counters, prompt_seconds=0.0, draft_seconds=0.0, verify_seconds=0.0)


@pytest.mark.parametrize(
    ("drafting", "settings"),
    [*(("llama", each) for each in CHAINS[:3]), *((kind, CHAINS[0]) for kind in NEW)],
    indirect=["drafting"],
    ids=repr,
)
def test_sampled_replies_are_distributed_as_the_target(
    drafting: Engine, settings: Settings
) -> None:
    """The first two tokens: chi-square over nine pairs, 8 degrees of freedom, at 1e-4."""
    sampling = Sampling(temperature=0.8, top_k=3)
    expected = pairs(drafting, sampling)
    table = Likely(dict(sorted(expected, key=expected.__getitem__)))
    replies: collections.Counter[tuple[int, ...]] = collections.Counter()
    accepted = Counters()
    for seed in range(REPLIES):
        asked = dataclasses.replace(settings, sampling=sampling, seed=seed, max_tokens=3)
        rounds = sampled_rounds(drafting, PROMPT, asked, accepted, table=table)
        replies[tuple(itertools.chain.from_iterable(rounds))[:2]] += 1
    assert set(replies) <= set(expected)
    assert 0 < accepted.accepted < accepted.drafted
    assert chi_square(replies, expected, REPLIES) < 31.8


class Likely(dict[int, int]):
    """A table of the likeliest token after one."""

    def candidates(self, tail: Sequence[int]) -> list[tuple[int, float]]:
        return [(self[tail[-1]], 0.6)] if tail[-1] in self else []


def pairs(engine: Engine, sampling: Sampling) -> dict[tuple[int, int], float]:
    """Return the probability of the first two tokens of a reply."""
    first = probabilities(engine.forward(PROMPT, last=1), sampling)[0]
    found: dict[tuple[int, int], float] = {}
    for token in np.flatnonzero(first):
        second = probabilities(engine.forward([*PROMPT, int(token)], last=1), sampling)[0]
        found |= {
            (int(token), int(after)): float(first[token] * second[after])
            for after in np.flatnonzero(second)
        }
    return found


def chi_square(
    counts: Mapping[Any, int], expected: Mapping[tuple[int, int], float], total: int
) -> float:
    return sum(
        (counts.get(pair, 0) - share * total) ** 2 / (share * total)
        for pair, share in expected.items()
    )


def test_what_the_engine_cannot_draft_is_refused(engine: Engine, drafting: Engine) -> None:
    with pytest.raises(CassandraError, match="gamma must be from 0 to 15, or 'adaptive', not 16"):
        sample(drafting, gamma=16)
    with pytest.raises(CassandraError, match="draft must be lookup or none"):
        sample(engine, gamma=3)
    with pytest.raises(CassandraError, match=r"levels must draft chains .* not trees"):
        sample(drafting, gamma=3, draft="hybrid", max_tokens=60)
    sampling = Sampling(temperature=1.0)
    with pytest.raises(CassandraError, match=r"sampling must be greedy .* own rounds"):
        next(drafting.rounds(PROMPT, Settings(sampling=sampling, max_tokens=2), Counters()))
