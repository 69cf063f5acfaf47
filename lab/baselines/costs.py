"""Compute the costs of passes: bytes of weights, bytes of keys and values, operations."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from cassandra_spec.model.speculative import PackedLinear
from cassandra_spec.model.speculative.linear import DecodedProducts

_BF16_BYTES = 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class PassCost:
    """Bytes read and operations of one pass or of several."""

    weights: float = 0.0  # bytes
    kv: float = 0.0  # bytes of keys and values
    flops: float = 0.0  # a multiplication and an addition are two

    @property
    def bytes(self) -> float:
        """Return the sum of all bytes read."""
        return self.weights + self.kv

    def __add__(self, other: PassCost) -> PassCost:
        return PassCost(
            weights=self.weights + other.weights,
            kv=self.kv + other.kv,
            flops=self.flops + other.flops,
        )

    def __mul__(self, times: float) -> PassCost:
        return PassCost(weights=self.weights * times, kv=self.kv * times, flops=self.flops * times)


NOTHING = PassCost()


@dataclasses.dataclass(frozen=True, kw_only=True)
class NetworkSize:
    """Sizes of a network, from which the costs of its passes follow."""

    weights: int  # bytes that a pass reads beside keys and values
    products: int  # weights that each row is multiplied by
    position: int  # bytes of keys and values of one position
    attention: int  # products of one query with one position, all layers and heads

    def cost(self, position: int, rows: int) -> PassCost:
        """Return the cost of a pass over ``rows`` rows from ``position`` on; it reads each
        position once.
        """
        seen = sum(range(position + 1, position + rows + 1))
        return PassCost(
            weights=self.weights,
            kv=self.position * (position + rows),
            flops=2 * self.products * rows + 2 * self.attention * seen,
        )

    @classmethod
    def of(cls, network: Any, *, weights: int | None = None) -> NetworkSize:
        """Return the sizes of a transformers network, packed layers read as BF16.

        A module with ``weight_bytes`` and ``products`` states its own. ``weights`` is the bytes of
        all weights that a pass reads, if not the sum over modules. Rows of an embedding are not
        counted.
        """
        read = products = position = attention = 0
        for module in network.modules():
            own, multiplied = _matrix(module)
            read, products = read + own, products + multiplied
            if hasattr(module, "layer_idx") and hasattr(module, "num_key_value_groups"):
                heads = network.config.num_attention_heads
                position += 2 * (heads // module.num_key_value_groups) * module.head_dim
                attention += 2 * heads * module.head_dim
        return cls(
            weights=read if weights is None else weights,
            products=products,
            position=position * _BF16_BYTES,
            attention=attention,
        )


def _matrix(module: Any) -> tuple[int, int]:
    """Return the bytes of weights that a module itself reads, and the number multiplied."""
    if hasattr(module, "weight_bytes"):
        return module.weight_bytes, module.products
    if isinstance(module, PackedLinear) and isinstance(module.products, DecodedProducts):
        return _BF16_BYTES * module.products.count, module.products.count
    own = sum(each.numel() for each in module.parameters(recurse=False))
    if isinstance(module, torch.nn.Linear):
        return _BF16_BYTES * own, module.weight.numel()
    return (0, 0) if isinstance(module, torch.nn.Embedding) else (_BF16_BYTES * own, 0)
