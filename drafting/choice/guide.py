"""Apply a grammar to drafts: drop forbidden nodes, append forced tokens."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from cassandra_spec.drafting.proposal import GRAMMAR, ROOT, Node, Proposal
from cassandra_spec.text.grammar.state import GrammarState

FREE_NODES = 15
"""Maximum nodes of a proposal after forced tokens are appended."""


def guided(proposal: Proposal, state: GrammarState, budget: int) -> Proposal:
    """Return ``proposal`` without forbidden nodes and with forced tokens, at most ``budget`` nodes.

    ``state`` is the grammar's state where the proposal begins. Forbidden nodes are dropped with
    their subtrees. Forced tokens are appended to the most probable path. Nodes that were drawn from
    distributions all stay, because Eq. 1 needs them.
    """
    states: dict[int, GrammarState | None] = {ROOT: state}
    nodes, places = list[Node](), {ROOT: ROOT}  # new index by old index
    for at, node in enumerate(proposal.nodes):
        above = states[node.parent]
        states[at] = above.after(node.token) if above else None
        if states[at] or proposal.distributions is not None:
            places[at] = len(nodes)
            nodes.append(dataclasses.replace(node, parent=places[node.parent]))
    kept = {places[at]: each for at, each in states.items() if at in places}
    end = _likeliest_end(nodes)
    nodes += _certain(kept[end], end, len(nodes), min(budget, FREE_NODES))
    return dataclasses.replace(
        proposal, nodes=tuple(nodes), distributions=_certain_rows(proposal, nodes)
    )


def _likeliest_end(nodes: Sequence[Node]) -> int:
    """Return the last node of the path that takes the first child at each node."""
    end = ROOT
    for at, node in enumerate(nodes):
        if node.parent == end:
            end = at
    return end


def _certain(state: GrammarState | None, end: int, count: int, limit: int) -> list[Node]:
    """Return forced tokens as nodes below node ``end``, up to ``limit`` nodes in all."""
    nodes = list[Node]()
    while state and count + len(nodes) < limit and (token := state.guess()) is not None:
        nodes.append(Node(token, end, 1.0, GRAMMAR))
        end, state = count + len(nodes) - 1, state.after(token)
    return nodes


def _certain_rows(proposal: Proposal, nodes: Sequence[Node]) -> np.ndarray | None:
    """Return the distributions of ``nodes``; an appended node has probability 1."""
    q = proposal.distributions
    if q is None:
        return None
    more = np.zeros((len(nodes) - len(q), q.shape[1]))
    more[np.arange(len(more)), [node.token for node in nodes[len(q) :]]] = 1.0
    return np.concatenate([q, more])
