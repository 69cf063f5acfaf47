"""Prompt lookup against a search that looks at every place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cassandra_spec.golden import CassandraError
from cassandra_spec.model.speculative import (
    CassandraForCausalLM,
    ReadBytes,
    Sampling,
    Settings,
    Tally,
    decode,
)
from cassandra_spec.model.speculative import loop as loop_module
from cassandra_spec.model.speculative.lookup import Lookup
from cassandra_spec.model.speculative.sampling import draw, verify
from tests.model.speculative.test_loop import Script, flat

Kind = Literal["lookup", "hybrid"]
KINDS: tuple[Kind, ...] = ("lookup", "hybrid")


def naive(tokens: list[int], most: int, longest: int, shortest: int) -> list[int]:
    for length in range(longest, shortest - 1, -1):
        last = tokens[-length:]
        for start in range(len(tokens) - 1, length - 1, -1):
            if len(last) == length and tokens[start - length : start] == last:
                copied = list(tokens)
                for step in range(most):
                    copied.append(copied[start + step])
                return copied[len(tokens) :]
    return []


@settings(derandomize=True, deadline=None, max_examples=300)
@given(
    st.lists(st.integers(0, 2), max_size=30),
    st.integers(0, 9),
    st.integers(1, 5),
    st.integers(1, 5),
)
def test_what_is_found_is_what_a_search_finds(
    tokens: list[int], most: int, one: int, other: int
) -> None:
    shortest, longest = sorted((one, other))
    lookup = Lookup(longest=longest, shortest=shortest)
    for place, token in enumerate(tokens):
        lookup.extend([token])
        seen = tokens[: place + 1]
        assert lookup.find(most) == naive(seen, most, longest, shortest)


def test_a_loop_is_continued() -> None:
    assert Lookup([1, 2, 3, 1, 2, 3], longest=3, shortest=3).find(7) == [1, 2, 3, 1, 2, 3, 1]


def test_the_longest_run_counts_and_then_the_latest() -> None:
    tokens = [5, 1, 2, 7, 9, 1, 2, 8, 5, 1, 2]
    assert Lookup(tokens, longest=3, shortest=2).find(1) == [7]
    assert Lookup(tokens, longest=2, shortest=2).find(1) == [8]
    assert Lookup(tokens, longest=4, shortest=4).find(1) == []


@pytest.mark.parametrize("shortest", [0, 5])
def test_lengths_are_checked(shortest: int) -> None:
    with pytest.raises(CassandraError, match=f"shortest must be from 1 to 4.*not {shortest}"):
        Lookup(shortest=shortest)


# --- in the loop ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("gamma", [1, 2, 3, 8, "adaptive"])
@pytest.mark.parametrize("wrong", [(), (12, 20, 21), tuple(range(60))])
@pytest.mark.parametrize("stop_at", [None, 17, 18, 24])
def test_the_reply_is_the_targets_whatever_is_copied(
    kind: Kind,
    gamma: int | Literal["adaptive"],
    wrong: tuple[int, ...],
    stop_at: int | None,
) -> None:
    script, tally = Script(wrong=wrong, stop_at=stop_at), Tally()
    asked = Settings(draft=kind, gamma=gamma, max_tokens=40, stop_tokens=frozenset({19}))
    found = flat(list(decode(script, [1, 2, 3], asked, tally)))
    last = 43 if stop_at is None else stop_at + 1
    assert found == [script.truth(place) for place in range(3, last)]
    assert tally.copied_accepted <= tally.copied
    assert len(script.drafted) == tally.passes


def test_copies_take_no_pass_and_are_counted() -> None:
    # 3 4 5 6 0 1 2 3 4 5 | 6 0 1 2 ...: the run 3 4 5 comes again after ten tokens of the reply
    script, tally = Script(), Tally()
    asked = Settings(draft="lookup", gamma=4, max_tokens=25)
    list(decode(script, [9, 9, 9], asked, tally))
    assert script.drafted == []
    assert tally.copied == tally.drafted == tally.accepted == tally.copied_accepted > 8
    assert tally.rounds < 16
    assert tally.kv is not None
    assert tally.kv.draft == 0
    assert tally.draft_positions == 0


def test_a_copy_ends_with_a_stop_token() -> None:
    prompt = [5, 19, 8, 8, 0, 1, 2, 5, 19, 3, 0, 1]  # the reply begins with 5 = 12 % 7
    script = Script()
    script.truth = lambda position: [2, 5, 19, 0][position - 12]  # type: ignore[method-assign]
    asked = Settings(draft="lookup", gamma=4, max_tokens=25, stop_tokens=frozenset({19}))
    tally = Tally()
    assert flat(list(decode(script, prompt, asked, tally))) == [2, 5, 19]
    assert (tally.copied, tally.copied_accepted) == (2, 2)


def test_copies_that_fail_are_given_up_for_a_draft_that_does_not() -> None:
    """The prompt has every run, with any continuation; the model's draft is always right."""
    counts = {}
    random = np.random.default_rng(1)
    noise = [int(token) for token in random.integers(0, 7, 3000)]  # every run of 3 is in it
    gammas: tuple[int | Literal["adaptive"], ...] = (4, "adaptive")
    for gamma in gammas:
        script, tally = Script(), Tally()
        asked = Settings(draft="hybrid", gamma=gamma, max_tokens=60)
        list(decode(script, noise, asked, tally))
        counts[gamma] = tally.copied - tally.copied_accepted
    assert counts["adaptive"] < counts[4]


