"""Proposals: chains, trees and nothing."""

from __future__ import annotations

import numpy as np
import pytest

from cassandra_spec.drafting import (
    COPIES,
    DRAFT_VIEW,
    ROOT,
    Counters,
    KeyValueCounters,
    Node,
    Outcome,
    Proposal,
)
from cassandra_spec.golden import CassandraError


def test_a_chain_follows_the_last_token() -> None:
    found = Proposal.chain([5, 6], [0.5, 0.25], COPIES)
    assert found.nodes == (Node(5, ROOT, 0.5, COPIES), Node(6, 0, 0.25, COPIES))
    assert (found.tokens, found.source, found.is_chain) == ([5, 6], COPIES, True)


def test_nothing_is_a_chain() -> None:
    assert Proposal().is_chain
    assert (Proposal().tokens, Proposal().source) == ([], "")
    assert Proposal().q(5).shape == (0, 5)


def test_branches_are_no_chain() -> None:
    nodes = (Node(5, ROOT, 1.0, COPIES), Node(6, ROOT, 0.5, DRAFT_VIEW), Node(7, 0, 0.5, COPIES))
    assert not Proposal(nodes=nodes).is_chain


@pytest.mark.parametrize("parent", [-2, 1, 2])
def test_a_parent_comes_before_its_node(parent: int) -> None:
    nodes = (Node(5, ROOT, 1.0, COPIES), Node(6, parent, 1.0, COPIES))
    with pytest.raises(CassandraError, match=f"parent of node 1 must be .* 0, not {parent}"):
        Proposal(nodes=nodes)


def test_copies_are_certain() -> None:
    q = Proposal.chain([2, 0], [1.0, 1.0], COPIES).q(3)
    assert (q == np.array([[0, 0, 1], [1, 0, 0]])).all()


def test_counters_add_up() -> None:
    one, other, both = Counters(replies=1), Counters(replies=2), Counters(replies=3)
    rounds = [
        Outcome(drafted=3, accepted=1, passes=3, draft_seconds=0.5, verify_seconds=1.0),
        Outcome(drafted=2, accepted=2, source=COPIES),
        Outcome(drafted=0, accepted=0),
        Outcome(drafted=1, accepted=1, passes=1),
    ]
    for counters, outcome in zip((one, one, other, other), rounds, strict=True):
        counters.add_round(outcome, position=4, tokens=outcome.accepted + 1)
        both.add_round(outcome, position=4, tokens=outcome.accepted + 1)
    one.kv, other.kv, both.kv = (KeyValueCounters(draft=n, stored=2 * n) for n in (1, 2, 3))
    one.add(other)
    assert one == both
    assert one.kv == both.kv
    assert (one.copies.rounds, one.copies.drafted, one.copies.accepted) == (1, 2, 2)
    assert (one.passes, one.tested, one.tokens) == (4, 5, 8)
