"""Settings that `casspec bench acceptance` compares, and the sweeps of its figure."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator
from typing import Any

from golden import CassandraError, Format
from model.packing import PackPlan, Recipe
from model.speculative import KeyValueFormat
from model.study.drafts import Setting

__all__ = ["FAMILIES", "SETTINGS", "choose", "figure_settings"]

KV_TRUNCATED = KeyValueFormat(format=Format(scheme="unary", truncated=4, fill="midpoint"))
"""Keys and values of which the draft reads sign, exponent and three bits; the target reads all."""


def _setting(name: str, *, kv: KeyValueFormat | None = None, **fields: Any) -> Setting:
    return Setting(name=name, plan=PackPlan(default=Recipe.from_dict(fields)), kv=kv)


_PAPER: dict[str, Any] = {"scheme": "unary", "prune": 0.4, "truncated": 4}
_UNARY: dict[str, Any] = {"scheme": "unary", "prune": 0.3, "truncated": 5, "fill": "midpoint"}
_MX: dict[str, Any] = {"scheme": "mx", "group": 32, "truncated": 4, "fill": "midpoint"}
_EXACT: dict[str, Any] = {
    "scheme": "exact",
    "group": 64,
    "fill": "midpoint",
    "group_exponents": "weighted",
}

SETTINGS = (
    _setting("unary-40", kv=KV_TRUNCATED, **_PAPER),
    _setting("unary-40-magnitude", kv=KV_TRUNCATED, prune_scores="magnitude", **_PAPER),
    _setting("unary-30", kv=KV_TRUNCATED, **_UNARY),
    _setting("mx-4", kv=KV_TRUNCATED, **_MX),
    _setting("mx-4-kv", **_MX),
    _setting("exact-3", kv=KV_TRUNCATED, truncated=5, **_EXACT),
    _setting("exact-3-kv", truncated=5, **_EXACT),
    _setting("exact-4", kv=KV_TRUNCATED, truncated=4, **_EXACT),
    _setting("exact-4-kv", truncated=4, **_EXACT),
)
"""The paper's two, and the best of each scheme; ``-kv``: the draft reads keys and values whole."""


def choose(patterns: list[str]) -> list[Setting]:
    """The settings whose names match a glob, all without one."""
    for pattern in patterns:
        if not any(fnmatch.fnmatchcase(setting.name, pattern) for setting in SETTINGS):
            known = ", ".join(setting.name for setting in SETTINGS)
            raise CassandraError(f"settings must be among {known}, not {pattern!r}")
    return [
        setting
        for setting in SETTINGS
        if not patterns or any(fnmatch.fnmatchcase(setting.name, p) for p in patterns)
    ]


FAMILIES = ("pruning alone", "truncation alone", "both", "exact")
"""Curves of the figure (as the paper's Figure 7, with the exact scheme)."""


def figure_settings() -> Iterator[tuple[str, Setting]]:
    """The points of each curve, from the most bits to the fewest."""
    for prune in (0.2, 0.4, 0.6):
        yield FAMILIES[0], _setting(f"pruned {prune:.0%}", scheme="unary", truncated=0, prune=prune)
    for truncated in (3, 4, 5, 6):
        fields: dict[str, Any] = {"scheme": "unary", "truncated": truncated, "fill": "midpoint"}
        yield FAMILIES[1], _setting(f"truncated by {truncated}", **fields)
    for prune, truncated in ((0.2, 4), (0.4, 4), (0.4, 5), (0.6, 5)):
        fields = {"scheme": "unary", "truncated": truncated, "prune": prune, "fill": "midpoint"}
        yield FAMILIES[2], _setting(f"pruned {prune:.0%}, truncated by {truncated}", **fields)
    for truncated in (3, 4, 5, 6):
        yield FAMILIES[3], _setting(f"exact, {8 - truncated} bits", truncated=truncated, **_EXACT)
