"""Results of the native library that must have the same bits on every processor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cassandra_spec import native
from cassandra_spec.golden import Format
from cassandra_spec.native.codec import NativeCodec
from cassandra_spec.native.library import available_isas
from tests.golden.cases import ALL_PATTERNS
from tests.native.models import KINDS, packed, small
from tests.native.test_engine import make
from tests.native.test_linear import CASES, inputs, made

Answers = Mapping[str, NDArray[Any]]

TOKENS = np.random.default_rng(7).integers(0, 97, 150).tolist()
FORMATS = {
    "unary": Format(scheme="unary", truncated=4, pruned_exponent="coded"),
    "exact": Format(scheme="exact", truncated=4, fill="midpoint", group=64),
    "exact, t = 5": Format(scheme="exact", truncated=5, segment=1024),
    "mx": Format(scheme="mx", truncated=4),
}


def _products() -> dict[str, NDArray[Any]]:
    """Return products of every form with 1, 8 and 13 rows."""
    found: dict[str, NDArray[Any]] = {}
    for form, group in CASES:
        x = inputs(13, 600)
        with made(form, (69, 600), group, threads=2) as layer:
            for rows in (1, 8, 13):
                found[f"linear {form} {group} {rows}"] = layer.multiply(x[:rows])
    return found


def _logits() -> dict[str, NDArray[Any]]:
    """Return logits of every model type, of target and draft: norms, attention, activations."""
    found: dict[str, NDArray[Any]] = {}
    for kind in KINDS:
        config, tensors = small(kind)
        with make(config, packed(tensors), threads=2) as engine:
            found[f"model {kind} target"] = engine.forward(TOKENS, last=30)
            found[f"model {kind} draft"] = engine.forward(TOKENS[:20], draft=True)
    return found


def _packed() -> dict[str, NDArray[Any]]:
    """Return bytes and decoded values of packed tensors, with and without pruned values."""
    rng = np.random.default_rng(5)
    weights = rng.normal(scale=0.03, size=9000).astype(np.float32).view(np.uint32) >> 16
    found: dict[str, NDArray[Any]] = {}
    codec = NativeCodec()
    for name, format in FORMATS.items():
        rare = rng.permutation(ALL_PATTERNS)[:1000]
        values = np.append(weights.astype(np.uint16), rare)
        for kept in (None, rng.random(values.size) < 0.7):
            each = codec.encode(values, format, kept=kept, nonfinite="saturate")
            parts = {name: getattr(each, name) for name in ("speculation", "verification")}
            parts |= {"draft": codec.decode_draft(each), "target": codec.decode_target(each)}
            place = f"codec {name} {'whole' if kept is None else 'pruned'}"
            found |= {f"{place} {part}": octets for part, octets in parts.items()}
    return found


def answers() -> Answers:
    """Return results by instruction set and name, as ``neon: linear bf16 32 1``."""
    found: dict[str, NDArray[Any]] = {}
    for isa in available_isas():
        native.set_isa(isa)
        for name, result in (_packed() | _products() | _logits()).items():
            found[f"{isa}: {name}"] = result
    native.set_isa(None)
    return found
