"""Proposals: chains, trees and nothing."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from cassandra_spec.drafting import (
    ALTERNATIVES,
    COPIES,
    DRAFT_VIEW,
    RECYCLED,
    ROOT,
    TABLE,
    Count,
    Counters,
    DraftPass,
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


def test_an_outcome_counts_nodes_by_source() -> None:
    tree = Proposal(
        nodes=(
            Node(5, ROOT, 2.0, DRAFT_VIEW),
            Node(6, 0, 2.0, DRAFT_VIEW),
            Node(7, 1, 2.0, DRAFT_VIEW),
            Node(8, 0, 1.0, ALTERNATIVES),
            Node(9, ROOT, 1.0, ALTERNATIVES),
            Node(1, 2, 0.5, COPIES),
            Node(2, 3, 0.5, COPIES),
        )
    )
    found = Outcome(proposal=tree, path=(0, 3, 6))
    assert (found.drafted, found.accepted, found.passes) == (7, 3, 0)
    assert found.counts() == {
        DRAFT_VIEW: Count(drafted=3, tested=2, accepted=1),
        ALTERNATIVES: Count(drafted=2, tested=2, accepted=1),
        COPIES: Count(drafted=2, tested=1, accepted=1),
    }
    assert Outcome().counts() == {}


def test_what_low_nodes_promise_counts_from_where_they_begin() -> None:
    """Below a chain that was accepted as a whole, or below the last token of the context."""
    tail = [Node(1, 1, 0.5, COPIES), Node(2, 2, 0.25, TABLE), Node(3, 1, 0.125, RECYCLED)]
    chain = [Node(5, ROOT, 2.0, DRAFT_VIEW), Node(6, 0, 2.0, DRAFT_VIEW)]
    whole = Proposal(nodes=(*chain, *tail))
    assert Outcome(proposal=whole, path=(0, 1, 2)).promised() == (0.875, 1)
    assert Outcome(proposal=whole, path=(0, 1, 2, 3)).promised() == (0.875, 2)
    assert Outcome(proposal=whole, path=(0, 1)).promised() == (0.875, 0)
    assert Outcome(proposal=whole, path=(0,)).promised() == (0.0, 0)
    alone = Proposal.chain([1, 2, 3], [0.5, 0.25, 0.125], TABLE)
    assert Outcome(proposal=alone).promised() == (0.875, 0)
    assert Outcome(proposal=alone, path=(0, 1, 2)).promised() == (0.875, 3)


def outcome(drafted: int, accepted: int, source: str = DRAFT_VIEW, **parts: Any) -> Outcome:
    """Return a chain of one source, with a pass for each token of the draft view."""
    chain = Proposal.chain(range(drafted), [1.0] * drafted, source)
    passes = (DraftPass(at, 1, 0.25) for at in range(drafted * (source == DRAFT_VIEW)))
    proposal = dataclasses.replace(chain, passes=tuple(passes))
    return Outcome(proposal=proposal, path=tuple(range(accepted)), **parts)


def test_counters_add_up() -> None:
    one, other, both = Counters(replies=1), Counters(replies=2), Counters(replies=3)
    rounds = [
        outcome(3, 1, verify_seconds=1.0),
        outcome(2, 2, COPIES),
        outcome(0, 0),
        outcome(1, 1),
    ]
    for counters, each in zip((one, one, other, other), rounds, strict=True):
        counters.add_round(each, position=4, tokens=each.accepted + 1)
        both.add_round(each, position=4, tokens=each.accepted + 1)
    one.kv, other.kv, both.kv = (KeyValueCounters(draft=n, stored=2 * n) for n in (1, 2, 3))
    one.add(other)
    assert one == both
    assert one.kv == both.kv
    assert (one.copies.rounds, one.copies.drafted, one.copies.accepted) == (1, 2, 2)
    assert (one.passes, one.tested, one.tokens) == (4, 5, 8)
    assert (one.draft_seconds, one.verify_seconds) == (1.0, 1.0)
    assert one.draft_positions == 5 + 6 + 7 + 5
    assert one.target_positions == 8 + 7 + 5 + 6


def test_a_pass_counts_the_positions_of_all_its_rows() -> None:
    counters = Counters()
    proposal = Proposal(passes=(DraftPass(0, 4), DraftPass(3, 2)))
    counters.add_round(Outcome(proposal=proposal), position=10, tokens=1)
    assert (counters.passes, counters.draft_positions) == (2, 14 + 15)