class Chain:
    """A target whose next token depends on the last one, and a draft that knows nothing."""

    P = np.array([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.25, 0.25, 0.5]])
    weights = ReadBytes(draft=30, target=70, bf16=100)

    def target(self, tokens: Sequence[int], position: int, *, last: int) -> torch.Tensor:
        return torch.from_numpy(np.log(self.P[list(tokens[-last:])])).float()

    def draft(self, tokens: Sequence[int], position: int) -> torch.Tensor:
        return torch.zeros(1, 3)

    def settle(self, position: int) -> None: ...

    def reads(self, position: int) -> ReadBytes:
        return ReadBytes()

    def stored(self) -> ReadBytes:
        return ReadBytes()


SAMPLED = 12_000
# Critical value of chi-square with 6 degrees of freedom (three rows of three tokens) at
# significance 1e-4. Copies follow what is likely, so drawing the recovered token from p instead of
# the rest of it (what a wrong q would do) shifts some probability of every row by .05 and more: a
# noncentrality above 12000 / 3 * .05 ** 2 / .5 = 20 from one such cell alone, and of 150 and more
# from all of them, as found below: power beyond .999.
CRITICAL = 27.86


def transitions(kind: Kind) -> tuple[float, Tally]:
    """Chi-square of a sampled reply's pairs against the chain."""
    tally = Tally()
    asked = Settings(
        draft=kind, gamma=3, max_tokens=SAMPLED, sampling=Sampling(temperature=1.0), seed=3
    )
    tokens = np.array(flat(list(decode(Chain(), [0, 1, 2], asked, tally))))
    counts = np.zeros((3, 3))
    np.add.at(counts, (tokens[:-1], tokens[1:]), 1)
    wanted = counts.sum(axis=1, keepdims=True) * Chain.P
    return float(((counts - wanted) ** 2 / wanted).sum()), tally


@pytest.mark.parametrize("kind", KINDS)
def test_sampled_replies_with_copies_are_distributed_as_the_target(kind: Kind) -> None:
    found, tally = transitions(kind)
    assert found < CRITICAL
    assert 1000 < tally.copied_accepted < tally.copied - 1000


def test_the_chi_square_finds_a_recovered_token_from_the_wrong_distribution(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def mistaken(
        p: np.ndarray, q: np.ndarray, drafted: Sequence[int], random: np.random.Generator
    ) -> tuple[int, int]:
        n, last = verify(p, q, drafted, random)
        return n, draw(p[n], random) if n < len(drafted) else last

    monkeypatch.setattr(loop_module, "verify", mistaken)
    assert transitions("lookup")[0] > 150


# --- on a model -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_replies_as_plain_decoding_does(kind: Kind, lm: CassandraForCausalLM) -> None:
    prompts = ("word5 word9 word11", "word7 word8 word7 word8 word7 word8")
    plain = lm.reply(prompts, Settings(gamma=0, max_tokens=80))
    gammas: tuple[int | Literal["adaptive"], ...] = (2, 7, "adaptive")
    for gamma in gammas:
        asked = Settings(draft=kind, gamma=gamma, max_tokens=80)
        found = lm.reply(prompts, asked)
        assert found.tokens == plain.tokens
        assert found.report.copied <= found.report.drafted


def test_an_unknown_draft_is_refused() -> None:
    text = "draft must be one of 'model', 'lookup', 'hybrid', not 'copy'"
    with pytest.raises(CassandraError, match=text):
        Settings(draft="copy")  # type: ignore[arg-type]
