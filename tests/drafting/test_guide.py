"""Proposals under a grammar, held to a search along each path."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cassandra_spec.drafting.choice.guide import FREE_NODES, guided
from cassandra_spec.drafting.proposal import GRAMMAR, ROOT, Node, Proposal
from cassandra_spec.text.grammar import GrammarCompiler, GrammarState, GrammarText
from tests.text.byte_tokens import END, byte_tokenizer, ids

TOKENIZER = byte_tokenizer()
COMPILER = GrammarCompiler(TOKENIZER, frozenset({END}))
GRAMMAR_TEXT = GrammarText(
    syntax="regex", text='(ab|na){1,3}c\\{"ab": [abc]\\}(xyzxyzxyzxyzxyzxyz)?'
)
TOKENS = st.sampled_from([END, *sorted(set(ids(TOKENIZER, 'ababnac{"ab": b}xa')))])


@st.composite
def trees(draw: st.DrawFn) -> list[Node]:
    """Return nodes of any shape, in the order of their parents."""
    made: list[Node] = []
    for at in range(draw(st.integers(0, 8))):
        made.append(Node(draw(TOKENS), draw(st.integers(ROOT, at - 1)), 0.5, "model"))
    return made


def path(nodes: list[Node] | tuple[Node, ...], at: int) -> tuple[int, ...]:
    return () if at == ROOT else (*path(nodes, nodes[at].parent), nodes[at].token)


def place(state: GrammarState, tokens: tuple[int, ...]) -> GrammarState | None:
    """Return the place after tokens, from the beginning; None if one of them is not allowed."""
    found: GrammarState | None = state.copy()
    for token in tokens:
        found = found.after(token) if found else None
    return found


@given(trees(), st.integers(0, 3), st.integers(8, 20))
def test_what_is_left_and_what_is_added(nodes: list[Node], begun: int, budget: int) -> None:
    state = COMPILER.compile(GRAMMAR_TEXT).begin([])
    for token in ids(TOKENIZER, "abna")[:begun]:
        state.advance(token)
    found = guided(Proposal(nodes=tuple(nodes)), state, budget).nodes
    drafted = [node for node in found if node.source != GRAMMAR]
    allowed = [path(nodes, at) for at in range(len(nodes)) if place(state, path(nodes, at))]
    assert [path(found, at) for at in range(len(drafted))] == allowed
    end = ROOT
    for at, node in enumerate(drafted):
        end = at if node.parent == end else end
    after = place(state, path(found, end))
    for at, node in enumerate(found[len(drafted) :], len(drafted)):
        assert after is not None
        assert (node.parent, node.token) == (end, after.guess())
        end, after = at, after.after(node.token)
    full = len(found) >= min(budget, FREE_NODES)
    assert full or after is None or after.guess() is None


def test_drawn_tokens_all_stay() -> None:
    state = COMPILER.compile(GRAMMAR_TEXT).begin([])
    good, bad = ids(TOKENIZER, "ab")[0], ids(TOKENIZER, "x")[0]
    q = np.full((2, 272), 1 / 272)
    for tokens in ([good, bad], [bad, good]):
        nodes = Proposal.chain(tokens, [1.0, 1.0], "model").nodes
        drawn = Proposal(nodes=nodes, distributions=q)
        found = guided(drawn, state, 9)
        assert found.nodes[:2] == nodes
        assert len(found.nodes) == 2  # nothing is certain after a token that is not allowed
    state = place(state, tuple(ids(TOKENIZER, "abc"))) or state
    certain = Proposal.chain(ids(TOKENIZER, '{"')[:1], [1.0], "model")
    drawn = Proposal(nodes=certain.nodes, distributions=q[:1])
    found = guided(drawn, state, 4)
    assert len(found.nodes) == 4
    assert found.distributions is not None
    for row, node in zip(found.distributions[1:], found.nodes[1:], strict=True):
        assert np.flatnonzero(row).tolist() == [node.token]
