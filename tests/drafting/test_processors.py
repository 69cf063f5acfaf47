"""Penalties and biases beside their definitions, and a chooser beside whole histories."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cassandra_spec.drafting import (
    Bias,
    Chooser,
    Node,
    Penalties,
    Proposal,
    Sampling,
    Score,
    Settings,
    score,
)
from cassandra_spec.golden import CassandraError
from tests.drafting.processors import PROCESSORS, Alternate, naive_reply, naive_score, require_close

VOCABULARY = 12
TOKENS = st.lists(st.integers(0, VOCABULARY - 1), max_size=12)
NUMBERS = st.floats(-3, 3, width=32)


def rows(seed: int) -> dict[tuple[int, ...], np.ndarray]:
    """Return a target: the row after each sequence of tokens, made when it is asked for."""

    class Rows(dict[tuple[int, ...], np.ndarray]):
        def __missing__(self, key: tuple[int, ...]) -> np.ndarray:
            random = np.random.default_rng([seed, *key])
            self[key] = random.normal(0, 2, VOCABULARY).astype(np.float32)
            return self[key]

    return Rows()


@given(TOKENS, TOKENS, NUMBERS, NUMBERS, st.floats(0.25, 4))
def test_penalties_are_those_of_their_definitions(
    prompt: list[int], reply: list[int], frequency: float, presence: float, repetition: float
) -> None:
    penalties = Penalties(repetition=repetition, frequency=frequency, presence=presence)
    state, row = penalties.begin(prompt), np.linspace(-3, 3, VOCABULARY).astype(np.float32)
    for token in reply:
        state.advance(token)
    found = row.copy()
    state.apply(found)
    for token, logit in enumerate(row.tolist()):
        expected = logit
        if token in prompt or token in reply:
            expected = logit * repetition if logit < 0 else logit / repetition
        count = reply.count(token)
        expected -= count * frequency + (count > 0) * presence
        assert found[token] == pytest.approx(expected, rel=1e-5, abs=1e-5)


def test_repetition_is_that_of_transformers() -> None:
    import torch
    from transformers import RepetitionPenaltyLogitsProcessor

    row = np.random.default_rng(1).normal(0, 3, 50).astype(np.float32)
    ids = [3, 9, 9, 40]
    expected = RepetitionPenaltyLogitsProcessor(1.7)(torch.tensor([ids]), torch.tensor(row[None]))
    state = Penalties(repetition=1.7).begin(ids[:2])
    for token in ids[2:]:
        state.advance(token)
    state.apply(row)
    np.testing.assert_array_equal(row, expected[0].numpy())


def test_a_bias_is_added() -> None:
    row = np.zeros(5, np.float32)
    Bias(((1, 2.5), (4, -100.0))).begin([]).apply(row)
    assert row.tolist() == [0, 2.5, 0, 0, -100]


@given(
    st.integers(0, 1000),
    st.sampled_from([(), *PROCESSORS]),
    st.booleans(),
    st.integers(0, VOCABULARY - 1),
    st.data(),
)
def test_a_chooser_walks_as_plain_decoding(
    seed: int, processors: tuple, sampled: bool, stop: int, data: st.DataObject
) -> None:
    """A chooser walks over random trees, and over chains of drawn tokens; some tokens are right."""
    processors = tuple(each for each in processors if not isinstance(each, Bias))
    sampling = Sampling(temperature=1.0, min_p=0.05) if sampled else Sampling()
    target, prompt = rows(seed), [1, 2]
    settings = Settings(
        max_tokens=12,
        processors=processors,
        sampling=sampling,
        seed=seed,
        logprobs=2,
        stop_tokens=frozenset({stop}),
    )
    reply, expected = naive_reply(lambda tokens: target[tuple(tokens)], prompt, settings)
    scores, found = list[Score](), list[int]()
    chooser = Chooser(prompt, settings, scores=scores)
    while len(found) < len(reply):
        nodes, paths = list[Node](), [tuple(prompt + found)]
        for _ in range(0 if sampled else data.draw(st.integers(0, 6))):
            parent = data.draw(st.integers(0, len(nodes)))
            depth = len(paths[parent]) - len(prompt)
            right = reply[depth] if depth < len(reply) else 0
            token = right if data.draw(st.booleans()) else data.draw(st.integers(0, 11))
            nodes.append(Node(token, parent - 1, 1.0, "test"))
            paths.append((*paths[parent], token))
        proposal = Proposal(nodes=tuple(nodes))
        path, last = chooser.choose(proposal, np.stack([target[each] for each in paths]))
        emitted = [*(nodes[at].token for at in path), last][: len(reply) - len(found)]
        chooser.settle(len(emitted))
        found += emitted
    assert found == reply
    for found_score, naive in zip(scores, expected, strict=True):
        require_close(found_score, naive)


def test_samples_with_drafts_obey_a_mask() -> None:
    target, accepted = rows(3), 0
    settings = Settings(
        processors=(Alternate(2),), sampling=Sampling(temperature=1.0), seed=1, max_tokens=200
    )
    chooser, random, tokens = Chooser([1], settings), np.random.default_rng(2), [1]
    while len(tokens) < 200:
        drafted = random.integers(0, VOCABULARY, 3).tolist()
        paths = [tuple(tokens[-2:] + drafted[:count]) for count in range(4)]
        proposal = Proposal.chain(drafted, [1.0] * 3, "test")
        path, last = chooser.choose(proposal, np.stack([target[each] for each in paths]))
        accepted += len(path)
        tokens += [*drafted[: len(path)], last]
    assert accepted > 10
    for at in range(1, len(tokens)):
        assert tokens[at] % 2 == sum(tokens[:at]) % 2


class _Nothing:
    def begin(self, prompt: object) -> _Nothing:
        return self

    def apply(self, logits: np.ndarray) -> None:
        logits[:] = -np.inf

    def advance(self, token: int) -> None:
        """Do nothing."""


def test_what_leaves_no_token_is_an_error() -> None:
    settings = Settings(processors=(_Nothing(),))
    with pytest.raises(CassandraError, match="processors must leave at least one token"):
        Chooser([1], settings).first(np.zeros(5, np.float32))


@given(st.lists(NUMBERS, min_size=5, max_size=5), st.integers(0, 4), st.integers(0, 6))
def test_scores_are_log_probabilities(row: list[float], token: int, count: int) -> None:
    logits = np.array(row, np.float32)
    require_close(score(logits, token, count), naive_score(logits, token, count))


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"frequency": float("nan")}, "frequency must be a finite number, not nan"),
        ({"repetition": 0.0}, "repetition must be above 0, not 0.0"),
    ],
)
def test_bad_penalties_are_named(fields: dict[str, float], line: str) -> None:
    with pytest.raises(CassandraError, match=line):
        Penalties(**fields)


def test_bad_settings_are_named() -> None:
    with pytest.raises(CassandraError, match="logprobs must be an integer from 0 on, not -1"):
        Settings(logprobs=-1)
    with pytest.raises(CassandraError, match="prompt_logprobs must be false without logprobs"):
        Settings(prompt_logprobs=True)
    with pytest.raises(CassandraError, match="bias of token 3 must be a finite number, not inf"):
        Bias(((3, float("inf")),))
