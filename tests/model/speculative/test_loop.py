from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
import torch

from cassandra_spec.drafting import (
    GREEDY,
    ROOT,
    Counters,
    DrafterFactory,
    KeyValueCounters,
    Node,
    Outcome,
    Proposal,
    ReadBytes,
    Sampling,
    Settings,
    decode,
    make_drafter,
)
from cassandra_spec.drafting.counters import SourceCounters
from cassandra_spec.golden import CassandraError

VOCABULARY, STOP = 20, 19


class Script:
    """A target that counts on modulo 7 from 10 tokens on, and a draft that errs at some positions.

    The next token of both depends on the position alone; what they are asked for is recorded, and
    what :meth:`keep` keeps is held to what the next passes begin with.
    """

    def __init__(
        self,
        *,
        wrong: Sequence[int] = (),
        stop_at: int | None = None,
        unsure: Sequence[int] = (),
    ) -> None:
        self.wrong = wrong
        self.unsure = unsure
        self.stop_at = stop_at
        self.verified: list[tuple[list[int], int]] = []
        self.drafted: list[int] = []
        self.rows: list[tuple[int, tuple[Node, ...]]] = []  # position and nodes of draft passes
        self.kept: list[int] = []  # tokens that have keys and values
        self.last: tuple[int, Sequence[Node], int] = (0, (), 0)
        self.committed: list[int] = []
        self.weights = ReadBytes(draft=30, target=70, bf16=100)

    def truth(self, position: int) -> int:
        return STOP if position == self.stop_at else position % 7

    def prompt(self, tokens: Sequence[int]) -> torch.Tensor:
        self.kept = list(tokens)
        return self._logits([self.truth(len(tokens))])

    def target(self, pending: int, nodes: Sequence[Node], position: int) -> torch.Tensor:
        self.verified.append(([pending, *(node.token for node in nodes)], position))
        places = self._pass(pending, nodes, position)
        return self._logits([self.truth(place + 1) for place in places])

    def draft(self, pending: int, nodes: Sequence[Node], position: int) -> torch.Tensor:
        self.drafted.append(position)
        self.rows.append((position, tuple(nodes)))
        places = self._pass(pending, nodes, position)
        found = [8 if place + 1 in self.wrong else self.truth(place + 1) for place in places]
        sure = [0.25 if place + 1 in self.unsure else 1.0 for place in places]
        return self._logits(found) * torch.tensor(sure)[:, None]

    def _pass(self, pending: int, nodes: Sequence[Node], position: int) -> list[int]:
        """Return the position of each row; those before the first must have keys and values."""
        assert len(self.kept) >= position
        del self.kept[position:]
        self.last = (pending, nodes, position)
        places = [position]
        for node in nodes:
            places.append(places[node.parent + 1] + 1)
        return places

    def keep(self, path: Sequence[int]) -> None:
        pending, nodes, position = self.last
        assert [nodes[at].parent for at in path] == [ROOT, *path][: len(path)]
        self.kept[position:] = [pending, *(nodes[at].token for at in path)]

    def commit(self, position: int) -> None:
        self.committed.append(position)

    def reads(self, position: int) -> ReadBytes:
        return ReadBytes(draft=position, target=10 * position, bf16=100 * position)

    def stored(self) -> ReadBytes:
        return ReadBytes(draft=1, target=2, bf16=3)

    @staticmethod
    def _logits(tokens: list[int]) -> torch.Tensor:
        return torch.eye(VOCABULARY)[tokens]


def run(
    script: Script, *, gamma: int, max_tokens: int, make: DrafterFactory = make_drafter
) -> tuple[list[list[int]], Counters]:
    counters = Counters()
    settings = Settings(gamma=gamma, max_tokens=max_tokens, stop_tokens=frozenset({STOP}))
    found = list(decode(script, [1, 2, 3], settings, counters, make=make))
    return found, counters


def flat(rounds: list[list[int]]) -> list[int]:
    return list(itertools.chain.from_iterable(rounds))


@pytest.mark.parametrize("gamma", range(6))
@pytest.mark.parametrize("wrong", [(), (4,), (5, 6), (7,), tuple(range(40))])
@pytest.mark.parametrize("stop_at", [None, 3, 4, 7, 9])
def test_the_reply_is_the_targets_whatever_is_drafted(
    gamma: int, wrong: tuple[int, ...], stop_at: int | None
) -> None:
    found, counters = run(Script(wrong=wrong, stop_at=stop_at), gamma=gamma, max_tokens=12)
    last = 15 if stop_at is None else stop_at + 1
    script = Script(stop_at=stop_at)
    assert flat(found) == [script.truth(place) for place in range(3, last)]
    assert counters.tokens == last - 4


def test_a_round_verifies_what_was_drafted_and_goes_on_after_what_was_accepted() -> None:
    script = Script(wrong=(5,))
    found, counters = run(script, gamma=3, max_tokens=6)
    assert script.verified == [([3, 4, 8, 6], 3), ([5, 6, 0], 5)]
    assert script.kept == [1, 2, 3, 3, 4, 5, 6, 0]
    assert found == [[3], [4, 5], [6, 0, 1]]
    assert script.drafted == [3, 4, 5, 5, 6]
    assert (counters.drafted, counters.accepted, counters.tested, counters.rounds) == (5, 3, 4, 2)
    assert counters.lengths == {1: 1, 2: 1}


def test_no_more_is_drafted_than_can_be_emitted() -> None:
    script = Script()
    found, counters = run(script, gamma=8, max_tokens=4)
    assert (flat(found), counters.drafted) == ([3, 4, 5, 6], 2)


