"""Levels of drafting in the loop, and in a model's replies."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cassandra_spec.drafting import (
    LOW,
    ROOT,
    Acceptance,
    Counters,
    Gamma,
    Levels,
    Node,
    ReadBytes,
    Sampling,
    Settings,
    decode,
    draw,
    verify,
)
from cassandra_spec.drafting.choice import chooser
from cassandra_spec.model.speculative import CassandraForCausalLM, KeyValueFormat
from tests.model.speculative.test_key_values import EXACT, MX, UNARY
from tests.model.speculative.test_loop import Script, flat
from tests.model.speculative.test_passes import tokens_of

Kind = Literal["lookup", "hybrid"]
KINDS: tuple[Kind, ...] = ("lookup", "hybrid")
CHAINS = Levels(branches=1, alternatives=0)


class Table:
    """Candidates after one token: those that the sums of its digits name, right or wrong."""

    def candidates(self, tail: Sequence[int]) -> list[tuple[int, float]]:
        last = tail[-1]
        return [((last + 1) % 7, 0.5), ((last * 3 + 1) % 7, 0.3), ((last + 5) % 7, 0.1)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("gamma", [1, 2, 3, 8, "adaptive"])
@pytest.mark.parametrize("levels", [Levels(), CHAINS, Levels(low=7, tail=False)], ids=repr)
@pytest.mark.parametrize("wrong", [(), (12, 20, 21), tuple(range(60))])
@pytest.mark.parametrize("stop_at", [None, 17, 18, 24])
def test_the_reply_is_the_targets_whatever_is_drafted(
    kind: Kind, gamma: Gamma, levels: Levels, wrong: tuple[int, ...], stop_at: int | None
) -> None:
    script, counters = Script(wrong=wrong, stop_at=stop_at), Counters()
    asked = Settings(
        draft=kind, gamma=gamma, levels=levels, max_tokens=40, stop_tokens=frozenset({19})
    )
    found = flat(list(decode(script, [1, 2, 3], asked, counters, table=Table())))
    last = 43 if stop_at is None else stop_at + 1
    assert found == [script.truth(place) for place in range(3, last)]
    assert len(script.drafted) == counters.passes
    assert sum(source.drafted for source in counters.sources.values()) == counters.drafted
    assert sum(source.accepted for source in counters.sources.values()) == counters.accepted


def test_low_drafters_take_no_pass_and_are_counted() -> None:
    # 3 4 5 6 0 1 2 3 4 5 | 6 0 1 2 ...: the run 3 4 5 comes again after seven tokens of the reply
    script, counters = Script(), Counters()
    asked = Settings(draft="lookup", gamma=4, levels=CHAINS, max_tokens=25)
    list(decode(script, [9, 9, 9], asked, counters))
    assert script.drafted == []
    assert counters.accepted > 8
    assert counters.copies.accepted + counters.sources["recycled"].accepted == counters.accepted
    assert counters.rounds < 16
    assert counters.kv is not None
    assert counters.kv.draft == 0
    assert counters.draft_positions == 0


def test_a_pass_of_the_draft_view_drafts_what_agrees_with_the_low_drafter() -> None:
    """The reply repeats itself: from some place on each pass drafts four tokens."""
    script, alone = Script(), Script()
    counts = []
    for each, low in ((script, 3), (alone, 0)):
        counters = Counters()
        levels = Levels(branches=1, low=low, tail=False, alternatives=0)
        asked = Settings(draft="hybrid", gamma=8, levels=levels, max_tokens=60)
        list(decode(each, [1, 2, 3], asked, counters))
        counts.append((counters.drafted, counters.accepted, counters.rounds))
    assert counts[0] == counts[1]  # the chain of a round is the same
    assert len(alone.drafted) == counts[1][0]
    assert len(script.drafted) < len(alone.drafted) / 2
    assert max(len(nodes) for _, nodes in script.rows) == 3


def test_positions_of_passes_count_all_their_rows() -> None:
    script, counters = Script(), Counters()
    asked = Settings(draft="hybrid", gamma=5, max_tokens=30)
    list(decode(script, [1, 2, 3], asked, counters))
    ends = [position + 1 + len(nodes) for position, nodes in script.rows]
    assert counters.draft_positions == sum(ends)
    ends = [position + len(tokens) for tokens, position in script.verified]
    assert counters.target_positions == sum(ends)


def test_a_copy_ends_with_a_stop_token() -> None:
    prompt = [5, 19, 8, 8, 0, 1, 2, 5, 19, 3, 0, 1]
    script = Script()
    script.truth = lambda position: [2, 5, 19, 0][position - 12]  # type: ignore[method-assign]
    asked = Settings(
        draft="lookup", gamma=4, levels=CHAINS, max_tokens=25, stop_tokens=frozenset({19})
    )
    counters = Counters()
    assert flat(list(decode(script, prompt, asked, counters))) == [2, 5, 19]
    assert (counters.copies.drafted, counters.copies.accepted) == (2, 2)


def test_low_drafts_that_fail_are_given_up_for_a_draft_that_does_not() -> None:
    """The prompt has every run, with any continuation; the model's draft is always right."""
    counts = {}
    random = np.random.default_rng(1)
    noise = [int(token) for token in random.integers(0, 7, 3000)]  # every run of 3 is in it
    gammas: tuple[Gamma, ...] = (4, "adaptive")
    for gamma in gammas:
        script, counters = Script(), Counters()
        asked = Settings(draft="hybrid", gamma=gamma, max_tokens=60)
        list(decode(script, noise, asked, counters))
        counts[gamma] = counters.rounds
    assert counts["adaptive"] <= counts[4]


