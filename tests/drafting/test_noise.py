"""Noise of places, and the choices by it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray

from cassandra_spec.drafting import Sampling, Settings, pick, probabilities
from cassandra_spec.drafting.choice.noise import gumbel, philox, words
from cassandra_spec.golden import CassandraError

DRAWS = 100_000
LOGITS = np.log(np.array([0.3, 0.22, 0.16, 0.12, 0.08, 0.06, 0.04, 0.02], np.float32))
SAMPLINGS = (
    Sampling(temperature=1.0),
    Sampling(temperature=0.3),
    Sampling(temperature=2.5),
    Sampling(temperature=0.7, top_k=3),
    Sampling(temperature=1.0, top_p=0.7),
    Sampling(temperature=1.0, min_p=0.25),
    Sampling(temperature=1.3, top_k=6, top_p=0.9, min_p=0.1),
)


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0,) * 4, (0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
)
def test_words_are_those_that_the_authors_publish(
    counter: tuple[int, ...], key: tuple[int, int], expected: str
) -> None:
    """Known answers of Random123 for philox4x32 with 10 rounds."""
    found = philox(np.array(counter, np.uint32), key)
    assert " ".join(f"{word:08x}" for word in found) == expected


def test_a_word_belongs_to_seed_position_and_token() -> None:
    """However many tokens are asked for; other seeds and positions have other words."""
    whole = words(5, 9, 1000)
    for count in (1, 15, 16, 17, 64, 65, 999):
        np.testing.assert_array_equal(words(5, 9, count), whole[:count])
    places = [(5, 9), (5, 10), (6, 9), (5 + 2**32, 9), (5, 9 + 2**20)]
    every = np.concatenate([words(seed, position, 1000) for seed, position in places])
    assert len(np.unique(every)) > 4990  # two of 5,000 words are equal with probability .003


def test_a_token_has_the_lane_and_word_that_the_document_says() -> None:
    for token in (0, 1, 15, 16, 63, 64, 200):
        block, word, lane = token // 64, token % 64 // 16, token % 16
        counter = np.array([16 * block + lane, 9, 0, 0], np.uint32)
        assert words(5, 9, 201)[token] == philox(counter, (5, 0))[word]


def test_noise_has_the_distribution_of_gumbel() -> None:
    """Kolmogorov and Smirnov's statistic of 10^5 values; 1e-4 at most at 2.23 / sqrt(n)."""
    values = np.sort(np.concatenate([gumbel(3, at, 1000) for at in range(DRAWS // 1000)]))
    shares = np.exp(-np.exp(-values))
    steps = np.arange(DRAWS + 1) / DRAWS
    distance = max((shares - steps[:-1]).max(), (steps[1:] - shares).max())
    assert distance < 2.23 / np.sqrt(DRAWS)


def drawn(sampling: Sampling, logits: NDArray[np.float32], seed: int) -> NDArray[np.int64]:
    """Return the tokens chosen at many positions, of all tokens at once."""
    noise = np.stack([gumbel(seed, at, len(logits)) for at in range(DRAWS)])
    scores = logits / sampling.temperature + noise
    scores[:, probabilities(logits[None], sampling)[0] == 0] = -np.inf
    return np.asarray(scores.argmax(axis=1))


@pytest.mark.slow
@pytest.mark.parametrize("sampling", SAMPLINGS, ids=repr)
def test_choices_are_distributed_as_the_target(sampling: Sampling) -> None:
    """Chi-square over 10^5 positions, with at most 7 degrees of freedom, at 1e-4 (29.9).

    With 10^5 draws a bias of .01 in a token of probability .3 has a noncentrality of 33 and more.
    """
    found = drawn(sampling, LOGITS, 11)
    for at in range(0, DRAWS, DRAWS // 50):
        assert pick(LOGITS, sampling, 11, at).token == found[at]
    expected = probabilities(LOGITS[None], sampling)[0]
    counts = np.bincount(found, minlength=len(LOGITS))
    assert counts[expected == 0].sum() == 0
    wanted = expected[expected > 0] * DRAWS
    assert ((counts[expected > 0] - wanted) ** 2 / wanted).sum() < 29.9


@pytest.mark.slow
def test_neighbouring_positions_and_seeds_are_independent() -> None:
    """Chi-square over pairs of tokens, 63 degrees of freedom, at 1e-4 (113.7)."""
    p = probabilities(LOGITS[None], SAMPLINGS[0])[0]
    first, other = drawn(SAMPLINGS[0], LOGITS, 11), drawn(SAMPLINGS[0], LOGITS, 12)
    for one, two in ((first[::2], first[1::2]), (first, other)):
        counts = np.bincount(8 * one + two, minlength=64)
        wanted = np.outer(p, p).reshape(-1) * len(one)
        assert ((counts - wanted) ** 2 / wanted).sum() < 113.7


@pytest.mark.parametrize("seed", range(6))
def test_a_draft_agrees_as_often_as_is_proved(seed: int) -> None:
    """At least (1 - D) / (1 + D), and at most 1 - D (Daliri, Musco and Suresh 2024)."""
    rng = np.random.default_rng(seed)
    target = rng.standard_normal(20).astype(np.float32) * 2
    draft = (target + rng.standard_normal(20) * rng.uniform(0.1, 1.5)).astype(np.float32)
    p, q = (probabilities(row[None], SAMPLINGS[0])[0] for row in (target, draft))
    distance, count = np.abs(p - q).sum() / 2, 20_000
    noise = np.stack([gumbel(seed, at, 20) for at in range(count)])
    agreed = ((target + noise).argmax(1) == (draft + noise).argmax(1)).mean()
    spread = 4 * np.sqrt(agreed * (1 - agreed) / count)
    assert (1 - distance) / (1 + distance) - spread <= agreed <= 1 - distance + spread


def test_a_choice_is_the_best_by_a_naive_sum() -> None:
    rng = np.random.default_rng(1)
    for position, sampling in itertools.product(range(20), SAMPLINGS):
        logits = rng.standard_normal(30).astype(np.float32) * 3
        allowed = np.flatnonzero(probabilities(logits[None], sampling)[0])
        noise = gumbel(4, position, 30)
        score = {int(t): float(logits[t]) / sampling.temperature + noise[t] for t in allowed}
        ranked = sorted(score, key=lambda token: -score[token])
        found = pick(logits, sampling, 4, position)
        assert found.token == ranked[0]
        assert found.second == (ranked[1] if len(ranked) > 1 else -1)
        if len(ranked) > 1:
            margin = (score[ranked[0]] - score[ranked[1]]) * sampling.temperature
            assert found.margin == pytest.approx(margin, rel=1e-9)


def test_without_a_temperature_a_choice_is_the_first_of_the_best() -> None:
    row = np.array([1.0, 3.0, 3.0, 2.5], np.float32)
    assert pick(row, Sampling(), 1, 1).token == 1
    assert (pick(row, Sampling(), 1, 1).second, pick(row, Sampling(), 1, 1).margin) == (2, 0.0)
    assert pick(row[:1], Sampling(), 1, 1).margin == np.inf


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"acceptance": "both"}, "acceptance must be noise or rejection, not 'both'"),
        ({"seed": -1}, "seed must be from 0 to 18446744073709551615, not -1"),
        ({"seed": 2**64}, "seed must be from 0 to"),
    ],
)
def test_bad_settings_are_named(fields: dict[str, object], line: str) -> None:
    with pytest.raises(CassandraError, match=line):
        Settings(**fields)  # type: ignore[arg-type]
