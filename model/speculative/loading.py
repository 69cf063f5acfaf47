"""Packed matrices into a network, and what its passes read of them."""

from __future__ import annotations

from typing import Any

import torch

from golden.file import PackedFile
from model.architectures import EMBEDDING, HEAD
from model.speculative.key_values import ReadBytes
from model.speculative.linear import Mode, PackedLinear, ProductsFactory
from model.speculative.report import Costs

__all__ = ["pack_layers", "pass_costs"]

_BF16_BYTES = 2


def pack_layers(network: Any, packed: PackedFile, mode: Mode, products: ProductsFactory) -> None:
    """Replace the linear layers of a network whose matrices are packed."""
    for name, layer in list(network.named_modules()):
        tensor = _tensor_of(f"{name}.weight", packed)
        if not isinstance(layer, torch.nn.Linear) or tensor is None:
            continue
        made = products(packed.read_packed(tensor), layer.weight.detach())
        network.set_submodule(name, PackedLinear(made, mode, layer.bias))


def _tensor_of(weight: str, packed: PackedFile) -> str | None:
    """The packed tensor that holds a weight: a tied head is stored as the embedding."""
    if weight in packed.tensors:
        return weight
    return EMBEDDING if weight == HEAD and EMBEDDING in packed.tensors else None


def pass_costs(network: Any, packed: PackedFile) -> Costs:
    """What the passes of a network read of the weights of a file."""
    head = _tensor_of(HEAD, packed)
    linear = [_weight_bytes(packed, name) for name in packed.tensors if name != head]
    return Costs(
        linear=sum(linear, ReadBytes()),
        head=ReadBytes() if head is None else _weight_bytes(packed, head),
        other=_other_bytes(packed),
        position=_position_bytes(network),
    )


def _weight_bytes(packed: PackedFile, name: str) -> ReadBytes:
    stored = packed.stored_bytes(name)
    draft = stored["speculation"] + stored["directory"]
    count = packed.tensors[name].count
    return ReadBytes(draft=draft, target=draft + stored["verification"], bf16=2 * count)


def _other_bytes(packed: PackedFile) -> int:
    return sum(raw.nbytes for name, raw in packed.others.items() if name != EMBEDDING)


def _position_bytes(network: Any) -> int:
    config = network.config
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return 2 * config.num_hidden_layers * config.num_key_value_heads * size * _BF16_BYTES
