"""One pass of a model: bytes by stream, the roofline, decoders and encoders as pipeline stages.

All stages of a layer overlap; the slowest sets its time, and the overhead of a layer comes on top.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from cassandra_spec.lab.system.costs import FULL, FormatCost
from cassandra_spec.lab.system.device import Device
from cassandra_spec.lab.system.errors import check_count, check_number
from cassandra_spec.lab.system.systolic import Product
from cassandra_spec.lab.system.workload import Model


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pass:
    """Some tokens of every request of a batch, through the whole model."""

    tokens: int  # new tokens of each request
    context: float  # tokens of each request that are in the cache before; a mean may be fractional
    batch: int = 1  # requests
    logits: int = 1  # tokens of each request whose logits are wanted
    draft: bool = False  # whether it reads only the draft's bits

    def __post_init__(self) -> None:
        check_count("tokens", self.tokens, 1)
        check_number("context", self.context, zero=True)
        check_count("batch", self.batch, 1)
        check_count("logits", self.logits, 1, self.tokens)

    @property
    def rows(self) -> int:
        """Rows of the activations in linear layers."""
        return self.tokens * self.batch


@dataclasses.dataclass(frozen=True, kw_only=True)
class Traffic:
    """Bytes between the device and its memory, by stream."""

    weights: float = 0.0
    head: float = 0.0
    embedding: float = 0.0
    kv_read: float = 0.0
    kv_written: float = 0.0
    activations: float = 0.0

    @property
    def total(self) -> float:
        """All streams together."""
        return sum(self.streams().values())

    def streams(self) -> dict[str, float]:
        """Return the bytes of each stream, by name."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def __add__(self, other: Traffic) -> Traffic:
        mine, theirs = self.streams(), other.streams()
        return Traffic(**{name: mine[name] + theirs[name] for name in mine})

    def __mul__(self, factor: float) -> Traffic:
        return Traffic(**{name: factor * value for name, value in self.streams().items()})


@dataclasses.dataclass(frozen=True, kw_only=True)
class PassCost:
    """The cost of a pass: bytes, operations and seconds."""

    traffic: Traffic  # bytes by stream
    flops: float  # of linear layers, attention and head
    seconds: float  # in all
    stages: Mapping[str, float]  # seconds of each stage alone; ``overhead`` does not overlap

    @property
    def bound(self) -> str:
        """The slowest stage."""
        return max(self.stages, key=lambda name: self.stages[name])


def _layer_traffic(model: Model, cost: FormatCost, step: Pass) -> Traffic:
    kv = model.kv_values * step.batch
    kv_bits = cost.kv.read(draft=step.draft)
    return Traffic(
        weights=model.layer_weights * cost.weight.read(draft=step.draft) / 8,
        kv_read=kv * step.context * kv_bits / 8,
        kv_written=kv * step.tokens * kv_bits / 8,
        activations=model.layer_activations * step.rows * FULL / 8,
    )


def _end_traffic(model: Model, cost: FormatCost, step: Pass) -> Traffic:
    logits = step.logits * step.batch * (model.hidden + model.vocabulary)
    return Traffic(
        head=model.head_weights * cost.head.read(draft=step.draft) / 8,
        embedding=step.rows * model.hidden * FULL / 8,
        activations=logits * FULL / 8,
    )


def traffic_of(model: Model, cost: FormatCost, step: Pass) -> Traffic:
    """Return the bytes of a pass, without norms (less than .01 % of the weights)."""
    return _layer_traffic(model, cost, step) * model.layers + _end_traffic(model, cost, step)


def _layer_products(model: Model, step: Pass) -> Iterator[Product]:
    """Yield the products of one layer: linear ones for all rows, attention by head and request.

    Query heads that share a key head are rows of one product. All new tokens see the mean number
    of tokens, themselves included.
    """
    query, key = model.heads * model.head_size, model.kv_heads * model.head_size
    for k, n, times in (
        (model.hidden, query, 1),
        (model.hidden, key, 2),
        (query, model.hidden, 1),
        (model.hidden, model.intermediate, 2),
        (model.intermediate, model.hidden, 1),
    ):
        yield Product(m=step.rows, k=k, n=n, times=times)
    seen = step.context + (step.tokens + 1) / 2
    rows, heads = step.tokens * model.heads // model.kv_heads, model.kv_heads * step.batch
    yield Product(m=rows, k=model.head_size, n=seen, times=heads)
    yield Product(m=rows, k=seen, n=model.head_size, times=heads)


def _end_products(model: Model, step: Pass) -> Iterator[Product]:
    yield Product(m=step.logits * step.batch, k=model.hidden, n=model.vocabulary)


def flops_of(model: Model, step: Pass) -> float:
    """Floating-point operations of a pass: two for each product and sum."""
    layer = sum(product.flops for product in _layer_products(model, step))
    return model.layers * layer + sum(product.flops for product in _end_products(model, step))


def cost_of(device: Device, model: Model, cost: FormatCost, step: Pass) -> PassCost:
    """Time of a pass: layers by their slowest stage and their overhead, then the head."""
    weights, kv, head = (
        float(cost.coded and bits.whole != FULL) for bits in (cost.weight, cost.kv, cost.head)
    )
    bandwidth = device.bandwidth * device.bandwidth_efficiency
    cached = kv * model.kv_values * step.batch
    decoded = weights * model.layer_weights + cached * step.context, head * model.head_weights
    layer, end = (
        {
            "memory": traffic(model, cost, step).total / bandwidth,
            "compute": device.computed(products(model, step), cost.dtype),
            "decoders": values / device.decoded(draft=step.draft),
            "encoders": written / device.encoded(),
        }
        for traffic, products, values, written in (
            (_layer_traffic, _layer_products, decoded[0], cached * step.tokens),
            (_end_traffic, _end_products, decoded[1], 0.0),
        )
    )
    stages = {name: model.layers * layer[name] + end[name] for name in layer}
    stages["overhead"] = (model.layers + 1) * device.layer_overhead
    seconds = model.layers * max(layer.values()) + max(end.values()) + stages["overhead"]
    return PassCost(
        traffic=traffic_of(model, cost, step),
        flops=flops_of(model, step),
        seconds=seconds,
        stages=stages,
    )
