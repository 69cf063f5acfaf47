"""Types and signatures of the engine's entry points (native/src/engine/api.cpp)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import (
    POINTER,
    c_double,
    c_float,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_uint64,
    c_void_p,
)
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.drafting import (
    ALTERNATIVES,
    COPIES,
    DRAFT_VIEW,
    GRAMMAR,
    RECYCLED,
    TABLE,
    NgramTable,
    Node,
    Part,
    Pick,
    Plan,
    Sampling,
)
from cassandra_spec.drafting.proposal import ROOT
from cassandra_spec.drafting.table import CONTINUATIONS
from cassandra_spec.golden import CassandraError
from cassandra_spec.golden.format import is_integer
from cassandra_spec.native.arrays import CheckedStructure, pointer
from cassandra_spec.native.key_values import SealedFormatStructure
from cassandra_spec.native.library import declare, load
from cassandra_spec.native.limits import MAX_GAMMA, MAX_ROWS
from cassandra_spec.native.models.config import ACTIVATIONS, ModelConfig

SOURCES = (DRAFT_VIEW, COPIES, TABLE, RECYCLED, ALTERNATIVES, GRAMMAR)
"""Sources of nodes by number (low.h)."""

WHOLE, DRAFT, VERIFY = range(3)
"""Parts of a round (``Stage`` of engine.h)."""


class ModelShape(CheckedStructure):
    """``ModelShape`` of engine.h."""

    _fields_ = (
        *((name, c_int32) for name in ("layers", "hidden", "intermediate", "heads", "kv_heads")),
        *((name, c_int32) for name in ("head_size", "vocabulary", "context", "slots")),
        *((name, c_int32) for name in ("pairs", "ropes", "activation")),
        *((name, c_float) for name in ("epsilon", "query_scale", "embedding_scale")),
        *((name, c_float) for name in ("attention_cap", "logit_cap")),
        *((name, c_float) for name in ("residual_scale", "logit_divisor")),
    )


class LayerShape(CheckedStructure):
    """``LayerShape`` of engine.h."""

    _fields_ = tuple((name, c_int32) for name in ("window", "rope"))


class Sampler(CheckedStructure):
    """``Sampler`` of noise.h."""

    _fields_ = (
        *((name, c_double) for name in ("temperature", "top_p", "min_p")),
        ("seed", c_uint64),
        ("top_k", c_int64),
    )

    @classmethod
    def of(cls, sampling: Sampling, seed: int) -> Sampler:
        """Return the structure of a sampling with a seed."""
        return cls(
            temperature=sampling.temperature,
            top_p=1.0 if sampling.top_p is None else sampling.top_p,
            min_p=sampling.min_p or 0.0,
            seed=seed,
            top_k=sampling.top_k or 0,
        )


class RoundRequest(CheckedStructure):
    """``RoundRequest`` of engine.h."""

    _fields_ = (
        *((name, c_void_p) for name in ("history", "stops")),
        *((name, c_double) for name in ("skip_draft_threshold", "min_node_probability")),
        ("sampler", Sampler),
        *((name, c_float) for name in ("min_margin", "alternative_margin")),
        *((name, c_int32) for name in ("position", "count", "wanted", "chooses")),
        *((name, c_int32) for name in ("budget", "model", "low", "rows", "tree")),
        *((name, c_int32) for name in ("branches", "alternatives", "uses_low", "slot")),
        *((name, c_int32) for name in ("sinks", "start", "stop_count")),
    )


class RoundResult(CheckedStructure):
    """``RoundResult`` of engine.h."""

    _fields_ = (
        ("nodes", c_int32),
        *((name, c_int32 * MAX_ROWS) for name in ("tokens", "parents", "sources")),
        ("confidences", c_double * MAX_ROWS),
        ("accepted", c_int32),
        ("path", c_int32 * MAX_ROWS),
        *((name, c_int32) for name in ("next", "stopped", "passes")),
        *((name, c_int32 * MAX_ROWS) for name in ("pass_starts", "pass_rows")),
        ("logits", c_int32),
    )


class RoundTimes(CheckedStructure):
    """``RoundTimes`` of engine.h."""

    _fields_ = (
        ("passes", c_int32),
        ("pass_seconds", c_double * MAX_ROWS),
        ("verify_seconds", c_double),
    )


class TableOrder(CheckedStructure):
    """``TableOrder`` of low.h."""

    _fields_ = (
        *((name, c_void_p) for name in ("keys", "tokens", "confidences")),
        ("count", c_int64),
        ("order", c_int32),
    )


class TreeLimits(CheckedStructure):
    """``TreeLimits`` of low.h."""

    _fields_ = (
        *((name, c_int32) for name in ("count", "branches", "depth")),
        ("min_probability", c_double),
        ("stops", c_void_p),
        ("stop_count", c_int32),
    )


class TreeNode(CheckedStructure):
    """``TreeNode`` of low.h."""

    _fields_ = (
        *((name, c_int32) for name in ("token", "parent")),
        ("confidence", c_double),
        ("source", c_int32),
    )


_SIGNATURES = {
    "engine_new": (
        c_void_p,
        (
            *(POINTER(ModelShape), POINTER(LayerShape), c_void_p, c_void_p, c_void_p),
            *(c_int, c_int),
        ),
    ),
    "engine_free": (None, (c_void_p,)),
    "engine_set_matrix": (
        c_int,
        (c_void_p, c_int, c_int, c_int, c_void_p, c_int, c_int, c_int, c_int),
    ),
    "engine_matrix_state": (
        c_int,
        (c_void_p, c_int, c_int, c_int, c_void_p, POINTER(c_size_t)),
    ),
    "engine_restore_matrix": (
        c_int,
        (c_void_p, c_int, c_int, c_int, c_void_p, c_size_t, c_int, c_int),
    ),
    "engine_part": (c_void_p, (c_void_p, c_int, c_int, c_int, c_int, POINTER(c_size_t))),
    "engine_weight_bytes": (c_size_t, (c_void_p, c_int)),
    "engine_set_vector": (c_int, (c_void_p, c_int, c_int, c_void_p, c_int)),
    "engine_forward": (
        c_int,
        (c_void_p, c_void_p, c_int, c_int, c_int, c_int, c_int, c_int, c_int, c_void_p),
    ),
    "engine_run_rows": (
        c_int,
        (c_void_p, c_void_p, c_int, c_int, c_int, c_void_p, c_int, c_void_p),
    ),
    "engine_round": (
        c_int,
        (
            *(c_void_p, POINTER(RoundRequest), c_int, c_int),
            *(POINTER(RoundResult), POINTER(RoundTimes)),
        ),
    ),
    "pick": (c_float, (c_void_p, c_int, POINTER(Sampler), c_int, c_void_p)),
    "engine_logits": (POINTER(c_float), (c_void_p,)),
    "engine_keep": (None, (c_void_p, c_int, c_int, c_void_p, c_int)),
    "engine_begin": (None, (c_void_p, c_int)),
    "engine_copy_positions": (None, (c_void_p, c_int, c_int, c_int)),
    "engine_set_table": (c_int, (c_void_p, POINTER(TableOrder), c_int)),
    "low_tree": (
        c_int,
        (
            *(c_void_p, c_int, POINTER(TableOrder), c_int, c_void_p, c_int, c_void_p, c_int),
            *(POINTER(TreeLimits), POINTER(TreeNode)),
        ),
    ),
    "engine_position_bytes": (c_size_t, (c_void_p,)),
    "engine_cache_bytes": (c_size_t, (c_void_p,)),
    "engine_set_sealed_format": (c_int, (c_void_p, POINTER(SealedFormatStructure))),
    "engine_read_chunk": (c_int, (c_void_p, c_int, c_int, c_int, c_void_p)),
    "engine_write_chunk": (None, (c_void_p, c_int, c_int, c_void_p)),
    "engine_take_product_seconds": (c_double, (c_void_p,)),
}


@cache
def engine_library() -> ctypes.CDLL:
    """Return the native library with the engine's functions declared.

    Raises :class:`native.NativeError` if it cannot be compiled or loaded.
    """
    library = load()
    declare(library, _SIGNATURES)
    return library


def model_shapes(
    config: ModelConfig, *, context: int, slots: int
) -> tuple[ModelShape, ctypes.Array[LayerShape]]:
    """Return the shapes of a model and its layers, for ``slots`` of ``context`` positions."""
    sizes: dict[str, Any] = {
        "context": context,
        "slots": slots,
        "ropes": len(config.ropes),
        "activation": ACTIVATIONS.index(config.activation),
    }
    rest = [field[0] for field in ModelShape._fields_ if field[0] not in sizes]
    shape = ModelShape(**sizes | {name: getattr(config, name) for name in rest})
    each = zip(config.windows, config.layer_ropes, strict=True)
    return shape, (LayerShape * config.layers)(*(LayerShape(*layer) for layer in each))


class Row(NamedTuple):
    """A row of a pass; the fields are those of ``PassRow`` of engine.h."""

    slot: int
    position: int  # within its sequence; branches share a position
    token: int
    parent: int = ROOT  # parent row of the same pass; ROOT: follows the cached positions


def pass_rows(
    rows: Sequence[Row], *, slots: int, context: int, vocabulary: int
) -> NDArray[np.int32]:
    """Return the rows of one pass as int32 [rows, 4], after validation.

    Raises :class:`CassandraError` if the number of rows or a field is out of range, or if a slot's
    rows are not a tree: only its first row has no parent, and each other row follows an earlier row
    of the slot by one position.
    """
    if not 1 <= len(rows) <= MAX_ROWS:
        raise CassandraError(f"rows must be from 1 to {MAX_ROWS}, not {len(rows)}")
    first: dict[int, int] = {}  # position of each slot's first row
    count: dict[int, int] = {}
    for at, row in enumerate(rows):
        limits = {"slot": slots, "position": context, "token": vocabulary}
        for name, limit in limits.items():
            if not is_integer(getattr(row, name), 0, limit - 1):
                value = getattr(row, name)
                raise CassandraError(f"{name} must be from 0 to below {limit}, not {value!r}")
        if not is_integer(row.parent, ROOT, at - 1) or (row.parent == ROOT) == (row.slot in first):
            raise CassandraError(
                f"parent must be an earlier row of slot {row.slot}, or {ROOT} for "
                f"its first, not {row.parent!r} for row {at}"
            )
        if row.parent != ROOT:
            above = rows[row.parent]
            if (above.slot, above.position + 1) != (row.slot, row.position):
                raise CassandraError(
                    f"row {at} must follow its parent in the same slot, not {above}"
                )
        number = count[row.slot] = count.get(row.slot, -1) + 1
        if first.setdefault(row.slot, row.position) + number >= context:
            raise CassandraError(
                f"positions and branches must fit the engine's {context}, not row {at}"
            )
    return np.array(rows, np.int32)


# --- rounds and tables ---------------------------------------------------------------------------


def round_request(
    part: Part,
    plan: Plan,
    history: NDArray[np.int32],
    stops: NDArray[np.int32],
    vocabulary: int,
) -> RoundRequest:
    """Build the request of a part; ``history`` [n] and ``stops`` [n] must outlive the round."""
    settings, levels, cache = part.settings, part.settings.levels, part.settings.draft_cache
    return RoundRequest(
        history=pointer("history", history, np.int32, len(history)).address,
        stops=pointer("stops", stops, np.int32, len(stops)).address,
        skip_draft_threshold=plan.skip_draft_threshold,
        min_node_probability=plan.min_node_probability,
        sampler=Sampler.of(settings.sampling, part.seed),
        min_margin=settings.min_margin,
        alternative_margin=levels.alternative_margin,
        position=part.position,
        count=part.count,
        wanted=part.wanted,
        chooses=not part.needs_logits,
        budget=part.budget,
        model=plan.model,
        low=min(plan.low, MAX_GAMMA),
        rows=min(plan.rows, MAX_GAMMA),
        tree=min(plan.tree or plan.rows, MAX_GAMMA),
        branches=min(levels.branches, vocabulary),
        alternatives=min(levels.alternatives, MAX_GAMMA) * settings.uses_low_drafter,
        uses_low=settings.uses_low_drafter,
        slot=part.slot,
        sinks=cache.sinks,
        start=cache.start(part.position),
        stop_count=len(stops),
    )


def nodes_of(result: RoundResult) -> tuple[Node, ...]:
    """Return the drafted nodes of a result."""
    return tuple(
        Node(result.tokens[n], result.parents[n], result.confidences[n], SOURCES[result.sources[n]])
        for n in range(result.nodes)
    )


def passes_of(result: RoundResult) -> list[tuple[int, int]]:
    """Return the start and the rows of a result's draft view passes."""
    return [(result.pass_starts[n], result.pass_rows[n]) for n in range(result.passes)]


def set_nodes(result: RoundResult, nodes: Sequence[Node]) -> None:
    """Set the nodes that a verification reads."""
    result.nodes = len(nodes)
    for at, node in enumerate(nodes):
        result.tokens[at], result.parents[at] = node.token, node.parent
        result.confidences[at], result.sources[at] = node.confidence, SOURCES.index(node.source)


def pick_row(logits: NDArray[np.float32], sampling: Sampling, seed: int, position: int) -> Pick:
    """Choose a token from a row of logits [vocabulary], as the engine does.

    The result is that of :func:`cassandra_spec.drafting.pick`, where no sum of probabilities is at
    a limit of a filter but for rounding.
    """
    row = np.ascontiguousarray(logits, np.float32)
    found = np.empty(2, np.int32)
    margin = engine_library().cassandra_pick(
        pointer("logits", row, np.float32, len(row)),
        len(row),
        Sampler.of(sampling, seed),
        position,
        pointer("found", found, np.int32, 2, writable=True),
    )
    return Pick(int(found[0]), int(found[1]), margin)


def table_orders(table: NgramTable | None) -> ctypes.Array[TableOrder]:
    """Return a table's orders as C structures; the table must outlive them."""
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
