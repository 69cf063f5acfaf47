"""A network with its matrices rounded to integers, group by group."""

from __future__ import annotations

import functools
from typing import Any

import torch

from cassandra_spec.lab.baselines.networks import clone
from cassandra_spec.model.speculative import CassandraForCausalLM, DecodedProducts, PackedLinear

_SCALE_BYTES = 2


class QuantizedLinear(torch.nn.Module):
    """A linear layer of rounded weights; products are computed with their BF16 values.

    ``weight_bytes`` is what a pass reads: integers of ``bits`` bits and a scale for each group.
    """

    def __init__(
        self, weight: torch.Tensor, bias: torch.Tensor | None, *, bits: int, group: int
    ) -> None:
        super().__init__()
        self.values = rounded(weight, bits=bits, group=group)
        self._made = DecodedProducts(draft=self.values, target=self.values)
        self._bias = bias
        self.products = weight.numel()
        groups = weight.shape[0] * -(-weight.shape[1] // group)
        self.weight_bytes = (bits * weight.numel() + 7) // 8 + _SCALE_BYTES * groups

    def forward(self, x: torch.Tensor) -> Any:
        """``x`` [..., inputs] to [..., outputs]."""
        product = self._made.target(x)
        return product if self._bias is None else product + self._bias


def rounded(weight: torch.Tensor, *, bits: int, group: int) -> torch.Tensor:
    """Round weights [outputs, inputs] to multiples of their group's scale, in BF16.

    The last group of a row may be shorter.
    """
    outputs, inputs = weight.shape
    padding = -inputs % group
    groups = torch.nn.functional.pad(weight.float(), (0, padding)).reshape(outputs, -1, group)
    scale = groups.abs().amax(-1, keepdim=True) / (2 ** (bits - 1) - 1)
    scale = scale.to(torch.bfloat16).float().clamp_min(torch.finfo(torch.float32).tiny)
    most = 2 ** (bits - 1) - 1
    values = (groups / scale).round().clamp(-most, most) * scale
    return values.reshape(outputs, -1)[:, :inputs].to(torch.bfloat16)


@functools.lru_cache(maxsize=2)
def quantized_clone(lm: CassandraForCausalLM, *, bits: int, group: int) -> Any:
    """Clone a model with rounded linear layers, head and embedding; cached per argument set.

    A tied head is rounded once.
    """
    network = clone(lm)
    for name, module in list(network.named_modules()):
        weight = _weight(module)
        if weight is not None:
            bias = module.bias if isinstance(module, torch.nn.Linear) else module._bias
            network.set_submodule(name, QuantizedLinear(weight, bias, bits=bits, group=group))
    embedding = network.get_input_embeddings()
    values = rounded(embedding.weight.detach(), bits=bits, group=group)
    embedding.weight = torch.nn.Parameter(values, requires_grad=False)
    return network


def _weight(module: Any) -> torch.Tensor | None:
    """Return the target's matrix of a linear layer; None for other modules."""
    if isinstance(module, PackedLinear) and isinstance(module.products, DecodedProducts):
        return module.products.target_values
    return module.weight.detach() if isinstance(module, torch.nn.Linear) else None


def stored_bytes(network: Any) -> int:
    """Memory of the rounded matrices; rows of an embedding are those of the head, or its like."""
    return sum(m.weight_bytes for m in network.modules() if isinstance(m, QuantizedLinear))
