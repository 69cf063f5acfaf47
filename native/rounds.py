"""What crosses into native code for rounds of speculation, and what comes back."""

from __future__ import annotations

import ctypes

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.drafting import (
    DraftPass,
    NgramTable,
    Node,
    Outcome,
    Plan,
    Proposal,
    Settings,
)
from cassandra_spec.drafting.table import CONTINUATIONS
from cassandra_spec.native.arrays import pointer
from cassandra_spec.native.engine_binding import (
    MOST,
    SOURCES,
    RoundRequest,
    RoundResult,
    TableOrder,
)


def round_request(
    plan: Plan, settings: Settings, budget: int, vocabulary: int, stops: NDArray[np.int32]
) -> RoundRequest:
    """A round of a plan with at most ``budget`` nodes; ``stops`` [n] must outlive the round."""
    levels = settings.levels
    return RoundRequest(
        direct=plan.direct,
        least=plan.least,
        min_margin=settings.min_margin,
        alternative_margin=levels.alternative_margin,
        budget=budget,
        model=plan.model,
        low=min(plan.low, MOST),
        rows=min(plan.rows, MOST),
        branches=min(levels.branches, vocabulary),
        alternatives=min(levels.alternatives, MOST) * settings.uses_low_drafter,
        uses_low=settings.uses_low_drafter,
        stop_count=len(stops),
        stops=pointer("stops", stops, np.int32, len(stops)).address,
    )


def outcome_of(result: RoundResult) -> Outcome:
    """What became of a round."""
    drafted = range(result.nodes)
    nodes = (
        Node(result.tokens[n], result.parents[n], result.confidences[n], SOURCES[result.sources[n]])
        for n in drafted
    )
    passes = (
        DraftPass(result.pass_starts[n], result.pass_rows[n], result.pass_seconds[n])
        for n in range(result.passes)
    )
    return Outcome(
        proposal=Proposal(nodes=tuple(nodes), passes=tuple(passes), stopped=bool(result.stopped)),
        path=tuple(result.path[: result.accepted]),
        verify_seconds=result.verify_seconds,
    )


def table_orders(table: NgramTable | None) -> ctypes.Array[TableOrder]:
    """The orders of a table, whose arrays must outlive their use."""
    known = () if table is None else table.orders
    orders = (TableOrder * len(known))()
    for made, order, each in zip(orders, range(len(known), 0, -1), known, strict=True):
        count = len(each.keys)
        made.order, made.count = order, count
        made.keys = pointer("keys", each.keys, np.uint64, count).address
        made.tokens = pointer("tokens", each.tokens, np.int32, count, CONTINUATIONS).address
        made.confidences = pointer(
            "confidences", each.confidences, np.float32, count, CONTINUATIONS
        ).address
    return orders
