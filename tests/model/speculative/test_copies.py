"""Copies in the loop, and in a model's replies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import pytest
import torch

from cassandra_spec.drafting import Counters, ReadBytes, Sampling, Settings, draw, verify
from cassandra_spec.model.speculative import CassandraForCausalLM, decode
from cassandra_spec.model.speculative import loop as loop_module
from tests.model.speculative.test_loop import Script, flat

Kind = Literal["lookup", "hybrid"]
KINDS: tuple[Kind, ...] = ("lookup", "hybrid")


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
    script, counters = Script(wrong=wrong, stop_at=stop_at), Counters()
    asked = Settings(draft=kind, gamma=gamma, max_tokens=40, stop_tokens=frozenset({19}))
    found = flat(list(decode(script, [1, 2, 3], asked, counters)))
    last = 43 if stop_at is None else stop_at + 1
    assert found == [script.truth(place) for place in range(3, last)]
    assert counters.copies.accepted <= counters.copies.drafted
    assert len(script.drafted) == counters.passes


def test_copies_take_no_pass_and_are_counted() -> None:
    # 3 4 5 6 0 1 2 3 4 5 | 6 0 1 2 ...: the run 3 4 5 comes again after ten tokens of the reply
    script, counters = Script(), Counters()
    asked = Settings(draft="lookup", gamma=4, max_tokens=25)
    list(decode(script, [9, 9, 9], asked, counters))
    assert script.drafted == []
    assert counters.drafted == counters.accepted > 8
    assert counters.copies.drafted == counters.copies.accepted == counters.drafted
    assert counters.rounds < 16
    assert counters.kv is not None
    assert counters.kv.draft == 0
    assert counters.draft_positions == 0


def test_a_copy_ends_with_a_stop_token() -> None:
    prompt = [5, 19, 8, 8, 0, 1, 2, 5, 19, 3, 0, 1]  # the reply begins with 5 = 12 % 7
    script = Script()
    script.truth = lambda position: [2, 5, 19, 0][position - 12]  # type: ignore[method-assign]
    asked = Settings(draft="lookup", gamma=4, max_tokens=25, stop_tokens=frozenset({19}))
    counters = Counters()
    assert flat(list(decode(script, prompt, asked, counters))) == [2, 5, 19]
    assert (counters.copies.drafted, counters.copies.accepted) == (2, 2)


def test_copies_that_fail_are_given_up_for_a_draft_that_does_not() -> None:
    """The prompt has every run, with any continuation; the model's draft is always right."""
    counts = {}
    random = np.random.default_rng(1)
    noise = [int(token) for token in random.integers(0, 7, 3000)]  # every run of 3 is in it
    gammas: tuple[int | Literal["adaptive"], ...] = (4, "adaptive")
    for gamma in gammas:
        script, counters = Script(), Counters()
        asked = Settings(draft="hybrid", gamma=gamma, max_tokens=60)
        list(decode(script, noise, asked, counters))
        counts[gamma] = counters.copies.drafted - counters.copies.accepted
    assert counts["adaptive"] < counts[4]


class Chain:
    """A target whose next token depends on the last one, and a draft that knows nothing."""

    P = np.array([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.25, 0.25, 0.5]])
    weights = ReadBytes(draft=30, target=70, bf16=100)

    def target(self, tokens: Sequence[int], position: int, *, last: int) -> torch.Tensor:
        return torch.from_numpy(np.log(self.P[list(tokens[-last:])])).float()

    def draft(self, tokens: Sequence[int], position: int) -> torch.Tensor:
        return torch.zeros(1, 3)

    def commit(self, position: int) -> None: ...

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


def transitions(kind: Kind) -> tuple[float, Counters]:
    """Chi-square of a sampled reply's pairs against the chain."""
    counters = Counters()
    asked = Settings(
        draft=kind, gamma=3, max_tokens=SAMPLED, sampling=Sampling(temperature=1.0), seed=3
    )
    tokens = np.array(flat(list(decode(Chain(), [0, 1, 2], asked, counters))))
    counts = np.zeros((3, 3))
    np.add.at(counts, (tokens[:-1], tokens[1:]), 1)
    wanted = counts.sum(axis=1, keepdims=True) * Chain.P
    return float(((counts - wanted) ** 2 / wanted).sum()), counters


@pytest.mark.parametrize("kind", KINDS)
def test_sampled_replies_with_copies_are_distributed_as_the_target(kind: Kind) -> None:
    found, counters = transitions(kind)
    assert found < CRITICAL
    assert 1000 < counters.copies.accepted < counters.copies.drafted - 1000


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
