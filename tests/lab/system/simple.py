"""A device, a model and formats small enough to compute by hand."""

from __future__ import annotations

import dataclasses
from typing import Any

from cassandra_spec.lab.system.acceptance import Acceptance
from cassandra_spec.lab.system.costs import Bits, FormatCost
from cassandra_spec.lab.system.decoding import Setup
from cassandra_spec.lab.system.device import Device
from cassandra_spec.lab.system.workload import Model, Workload

DEVICE = Device(
    name="simple",
    bandwidth=1000.0,
    compute={"bf16": 1e9, "int8": 2e9},
    memory=10_000.0,
    reserved=1_000.0,
    clock=10.0,
    layer_overhead=0.0,
    decoders=2,
    draft_rate=1e6,
    target_rate=0.5e6,
    encoders=1,
    encoder_rate=1e6,
)
"""Memory sets the pace: everything else is a million times faster."""

MODEL = Model(
    name="simple",
    hidden=4,
    intermediate=8,
    layers=3,
    heads=2,
    kv_heads=1,
    head_size=2,
    vocabulary=10,
    tied=False,
)
"""A layer has 48 weights of attention (4x4, 4x2, 4x2, 4x4) and 96 of its MLP; the head has 40."""

WIDE = dataclasses.replace(MODEL, hidden=2048, intermediate=65536, vocabulary=1)
"""A model whose weights outweigh everything else, unless a context is very long."""


def bits(draft: float, whole: float) -> Bits:
    return Bits(draft=draft, whole=whole, source="test")


HALF = FormatCost(name="half", title="half", weight=bits(4, 8), kv=bits(4, 8), head=bits(4, 8))
"""Half of BF16, and half of that for drafts."""

PLAIN = FormatCost(
    name="plain",
    title="plain",
    weight=bits(16, 16),
    kv=bits(16, 16),
    head=bits(16, 16),
    decoder="",
)


def device(**changes: Any) -> Device:
    return dataclasses.replace(DEVICE, **changes)


def setup(**changes: Any) -> Setup:
    question = Setup(
        device=DEVICE,
        model=MODEL,
        workload=Workload(prompt=10, output=11),
        cost=HALF,
        acceptance=Acceptance(rate=0.5),
        gamma=3,
    )
    return dataclasses.replace(question, **changes)