class Markov:
    """A target whose next token depends on the last one, and a draft that knows nothing."""

    P = np.array([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.25, 0.25, 0.5]])
    weights = ReadBytes(draft=30, target=70, bf16=100)

    def prompt(self, tokens: Sequence[int]) -> torch.Tensor:
        return self.target(tokens[-1], (), 0)

    def target(self, pending: int, nodes: Sequence[Node], position: int) -> torch.Tensor:
        return torch.from_numpy(np.log(self.P[[pending, *(n.token for n in nodes)]])).float()

    def draft(self, pending: int, nodes: Sequence[Node], position: int) -> torch.Tensor:
        return torch.zeros(1 + len(nodes), 3)

    def keep(self, path: Sequence[int]) -> None: ...

    def commit(self, position: int) -> None: ...

    def reads(self, position: int) -> ReadBytes:
        return ReadBytes()

    def stored(self) -> ReadBytes:
        return ReadBytes()


SAMPLED = 12_000
# Critical value of chi-square with 6 degrees of freedom (three rows of three tokens) at
# significance 1e-4. Low drafters follow what is likely, so drawing the recovered token from p
# instead of the rest of it (what a wrong q would do) shifts some probability of every row by .05
# and more: a noncentrality above 12000 / 3 * .05 ** 2 / .5 = 20 from one such cell alone, and of
# 150 and more from all of them, as found below: power beyond .999.
CRITICAL = 27.86


def transitions(kind: Kind, acceptance: Acceptance) -> tuple[float, Counters]:
    """Chi-square of a sampled reply's pairs against the chain."""
    counters = Counters()
    asked = Settings(
        draft=kind,
        gamma=3,
        max_tokens=SAMPLED,
        sampling=Sampling(temperature=1.0),
        acceptance=acceptance,
        seed=3,
    )
    tokens = np.array(flat(list(decode(Markov(), [0, 1, 2], asked, counters))))
    counts = np.zeros((3, 3))
    np.add.at(counts, (tokens[:-1], tokens[1:]), 1)
    wanted = counts.sum(axis=1, keepdims=True) * Markov.P
    return float(((counts - wanted) ** 2 / wanted).sum()), counters


@pytest.mark.parametrize("acceptance", ["noise", "rejection"])
@pytest.mark.parametrize("kind", KINDS)
def test_sampled_replies_with_levels_are_distributed_as_the_target(
    kind: Kind, acceptance: Acceptance
) -> None:
    """In a hybrid, chains of the draft view are followed by tails, in one verification."""
    found, counters = transitions(kind, acceptance)
    assert found < CRITICAL
    low = [counters.sources[name] for name in LOW if name in counters.sources]
    accepted, drafted = (sum(n) for n in zip(*((x.accepted, x.drafted) for x in low), strict=True))
    assert 500 < accepted < drafted - 500
    assert ("model" in counters.sources) == (kind == "hybrid")
    assert kind == "lookup" or counters.passes < counters.sources["model"].drafted - 500