def test_drafting_ends_with_a_stop_token() -> None:
    script = Script(stop_at=5)
    found, counters = run(script, gamma=8, max_tokens=20)
    assert found == [[3], [4, STOP]]
    assert (counters.drafted, counters.accepted, counters.tokens) == (2, 2, 2)


def test_a_stop_token_by_the_prompt_ends_at_once() -> None:
    found, counters = run(Script(stop_at=3), gamma=3, max_tokens=20)
    assert (found, counters.rounds) == ([[STOP]], 0)


def test_positions_seen_are_counted() -> None:
    _, counters = run(Script(wrong=(5,)), gamma=3, max_tokens=6)
    assert counters.draft_positions == (4 + 5 + 6) + (6 + 7)
    assert counters.target_positions == 7 + 8
    assert counters.plain_positions == 4 + 5 + 6 + 7 + 8


def test_bytes_of_keys_and_values_are_those_that_the_session_names() -> None:
    script = Script(wrong=(5,))
    _, counters = run(script, gamma=3, max_tokens=6)
    assert counters.kv == KeyValueCounters(
        draft=(3 + 4 + 5) + (5 + 6),
        target=10 * (6 + 7),
        plain=10 * (3 + 4 + 5 + 6 + 7),
        bf16=100 * (3 + 4 + 5 + 6 + 7),
        stored=2,
        stored_bf16=3,
    )
    assert script.committed == [3, 3, 5, 8]


def test_what_else_ends_a_reply_is_asked_once_about_each_token() -> None:
    asked: list[int] = []

    def ends(token: int) -> bool:
        asked.append(token)
        return len(asked) == 5

    script, counters = Script(), Counters()
    settings = Settings(gamma=5, max_tokens=20)
    found = flat(list(decode(script, [1, 2, 3], settings, counters, ends=ends)))
    assert found == asked == [script.truth(place) for place in range(3, 8)]
    assert counters.tokens == 4


def test_a_token_that_is_not_sure_is_the_last_of_its_round() -> None:
    script, counters = Script(unsure=(5, 9)), Counters()
    settings = Settings(gamma=4, max_tokens=14, min_margin=0.5)
    found = list(decode(script, [1, 2, 3], settings, counters))
    # The pending token is at 3: 4 is sure, 5 is not, and is drafted still.
    assert script.drafted[:2] == [3, 4]
    assert script.verified[0] == ([3, 4, 5], 3)
    assert list(itertools.chain(*found)) == [place % 7 for place in range(3, 17)]
    # Rounds from 3, 6, 10 and 15 on.
    assert counters.drafted == 2 + 3 + 4 + 0
    assert counters.accepted == counters.drafted


@pytest.mark.parametrize("sampling", [GREEDY, Sampling(temperature=1.0)])
@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_logits_that_are_not_finite_end_the_reply(wrong: float, sampling: Sampling) -> None:
    class Broken(Script):
        def target(self, pending: int, nodes: Sequence[Node], position: int) -> torch.Tensor:
            logits = super().target(pending, nodes, position)
            logits[-1, 4] = wrong
            return logits

    rounds = decode(Broken(), [1, 2, 3], Settings(sampling=sampling, seed=1), Counters())
    assert len(next(rounds)) == 1
    with pytest.raises(CassandraError, match="logits must be finite, not NaN or infinite"):
        next(rounds)


class Branches:
    """A drafter of trees: the right chain of two below wrong tokens, and its double."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.outcomes: list[Outcome] = []

    def propose(self, context: Sequence[int], budget: int) -> Proposal:
        first, second = (self.script.truth(len(context) + step) for step in (0, 1))
        tree = [(11, ROOT), (first, ROOT), (12, 1), (second, 1), (second, 0), (13, 3)]
        return Proposal(nodes=tuple(Node(*node, 0.5, "x") for node in tree[:budget]))

    def observe(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)


def test_the_winning_path_of_a_tree_is_emitted() -> None:
    script = Script()
    drafter = Branches(script)
    found, counters = run(script, gamma=3, max_tokens=14, make=lambda *_: drafter)
    # Six nodes in three rounds, then as many as there are tokens left before the last one.
    assert found == [[3], [4, 5, 6], [0, 1, 2], [3, 4, 5], [6, 0], [1], [2]]
    assert [outcome.path for outcome in drafter.outcomes] == [(1, 3)] * 3 + [(1,), (), ()]
    assert counters.sources == {"x": SourceCounters(rounds=5, drafted=22, accepted=7)}
    assert counters.tested == 3 * 5 + 3 + 1
    assert script.kept == [1, 2, 3, *(script.truth(place) for place in range(3, 16))]


def test_a_tree_is_refused_by_eq_1() -> None:
    sampling = Sampling(temperature=1.0)
    asked = Settings(gamma=3, sampling=sampling, acceptance="rejection", seed=1)
    with pytest.raises(CassandraError, match="must be a chain for Eq"):
        list(decode(Script(), [1, 2, 3], asked, Counters(), make=lambda *_: Branches(Script())))


def test_a_proposal_beyond_the_budget_is_refused() -> None:
    class Eager(Branches):
        def propose(self, context: Sequence[int], budget: int) -> Proposal:
            return super().propose(context, budget + 1)

    rounds = decode(
        Script(), [1, 2, 3], Settings(max_tokens=4), Counters(), make=lambda *_: Eager(Script())
    )
    next(rounds)
    with pytest.raises(CassandraError, match="must have at most 2 nodes here, not 3"):
        list(rounds)
