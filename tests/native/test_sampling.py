"""Sampled replies of the native engine beside passes over the whole sequence."""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from cassandra_spec.drafting import (
    Counters,
    DraftCache,
    Gamma,
    Levels,
    Sampling,
    Settings,
    pick,
    probabilities,
)
from cassandra_spec.golden import CassandraError
from cassandra_spec.native.engine import Engine
from cassandra_spec.native.engine_binding import pick_row
from cassandra_spec.native.rounds.chains import rejecting_rounds
from tests.native.models import KINDS, packed, small

REPLIES = 1000
PROMPT = [5, 9, 3, 60, 2, 8, 1, 4, 7, 30]
SAMPLINGS = (
    Sampling(temperature=1.0),
    Sampling(temperature=0.3),
    Sampling(temperature=2.5),
    Sampling(temperature=0.7, top_k=5),
    Sampling(temperature=0.7, top_p=0.83),
    Sampling(temperature=1.2, min_p=0.05),
    Sampling(temperature=0.8, top_k=40, top_p=0.95, min_p=0.01),
)


# --- the choice from a row -----------------------------------------------------------------------


def row_of(seed: int, size: int) -> NDArray[np.float32]:
    """Return a row of logits: smooth, with ties, or with forbidden tokens."""
    rng = np.random.default_rng(seed)
    row = (rng.standard_normal(size) * rng.choice([0.1, 1.0, 4.0])).astype(np.float32)
    if seed % 3 == 0:
        row = np.round(row)
    if seed % 5 == 0:
        row[rng.random(size) < 0.5] = -np.inf
        row[rng.integers(size)] = 1.0
    return row


@pytest.mark.parametrize("size", [1, 2, 3, 15, 16, 17, 63, 64, 65, 129, 1000])
@pytest.mark.parametrize("sampling", [Sampling(), *SAMPLINGS, Sampling(temperature=1e-6)])
def test_a_choice_is_that_of_the_reference(size: int, sampling: Sampling, every_isa: str) -> None:
    for seed in range(40):
        row, key = row_of(seed, size), 0x9E3779B97F4A7C15 * seed % 2**64
        expected = pick(row, sampling, key, 7 + seed)
        found = pick_row(row, sampling, key, 7 + seed)
        assert (found.token, found.second) == (expected.token, expected.second)
        assert found.margin == pytest.approx(expected.margin, rel=1e-6)


@given(
    seed=st.integers(0, 2**64 - 1),
    position=st.integers(0, 2**31 - 1),
    temperature=st.floats(1e-3, 100),
    top_k=st.none() | st.integers(1, 300),
    row=st.integers(1, 10**6),
)
def test_a_choice_is_that_of_the_reference_for_any_place(
    seed: int, position: int, temperature: float, top_k: int | None, row: int
) -> None:
    sampling, logits = Sampling(temperature=temperature, top_k=top_k), row_of(row, 200)
    expected = pick(logits, sampling, seed, position)
    found = pick_row(logits, sampling, seed, position)
    assert (found.token, found.second) == (expected.token, expected.second)


# --- replies -------------------------------------------------------------------------------------


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
    rounds = engine.rounds(PROMPT, chosen, counters or Counters())
    return list(itertools.chain.from_iterable(rounds))


@pytest.mark.parametrize("sampling", [SAMPLINGS[0], SAMPLINGS[3], SAMPLINGS[6]])
@pytest.mark.parametrize("drafting", KINDS, indirect=True)
def test_tokens_are_chosen_by_noise_from_the_logits_of_all_before(
    drafting: Engine, sampling: Sampling
) -> None:
    tokens = list(PROMPT)
    for _ in range(12):
        row = drafting.forward(tokens, last=1)[0]
        tokens.append(pick(row, sampling, 3, len(tokens)).token)
    assert sample(drafting, sampling=sampling) == tokens[len(PROMPT) :]


GAMMAS: tuple[Gamma, ...] = ("adaptive", 1, 4, 15)


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=repr)
@pytest.mark.parametrize("draft", ["model", "lookup", "hybrid"])
def test_drafts_do_not_change_a_sampled_reply(
    drafting: Engine, draft: Any, sampling: Sampling, every_isa: str
) -> None:
    counters = Counters()
    for seed, gamma in enumerate(GAMMAS):
        asked: dict[str, Any] = {"sampling": sampling, "seed": seed, "max_tokens": 60}
        drafts: dict[str, Any] = {"draft": draft, "gamma": gamma, "min_margin": 0.4 * (seed % 2)}
        cache = DraftCache(window=32, sinks=2)
        found = sample(drafting, counters, **asked, **drafts, draft_cache=cache)
        assert found == sample(drafting, **asked)
    assert counters.accepted