@pytest.mark.parametrize("kind", KINDS)
def test_the_chi_square_finds_a_recovered_token_from_the_wrong_distribution(
    kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mistaken(
        p: Iterable[np.ndarray], q: np.ndarray, drafted: Sequence[int], random: np.random.Generator
    ) -> tuple[int, int]:
        rows = list(p)
        n, last = verify(rows, q, drafted, random)
        return n, draw(rows[n], random) if n < len(drafted) else last

    monkeypatch.setattr(chooser, "verify", mistaken)
    assert transitions(kind, "rejection")[0] > 150


# --- on a model -----------------------------------------------------------------------------------

FORMATS = {
    "bf16": None,
    "exact": EXACT,
    "unary": UNARY,
    "mx": MX,
    "block 32": KeyValueFormat(format=MX.format, block=32, lag=15),
}


def trees(most: int, tokens: int) -> st.SearchStrategy[list[Node]]:
    """Return trees of up to ``most`` nodes."""
    node = st.tuples(st.integers(0, most), st.integers(2, tokens - 1))
    return st.lists(node, max_size=most).map(
        lambda drawn: [
            Node(token, at % (place + 1) - 1, 0.5, "test")
            for place, (at, token) in enumerate(drawn)
        ]
    )


def path_to(nodes: Sequence[Node], at: int) -> list[int]:
    return [] if at == ROOT else [*path_to(nodes, nodes[at].parent), at]


@pytest.mark.parametrize("kv", FORMATS.values(), ids=FORMATS)
@pytest.mark.parametrize("draft", [False, True])
@settings(max_examples=12, derandomize=True, deadline=None)
@given(length=st.integers(1, 60), nodes=trees(8, 96), data=st.data())
def test_rows_of_a_tree_are_those_of_plain_passes(
    lm: CassandraForCausalLM,
    kv: KeyValueFormat | None,
    draft: bool,
    length: int,
    nodes: list[Node],
    data: st.DataObject,
) -> None:
    """Bit for bit, and so are the passes after it, whatever path is kept."""
    prompt, pending = tokens_of(length), 5
    end = data.draw(st.integers(ROOT, len(nodes) - 1))
    leaves = {ROOT, *range(len(nodes))} - {node.parent for node in nodes} | {end}
    tree = prepared(lm, prompt, kv)
    found = (tree.draft if draft else tree.target)(pending, nodes, length)
    kept = path_to(nodes, end)
    tree.keep(kept)
    for leaf in sorted(leaves):
        path = path_to(nodes, leaf)
        plain = prepared(lm, prompt, kv)
        run = plain.draft if draft else plain.target
        tokens = [pending, *(nodes[at].token for at in path)]
        for depth, token in enumerate(tokens):
            expected = run(token, (), length + depth)
            assert torch.equal(found[[0, *(at + 1 for at in path)][depth]], expected[0])
        if leaf == end:
            after = length + len(tokens)
            if not draft:
                tree.commit(after)
                plain.commit(after)
                assert tree.cache.sealed == plain.cache.sealed
                assert tree.reads(after) == plain.reads(after)
            follow = (tree.draft(7, (), after), plain.draft(7, (), after))
            assert torch.equal(*follow)
            assert draft or torch.equal(tree.target(7, (), after), plain.target(7, (), after))


def prepared(lm: CassandraForCausalLM, prompt: list[int], kv: KeyValueFormat | None) -> Any:
    """Return a session that has seen a prompt."""
    session = lm.session(80, kv=kv)
    session.commit(len(prompt))
    session.prompt(prompt)
    session.commit(len(prompt))
    return session


@dataclasses.dataclass(frozen=True)
class Memory:
    """A table that knows replies: what follows each of their tokens, among others."""

    after: dict[int, list[int]]

    @classmethod
    def of(cls, replies: Sequence[Sequence[int]]) -> Memory:
        after: dict[int, list[int]] = {}
        for reply in replies:
            for token, follows in itertools.pairwise(reply):
                after.setdefault(token, []).append(follows)
        return cls(after)

    def candidates(self, tail: Sequence[int]) -> list[tuple[int, float]]:
        known = dict.fromkeys([*self.after.get(tail[-1], [])[:2], (tail[-1] + 1) % 96])
        return [(token, 0.6 / (rank + 1)) for rank, token in enumerate(known)]


LEVELS = [
    Levels(),
    Levels(low=0, rows=0, alternatives=0),
    Levels(low=7, rows=8, alternatives=3, alternative_margin=1e9),
    Levels(low=7, branches=1, rows=8, alternatives=1),
    Levels(low=3, branches=2, rows=5, tail=False, alternatives=2, alternative_margin=1e9),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("levels", LEVELS, ids=range(len(LEVELS)))
def test_a_model_replies_as_plain_decoding_does(
    kind: Kind, levels: Levels, lm: CassandraForCausalLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = ("word5 word9 word11", "word7 word8 word7 word8 word7 word8")
    plain = lm.reply(prompts, Settings(gamma=0, max_tokens=60))
    monkeypatch.setattr(lm, "table", Memory.of(plain.tokens))
    gammas: tuple[Gamma, ...] = (2, 7, "adaptive")
    for gamma in gammas:
        found = lm.reply(prompts, Settings(draft=kind, gamma=gamma, levels=levels, max_tokens=60))
        assert found.tokens == plain.tokens
        nothing = kind == "lookup" and gamma == "adaptive" and not levels.rows
        assert (found.report.accepted == 0) == nothing


@pytest.mark.parametrize("name", ["exact", "mx"])
def test_sealed_keys_and_values_and_trees_reply_as_plain_decoding_does(
    name: str, lm: CassandraForCausalLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lm, "kv", FORMATS[name])
    prompts = ("word5 word9 word11 word5 word9",)
    plain = lm.reply(prompts, Settings(gamma=0, max_tokens=60))
    monkeypatch.setattr(lm, "table", Memory.of(plain.tokens))
    for levels in LEVELS:
        found = lm.reply(prompts, Settings(draft="hybrid", gamma=4, levels=levels, max_tokens=60))
        assert found.tokens == plain.tokens
