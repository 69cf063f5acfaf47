"""The engine's low drafter against the reference in Python."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from cassandra_spec.drafting import LowDrafter, Node
from cassandra_spec.drafting.low import BRANCHES
from cassandra_spec.drafting.table import TRUST
from cassandra_spec.native.arrays import Pointer, pointer
from cassandra_spec.native.engine_binding import (
    SOURCES,
    TableOrder,
    TreeLimits,
    TreeNode,
    engine_library,
)
from cassandra_spec.native.limits import MAX_GAMMA

TOKEN = st.integers(0, 4)
CONFIDENCE = st.sampled_from([0.0, 0.0625, 0.125, 0.25, 0.5, 0.75, 1.0])
Table = dict[tuple[int, ...], list[tuple[int, float]]]


class DictTable:
    """Candidates of a table by order, from the highest down."""

    def __init__(self, table: Table) -> None:
        self.table = table

    def candidates(self, tail: Sequence[int]) -> list[tuple[int, float]]:
        found: dict[int, float] = {}
        for order in (3, 2, 1):
            for token, confidence in self.table.get(tuple(tail[-order:]), ()):
                if len(tail) >= order:
                    found.setdefault(token, TRUST.get(order, 1.0) * confidence)
        return list(found.items())

    def orders(self) -> list[tuple[int, NDArray[Any], NDArray[Any], NDArray[Any]]]:
        """Order, keys, tokens and confidences, as the engine takes them."""
        made = []
        for order in (3, 2, 1):
            rows = {k: v for k, v in self.table.items() if len(k) == order}
            keyed = sorted((sum(t << 21 * i for i, t in enumerate(k[::-1])), k) for k in rows)
            tokens = np.full((len(rows), 3), -1, np.int32)
            confidences = np.zeros((len(rows), 3), np.float32)
            for place, (_, key) in enumerate(keyed):
                for rank, (token, confidence) in enumerate(rows[key]):
                    tokens[place, rank], confidences[place, rank] = token, confidence
            made.append(
                (order, np.array([key for key, _ in keyed], np.uint64), tokens, confidences)
            )
        return made


def held(array: NDArray[Any]) -> Pointer:
    """Return the address of an array, which a library in another process takes, too."""
    return pointer("array", array, array.dtype, *array.shape)


def native_tree(
    context: list[int],
    table: DictTable,
    seen: list[tuple[int, tuple[int, ...]]],
    tail: list[int],
    limits: dict[str, Any],
    stops: list[int],
) -> list[Node]:
    """Return the engine's tree."""
    arrays = table.orders()
    orders = (TableOrder * len(arrays))(
        *(
            TableOrder(held(k).address, held(t).address, held(c).address, len(k), order)
            for order, k, t, c in arrays
        )
    )
    flat = np.array([[token, *best] for token, best in seen], np.int32).reshape(-1, 1 + BRANCHES)
    tokens, ends, stop = (np.array(each, np.int32) for each in (context, tail, stops))
    out = (TreeNode * MAX_GAMMA)()
    count = engine_library().cassandra_low_tree(
        held(tokens),
        len(tokens),
        orders,
        len(arrays),
        held(flat),
        len(flat),
        held(ends),
        len(ends),
        ctypes.byref(TreeLimits(**limits, stops=held(stop).address, stop_count=len(stop))),
        out,
    )
    return [Node(n.token, n.parent, n.confidence, SOURCES[n.source]) for n in out[:count]]


@settings(derandomize=True, deadline=None, max_examples=500)
@given(
    context=st.lists(TOKEN, min_size=1, max_size=40),
    drafted=st.lists(TOKEN, max_size=3),
    table=st.dictionaries(
        st.lists(TOKEN, min_size=1, max_size=3).map(tuple),
        st.lists(st.tuples(TOKEN, CONFIDENCE), max_size=3, unique_by=lambda each: each[0]),
    ),
    seen=st.lists(st.tuples(TOKEN, st.permutations(range(5)).map(lambda p: tuple(p[:BRANCHES])))),
    limits=st.fixed_dictionaries(
        {
            "count": st.integers(0, MAX_GAMMA),
            "branches": st.integers(1, 6),
            "depth": st.integers(0, MAX_GAMMA),
            "min_probability": st.sampled_from([0.0, 0.1, 0.4]),
        }
    ),
    stops=st.lists(TOKEN, max_size=2),
)
def test_the_engine_makes_the_tree_of_the_reference(
    context: list[int],
    drafted: list[int],
    table: Table,
    seen: list[tuple[int, tuple[int, ...]]],
    limits: dict[str, Any],
    stops: list[int],
) -> None:
    candidates = DictTable(table)
    low = LowDrafter(candidates)
    low.extend(context)
    for token, best in seen:
        low.recycled.observe(token, best)
    tail = [*context, *drafted]
    expected = low.tree(tail, **limits, stop_tokens=frozenset(stops))
    assert native_tree(context, candidates, seen, tail, limits, stops) == expected