def test_a_seed_makes_the_reply_and_none_makes_another(engine: Engine) -> None:
    sampling = Sampling(temperature=1.5)
    replies = [
        tuple(sample(engine, sampling=sampling, seed=seed)) for seed in (1, 1, 2, None, None)
    ]
    assert replies[0] == replies[1]
    assert len(set(replies)) == 4


def test_a_stop_token_ends_them(engine: Engine) -> None:
    counters, sampling = Counters(), Sampling(temperature=1.0)
    whole = sample(engine, counters, sampling=sampling)
    stop = whole[4]
    found = sample(engine, sampling=sampling, stop_tokens=frozenset({stop}))
    assert found == whole[: whole.index(stop) + 1]
    assert (counters.replies, counters.prompt_tokens) == (1, len(PROMPT))


@pytest.mark.parametrize("sampling", [Sampling(temperature=0.8, top_k=3)])
def test_sampled_replies_are_distributed_as_the_target(
    drafting: Engine, sampling: Sampling
) -> None:
    """The first two tokens: chi-square over nine pairs, 8 degrees of freedom, at 1e-4."""
    expected = pairs(drafting, sampling)
    replies: collections.Counter[tuple[int, ...]] = collections.Counter()
    for seed in range(REPLIES):
        found = sample(drafting, gamma=3, sampling=sampling, seed=seed, max_tokens=3)
        replies[tuple(found)[:2]] += 1
    assert set(replies) <= set(expected)
    assert chi_square(replies, expected, REPLIES) < 31.8


# --- acceptance by Eq. 1 -------------------------------------------------------------------------

NEW = [kind for kind in KINDS if kind != "llama"]
CHAINS = [
    Settings(gamma=3, draft="model"),
    Settings(gamma=4, draft="lookup"),
    Settings(gamma=3, draft="hybrid", min_margin=0.4),
    Settings(gamma="adaptive", draft="hybrid"),
]
BRANCHLESS = Levels(branches=1, alternatives=0)


@pytest.mark.parametrize("settings", CHAINS, ids=repr)
def test_greedy_rounds_over_sessions_are_those_of_the_engine(
    drafting: Engine, settings: Settings
) -> None:
    asked = dataclasses.replace(settings, max_tokens=40, levels=BRANCHLESS)
    shared, own = Counters(), Counters()
    found = list(itertools.chain.from_iterable(rejecting_rounds(drafting, PROMPT, asked, shared)))
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
def test_replies_by_eq_1_are_distributed_as_the_target(
    drafting: Engine, settings: Settings
) -> None:
    """The first two tokens: chi-square over nine pairs, 8 degrees of freedom, at 1e-4."""
    sampling = Sampling(temperature=0.8, top_k=3)
    expected = pairs(drafting, sampling)
    replies: collections.Counter[tuple[int, ...]] = collections.Counter()
    accepted = Counters()
    asked = dataclasses.replace(
        settings, sampling=sampling, acceptance="rejection", levels=BRANCHLESS, max_tokens=3
    )
    for seed in range(REPLIES):
        seeded = dataclasses.replace(asked, seed=seed)
        rounds = rejecting_rounds(drafting, PROMPT, seeded, accepted)
        replies[tuple(itertools.chain.from_iterable(rounds))[:2]] += 1
    assert set(replies) <= set(expected)
    assert settings.draft == "lookup" or 0 < accepted.accepted < accepted.drafted
    assert chi_square(replies, expected, REPLIES) < 31.8


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
    asked = Settings(
        gamma=3,
        draft="hybrid",
        max_tokens=60,
        sampling=Sampling(temperature=1.0),
        acceptance="rejection",
    )
    with pytest.raises(CassandraError, match=r"acceptance must be noise .* not rejection"):
        sample(drafting, sampling=asked.sampling, acceptance="rejection")
    assert list(rejecting_rounds(drafting, PROMPT, asked, Counters()))  # chains alone
    trees = dataclasses.replace(asked, acceptance="noise", seed=1)
    with pytest.raises(CassandraError, match=r"levels must draft chains .* not trees"):
        list(rejecting_rounds(drafting, PROMPT, trees, Counters()))
