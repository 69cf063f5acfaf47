"""Settings that `casspec bench acceptance` compares, and the sweeps of its figure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cassandra_spec.bench.study.drafts import Setting
from cassandra_spec.golden import Format
from cassandra_spec.golden.model_types import HEAD
from cassandra_spec.model.packing.packer import Override, PackPlan, Recipe
from cassandra_spec.model.speculative import KeyValueFormat
from cassandra_spec.toolkit import globs

KV_TRUNCATED = KeyValueFormat(format=Format(scheme="unary", truncated=4, fill="midpoint"))
"""The draft reads sign, exponent and three bits of keys and values; the target reads all."""


KEPT = {"keep": True}
"""A head that stays in BF16."""

MIN_MARGIN = 0.75
"""Minimum margin of drafts that stop early; found on the development prompts."""


def _setting(
    name: str,
    *,
    kv: KeyValueFormat | None = None,
    head: Mapping[str, Any] | None = None,
    min_margin: float = 0.0,
    **fields: Any,
) -> Setting:
    changes = dict(head or {})
    keep = changes.pop("keep", None)
    overrides = (Override(tensors=HEAD, changes=changes, keep=keep),) if head else ()
    plan = PackPlan(default=Recipe.from_dict(fields), overrides=overrides)
    return Setting(name=name, plan=plan, kv=kv, min_margin=min_margin)


_PAPER: dict[str, Any] = {"scheme": "unary", "prune": 0.4, "truncated": 4}
_UNARY: dict[str, Any] = {"scheme": "unary", "prune": 0.3, "truncated": 5, "fill": "midpoint"}
_MX: dict[str, Any] = {"scheme": "mx", "group": 32, "truncated": 4, "fill": "midpoint"}
_EXACT: dict[str, Any] = {
    "scheme": "exact",
    "group": 64,
    "fill": "midpoint",
    "group_exponents": "weighted",
}
_EXACT_3: dict[str, Any] = {**_EXACT, "truncated": 5}
_EXACT_4: dict[str, Any] = {**_EXACT, "truncated": 4}
_SURE: dict[str, Any] = {"kv": KV_TRUNCATED, "min_margin": MIN_MARGIN}
_UNARY_HEAD = {"truncated": 4, "prune": 0.0}
_EXACT_HEAD = {"truncated": 3}

SETTINGS = (
    _setting("unary-40", kv=KV_TRUNCATED, head=KEPT, **_PAPER),
    _setting("unary-40-magnitude", kv=KV_TRUNCATED, head=KEPT, prune_scores="magnitude", **_PAPER),
    _setting("unary-30", kv=KV_TRUNCATED, head=KEPT, **_UNARY),
    _setting("mx-4", kv=KV_TRUNCATED, head=KEPT, **_MX),
    _setting("mx-4-kv", head=KEPT, **_MX),
    _setting("mxint8-4", kv=KV_TRUNCATED, head=KEPT, significand=7, **_MX),
    _setting("exact-3", kv=KV_TRUNCATED, head=KEPT, **_EXACT_3),
    _setting("exact-3-kv", head=KEPT, **_EXACT_3),
    _setting("exact-4", kv=KV_TRUNCATED, head=KEPT, **_EXACT_4),
    _setting("exact-4-kv", head=KEPT, **_EXACT_4),
    _setting("unary-30-head", kv=KV_TRUNCATED, head=_UNARY_HEAD, **_UNARY),
    _setting("exact-4-head", kv=KV_TRUNCATED, head=_EXACT_HEAD, **_EXACT_4),
    _setting("unary-30-sure", head=_UNARY_HEAD, **_SURE, **_UNARY),
    _setting("exact-3-sure", head={"truncated": 4}, **_SURE, **_EXACT_3),
    _setting("exact-4-sure", head=_EXACT_HEAD, **_SURE, **_EXACT_4),
)
"""The paper's two, and the best of each scheme (docs/results/acceptance.md).

``-kv``: the draft reads keys and values whole; else truncated by 4. ``-head``: the draft's head has
one bit more than its layers (and is not pruned); else it is BF16's. ``-sure``: so is the head, and
a round ends after a token that the draft is not sure of.
"""


def choose(patterns: list[str]) -> list[Setting]:
    """Return the settings whose names match a glob, or all without globs."""
    return globs.choose("settings", patterns, SETTINGS)


FAMILIES = ("pruning alone", "truncation alone", "both", "exact")
"""Curves of the figure (as the paper's Figure 7, with the exact scheme)."""


def figure_settings() -> Iterator[tuple[str, Setting]]:
    """Yield the points of each curve, from the most bits to the fewest."""
    for prune in (0.2, 0.4, 0.6):
        yield FAMILIES[0], _setting(f"pruned {prune:.0%}", scheme="unary", truncated=0, prune=prune)
    for truncated in (4, 5, 6):
        fields: dict[str, Any] = {"scheme": "unary", "truncated": truncated, "fill": "midpoint"}
        yield FAMILIES[1], _setting(f"truncated by {truncated}", **fields)
    for prune, truncated in ((0.2, 5), (0.4, 4), (0.6, 5)):
        fields = {"scheme": "unary", "truncated": truncated, "prune": prune, "fill": "midpoint"}
        yield FAMILIES[2], _setting(f"pruned {prune:.0%}, truncated by {truncated}", **fields)
    for truncated in (3, 4, 5, 6):
        yield FAMILIES[3], _setting(f"exact, {8 - truncated} bits", truncated=truncated, **_EXACT)
