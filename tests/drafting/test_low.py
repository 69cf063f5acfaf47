"""Low drafters against searches that look at every place, and at every path."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cassandra_spec.drafting import (
    COPIES,
    RECYCLED,
    ROOT,
    TABLE,
    Copies,
    LowDrafter,
    Node,
    Proposal,
    Recycled,
)
from cassandra_spec.drafting.low import BRANCHES

quick = settings(derandomize=True, deadline=None, max_examples=200)
tokens = st.lists(st.integers(0, 3), max_size=40)
Pairs = list[tuple[int, float]]


def naive_copies(seen: Sequence[int], tail: Sequence[int]) -> Pairs:
    """Return the followers of the end of a tail, by a look at every place for every length."""
    found: dict[int, float] = {}
    for length in range(min(Copies.LONGEST, len(tail)), 0, -1):
        run = list(tail[-length:])
        places = [p for p in range(length, len(seen)) if list(seen[p - length : p]) == run]
        latest = list(dict.fromkeys(seen[place] for place in reversed(places)))
        for token in latest[:BRANCHES]:
            found.setdefault(token, Copies.PRECISION[length - 1])
    return list(found.items())


@quick
@given(tokens, st.lists(st.integers(0, 3), max_size=8), st.integers(1, 5))
def test_copies_are_what_a_search_finds(seen: list[int], other: list[int], pieces: int) -> None:
    copies = Copies()
    for start in range(0, len(seen), pieces):
        copies.extend(seen[start : start + pieces])
    assert len(copies) == len(seen)
    for tail in (seen, [*seen, *other], other):
        assert copies.candidates(tail) == naive_copies(seen, tail)


def test_a_token_is_ranked_by_the_longest_run_and_then_by_the_latest_place() -> None:
    copies = Copies()
    copies.extend([5, 1, 2, 7, 9, 1, 2, 8, 3, 2, 6])
    assert copies.candidates([5, 1, 2]) == [(7, 0.46), (8, 0.40), (6, 0.15)]
    assert copies.candidates([9, 9, 2]) == [(6, 0.15), (8, 0.15), (7, 0.15)]
    assert copies.candidates([4]) == []
    assert copies.candidates([]) == []


def test_the_latest_of_more_than_a_place_can_hold_stay() -> None:
    copies = Copies()
    copies.extend([1, 2, 1, 3, 1, 4, 1, 5, 1, 6, 1, 3])
    assert [token for token, _ in copies.candidates([1])] == [3, 6, 5, 4]


def test_what_the_target_held_likely_last_is_recycled() -> None:
    recycled = Recycled()
    recycled.observe(3, (7, 8))
    recycled.observe(3, (9, 7, 8, 4))
    recycled.observe(4, (1,))
    assert recycled.candidates([1, 3]) == list(zip((9, 7, 8, 4), Recycled.PRECISION, strict=True))
    assert recycled.candidates([4]) == [(1, 0.35)]
    assert recycled.candidates([2]) == []


class Grammar:
    """A table: the candidates after each token."""

    def __init__(self, after: Callable[[int], Pairs]) -> None:
        self._after = after

    def candidates(self, tail: Sequence[int]) -> Pairs:
        return self._after(tail[-1])


def drafter(
    context: Sequence[int],
    table: Grammar | None = None,
    seen: dict[int, tuple[int, ...]] | None = None,
) -> LowDrafter:
    low = LowDrafter(table)
    low.extend(context)
    for token, best in (seen or {}).items():
        low.recycled.observe(token, best)
    return low


def naive_candidates(low: LowDrafter, table: Grammar, tail: Sequence[int], branches: int) -> Pairs:
    """Return all that the sources name; the best of a token counts, the first of equals."""
    sources = (low.copies, table, low.recycled)
    named = [pair for source in sources for pair in source.candidates(tail)]
    tokens = list(dict.fromkeys(token for token, _ in named))
    best = [(token, max(sure for other, sure in named if other == token)) for token in tokens]
    return sorted(best, key=lambda pair: -pair[1])[:branches]


def all_paths(
    low: LowDrafter,
    table: Grammar,
    tail: Sequence[int],
    *,
    branches: int,
    depth: int,
    stops: frozenset[int],
) -> list[tuple[float, tuple[int, ...]]]:
    """Return each path of at most ``depth`` tokens with its probability."""
    found: list[tuple[float, tuple[int, ...]]] = []
    level: list[tuple[float, tuple[int, ...]]] = [(1.0, ())]
    for _ in range(depth):
        level = [
            (probability * sure, (*path, token))
            for probability, path in level
            if not path or path[-1] not in stops
            for token, sure in naive_candidates(low, table, [*tail, *path], branches)
        ]
        found += level
    return found


def path_of(nodes: Sequence[Node], at: int) -> tuple[int, ...]:
    above = nodes[at].parent
    return (*(path_of(nodes, above) if above != ROOT else ()), nodes[at].token)


grammars = st.dictionaries(
    st.integers(0, 4),
    st.lists(st.tuples(st.integers(0, 4), st.sampled_from((0.1, 0.3, 0.3, 0.55, 0.8))), max_size=3),
)


@quick
@given(
    context=st.lists(st.integers(0, 4), min_size=1, max_size=12),
    after=grammars,
    count=st.integers(0, 9),
    branches=st.integers(1, 3),
    depth=st.integers(0, 4),
    least=st.sampled_from((0.0, 0.1, 0.3)),
    stop=st.integers(0, 9),
)
def test_the_tree_has_the_likeliest_of_all_paths(
    context: list[int],
    after: dict[int, Pairs],
    count: int,
    branches: int,
    depth: int,
    least: float,
    stop: int,
) -> None:
    table, stops = Grammar(lambda token: after.get(token, [])), frozenset({stop})
    low = drafter(context, table, {2: (4, 1)})
    nodes = low.tree(
        context, count, branches=branches, depth=depth, min_probability=least, stop_tokens=stops
    )
    Proposal(nodes=tuple(nodes))  # parents come first
    paths = dict[tuple[int, ...], float]()
    for probability, path in all_paths(
        low, table, context, branches=branches, depth=depth, stops=stops
    ):
        paths[path] = probability
    found = [path_of(nodes, at) for at in range(len(nodes))]
    assert len(set(found)) == len(found)
    for node, path in zip(nodes, found, strict=True):
        assert node.confidence == pytest.approx(paths[path], rel=1e-12)
    wanted = sorted((p for p in paths.values() if p >= least), reverse=True)[:count]
    assert [node.confidence for node in nodes] == pytest.approx(wanted, rel=1e-12)
    if branches == 1:
        assert Proposal(nodes=tuple(nodes)).is_chain


def test_nothing_follows_a_stop_token() -> None:
    low = drafter([], Grammar(lambda token: [((token + 1) % 5, 0.9)]))
    found = low.tree([0], 9, branches=4, depth=9, stop_tokens=frozenset({3}))
    assert [node.token for node in found] == [1, 2, 3]


def test_a_candidate_of_several_sources_has_the_largest_confidence() -> None:
    low = drafter([1, 2, 1, 3, 1], Grammar(lambda _: [(3, 0.5), (2, 0.15)]), {1: (2, 3, 4)})
    nodes = low.tree([1], 4, branches=3, depth=1)
    assert nodes == [
        Node(3, ROOT, 0.5, TABLE),
        Node(2, ROOT, 0.35, RECYCLED),
        Node(4, ROOT, 0.06, RECYCLED),
    ]
    assert drafter([1, 2, 1]).tree([1], 1, branches=1, depth=1) == [Node(2, ROOT, 0.15, COPIES)]


def test_what_is_new_in_a_context_is_taken_once() -> None:
    low = drafter([1, 2, 3])
    low.extend([1, 2, 3, 1])
    low.extend([1, 2, 3, 1])
    assert len(low.copies) == 4
    assert [node.token for node in low.tree([1], 3, branches=1, depth=3)] == [2, 3, 1]
