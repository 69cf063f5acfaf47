"""Define the contenders of ``casspec bench decode``."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from cassandra_spec.golden.model_types import HEAD
from cassandra_spec.model.packing.packer import Override, PackPlan, Recipe
from cassandra_spec.toolkit import globs

_EXACT: dict[str, Any] = {
    "scheme": "exact",
    "group": 64,
    "fill": "midpoint",
    "group_exponents": "weighted",
}


def _plan(*, head: dict[str, Any] | None = None, **fields: Any) -> PackPlan:
    overrides = (Override(tensors=HEAD, changes=head),) if head else ()
    return PackPlan(default=Recipe.from_dict(fields), overrides=overrides)


PLANS = {
    "exact-4": _plan(**_EXACT, truncated=4),
    "exact-3": _plan(**_EXACT, truncated=5, head={"truncated": 4}),
    "mx-4": _plan(scheme="mx", group=32, truncated=4, fill="midpoint"),
    "unary-30": _plan(
        scheme="unary", prune=0.3, truncated=5, fill="midpoint", head={"truncated": 4, "prune": 0.0}
    ),
}
"""Pack plans by name; the head like the layers, or with one bit more."""

MIN_MARGIN = 0.75
"""Found by `casspec tune` on the development prompts (docs/results/acceptance.md)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Contender:
    """One way to decode."""

    name: str
    kind: str  # native, torch, or what the laboratory knows
    program: str = "cassandra_spec.bench.decode.serve"  # module that decodes
    plan: str = "exact-4"  # of PLANS
    target: str = "bf16"  # form of the native target
    draft: Literal["none", "model", "lookup", "hybrid"] = "none"  # none: plain decoding
    gamma: int | Literal["adaptive"] = "adaptive"
    min_margin: float = 0.0
    table: bool = False  # of n-grams, for the low drafter
    slow: bool = False  # answers a subset of the prompts, with short replies
    same_as: str | None = None  # whose replies its own must be, token for token
    checkout: Path | None = None  # whose code decodes, if not this one's

    @property
    def settings(self) -> dict[str, Any]:
        """Return the worker's settings besides the model."""
        names = ("kind", "target", "draft", "gamma", "min_margin")
        return {name: getattr(self, name) for name in names}


PLAIN = "native plain, BF16"
"""The baseline of ratios."""

_SHORT_PLAIN = "native plain, 12-bit"
_MX_PLAIN = "native plain, mx"
_TORCH_PLAIN = "torch backend, plain"


def _native(name: str, *, same_as: str | None = PLAIN, **fields: Any) -> Contender:
    return Contender(name=f"native {name}", kind="native", same_as=same_as, **fields)


def _speculative(
    name: str, draft: Literal["model", "lookup", "hybrid"], **fields: Any
) -> Contender:
    margin = 0.0 if draft == "lookup" else MIN_MARGIN
    return _native(name, draft=draft, min_margin=margin, **fields)


NATIVE = (
    _native("plain, BF16", same_as=None),
    # rounds otherwise where a matrix has escapes: docs/software/kernels.md
    _native("plain, 12-bit", same_as=None, target="packed12"),
    _native("plain, planes", target="planes"),
    _native("plain, mx", same_as=None, plan="mx-4", target="packed12"),
    _speculative("exact, 4 bits", "model"),
    _speculative("exact, 4 bits, gamma 4", "model", gamma=4),
    _speculative("exact, 4 bits, 12-bit target", "model", target="packed12", same_as=_SHORT_PLAIN),
    _speculative("exact, 4 bits, planes", "model", target="planes"),
    _speculative("exact, 3 bits", "model", plan="exact-3"),
    _speculative("mx", "model", plan="mx-4", target="packed12", same_as=_MX_PLAIN),
    _speculative("unary", "model", plan="unary-30"),
    _speculative("lookup", "lookup"),
    _speculative("hybrid, exact, 4 bits", "hybrid"),
    _speculative("hybrid, 12-bit target", "hybrid", target="packed12", same_as=_SHORT_PLAIN),
    _speculative("hybrid, planes", "hybrid", target="planes"),
    _speculative("hybrid, table", "hybrid", table=True),
    _speculative(
        "hybrid, table, 12-bit target",
        "hybrid",
        target="packed12",
        table=True,
        same_as=_SHORT_PLAIN,
    ),
)
TORCH = (
    Contender(name=_TORCH_PLAIN, kind="torch", slow=True),
    Contender(
        name="torch backend, exact, 4 bits",
        kind="torch",
        draft="model",
        min_margin=MIN_MARGIN,
        slow=True,
        same_as=_TORCH_PLAIN,
    ),
)
CONTENDERS = (*NATIVE, *TORCH)


def name_beside(name: str) -> str:
    """Return the name of the same contender with another checkout's code."""
    return f"{name}, beside"


def choose(
    patterns: Sequence[str], contenders: Sequence[Contender] = CONTENDERS
) -> list[Contender]:
    """Return the contenders whose names match a glob, by default all, and their references."""
    named = {each.name: each for each in globs.choose("contenders", patterns, contenders)}
    needed = {each.same_as for each in named.values()}
    return [each for each in contenders if each.name in named.keys() | needed]
