from __future__ import annotations

import numpy as np
import pytest
import torch

from cassandra_spec.drafting import GREEDY, Sampling, draw, probabilities, verify
from cassandra_spec.golden import CassandraError

P = np.array([[0.4, 0.3, 0.2, 0.1, 0.0], [0.1, 0.1, 0.1, 0.2, 0.5], [0.0, 0.5, 0.25, 0.25, 0.0]])
Q = np.array([[0.1, 0.5, 0.1, 0.2, 0.1], [0.3, 0.1, 0.3, 0.2, 0.1]])
DRAWS = 40_000
# Critical value of chi-square with 4 degrees of freedom at significance 1e-4. At 40,000 draws the
# noncentrality of a bias of .01 in two of the tokens of row 0 of P is 40000 * (.01**2 / .4 +
# .01**2 / .3) = 23, and of drawing the recovered token from p instead of the residual (a total
# variation of .1 and more) above 1,000: power beyond .999 for the latter and .61 for the former.
CRITICAL = 23.51


def chi_square(tokens: list[int], expected: np.ndarray) -> float:
    counts = np.bincount(tokens, minlength=expected.size)
    assert counts[expected == 0].sum() == 0
    wanted = expected[expected > 0] * len(tokens)
    return float((((counts[expected > 0] - wanted) ** 2) / wanted).sum())


def rounds(random: np.random.Generator, *, mistake: bool = False) -> list[list[int]]:
    """Return tokens of many rounds of gamma = 2 with fixed distributions."""
    found = []
    for _ in range(DRAWS):
        drafted = [draw(row, random) for row in Q]
        n, last = verify(P, Q, drafted, random)
        if mistake and n < len(drafted):
            last = draw(P[n], random)
        found.append([*drafted[:n], last])
    return found


def test_what_is_put_out_is_distributed_as_the_target() -> None:
    found = rounds(np.random.default_rng(5))
    assert chi_square([tokens[0] for tokens in found], P[0]) < CRITICAL
    for place in (1, 2):  # rows do not depend on the tokens before: so neither may these
        assert chi_square([t[place] for t in found if len(t) > place], P[place]) < CRITICAL


def test_the_chi_square_finds_a_wrong_residual() -> None:
    found = rounds(np.random.default_rng(5), mistake=True)
    assert chi_square([tokens[0] for tokens in found], P[0]) > CRITICAL


def test_the_acceptance_rate_is_the_overlap() -> None:
    found = rounds(np.random.default_rng(6))
    accepted = sum(len(tokens) > 1 for tokens in found) / DRAWS
    overlap = np.minimum(P[0], Q[0]).sum()
    assert abs(accepted - overlap) < 4 * np.sqrt(overlap * (1 - overlap) / DRAWS)


def test_greedy_accepts_the_longest_prefix_that_agrees() -> None:
    one_hot = np.eye(5)
    random = np.random.default_rng(0)
    for drafted, expected in [
        ([1, 2], (2, 3)),
        ([1, 4], (1, 2)),
        ([4, 2], (0, 1)),
    ]:
        assert verify(one_hot[[1, 2, 3]], one_hot[drafted], drafted, random) == expected


def test_nothing_drafted_is_plain_decoding() -> None:
    random = np.random.default_rng(0)
    assert verify(np.eye(5)[[3]], np.zeros((0, 5)), [], random) == (0, 3)


def test_equal_distributions_accept_everything() -> None:
    random = np.random.default_rng(1)
    for _ in range(2000):
        drafted = [draw(row, random) for row in P[:2]]
        assert verify(P, P[:2], drafted, random)[0] == 2


def test_a_residual_that_rounding_has_emptied_is_the_target() -> None:
    p, q = np.array([[0.0, 1.0], [0.5, 0.5]]), np.array([[0.5, 1.0]])
    assert verify(p, q, [0], np.random.default_rng(0)) == (0, 1)


def test_greedy_probabilities_are_the_first_argmax() -> None:
    logits = torch.tensor([[0.0, 2.0, 2.0], [5.0, 1.0, 0.0]])
    assert probabilities(logits, GREEDY).tolist() == [[0, 1, 0], [1, 0, 0]]


def test_temperature_scales_logits() -> None:
    found = probabilities(torch.tensor([[0.0, 1.0]]), Sampling(temperature=0.5))
    assert found[0, 1] / found[0, 0] == pytest.approx(np.exp(2), rel=1e-12)


def test_top_k_keeps_exactly_k() -> None:
    logits = torch.tensor([[1.0, 3.0, 3.0, 3.0]])
    found = probabilities(logits, Sampling(temperature=1.0, top_k=2))
    assert found.tolist() == [[0, 0.5, 0.5, 0]]


def test_top_p_keeps_the_smallest_set_that_reaches_it() -> None:
    logits = torch.tensor([[0.2, 0.5, 0.3]], dtype=torch.float64).log()
    for top_p, kept in [(0.4, 1), (0.6, 2), (0.9, 3), (1.0, 3)]:
        found = probabilities(logits, Sampling(temperature=1.0, top_p=top_p))
        assert (found > 0).sum() == kept
        assert found.sum() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("min_p", [None, 0.1])
def test_filters_agree_with_transformers(seed: int, min_p: float | None) -> None:
    from transformers import (
        MinPLogitsWarper,
        TemperatureLogitsWarper,
        TopKLogitsWarper,
        TopPLogitsWarper,
    )

    logits = torch.randn(3, 50, generator=torch.Generator().manual_seed(seed))
    ids = torch.zeros((3, 1), dtype=torch.int64)
    expected = logits
    warpers = [TemperatureLogitsWarper(0.7), TopKLogitsWarper(20), TopPLogitsWarper(0.8)]
    for warper in (*warpers, *([MinPLogitsWarper(min_p)] if min_p else [])):
        expected = warper(ids, expected)
    found = probabilities(logits, Sampling(temperature=0.7, top_k=20, top_p=0.8, min_p=min_p))
    np.testing.assert_allclose(found, expected.softmax(-1).numpy(), rtol=1e-5, atol=0)


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("temperature", -1.0, "temperature must be a number from 0 on, not -1.0"),
        ("temperature", float("nan"), "temperature must be a number from 0 on, not nan"),
        ("top_k", 0, "top_k must be an integer of at least 1, not 0"),
        ("top_k", 2.5, "top_k must be an integer of at least 1, not 2.5"),
        ("top_k", True, "top_k must be an integer of at least 1, not True"),
        ("temperature", True, "temperature must be a number from 0 on, not True"),
        ("temperature", float("inf"), "temperature must be a number from 0 on, not inf"),
        ("top_p", True, "top_p must be above 0 and at most 1, not True"),
        ("top_p", float("nan"), "top_p must be above 0 and at most 1, not nan"),
        ("top_p", 0.0, "top_p must be above 0 and at most 1, not 0.0"),
        ("min_p", -0.1, "min_p must be from 0 to 1, not -0.1"),
    ],
)
def test_bad_settings_are_named(field: str, value: float, text: str) -> None:
    with pytest.raises(CassandraError, match=text):
        Sampling(**{field: value})  # type: ignore[arg-type]
