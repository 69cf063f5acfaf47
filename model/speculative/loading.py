"""Packed matrices into a network, and what its passes read of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cassandra_spec.drafting import Costs, pass_costs
from cassandra_spec.golden.file import PackedFile
from cassandra_spec.golden.model_types import EMBEDDING, HEAD
from cassandra_spec.model.speculative.linear import (
    DecodedProducts,
    Mode,
    PackedLinear,
    ProductsFactory,
)


def pack_layers(network: Any, packed: PackedFile, mode: Mode, products: ProductsFactory) -> None:
    """Replace the linear layers of a network whose matrices are packed."""
    for name, layer in _linear_layers(network):
        tensor = _stored_name(f"{name}.weight", network)
        if tensor in packed.tensors:
            made = products(packed.read_packed(tensor), layer.weight.detach())
            network.set_submodule(name, PackedLinear(made, mode, layer.bias))


def _linear_layers(network: Any) -> list[tuple[str, Any]]:
    """Return all linear layers by name, packed or not, with the head."""
    return [
        (name, layer)
        for name, layer in network.named_modules()
        if isinstance(layer, torch.nn.Linear | PackedLinear)
    ]


def _stored_name(weight: str, network: Any) -> str:
    """Return the name of a weight in a file: a tied head is stored as the embedding."""
    return EMBEDDING if weight == HEAD and network.config.tie_word_embeddings else weight


def network_costs(network: Any, packed: PackedFile) -> Costs:
    """Return the bytes of a file's weights that the passes of a network read."""
    config = network.config
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return pass_costs(
        packed,
        linear={_stored_name(f"{name}.weight", network) for name, _ in _linear_layers(network)},
        head=_stored_name(HEAD, network),
        embedding=EMBEDDING,
        position=2 * config.num_hidden_layers * config.num_key_value_heads * size,
    )


def weights_in_memory(network: Any) -> Iterator[tuple[str, NDArray[np.uint8]]]:
    """Yield the bytes of the weights of a network, by tensor and view.

    Products that are not :class:`DecodedProducts` hold data of their own, and are left out.
    """
    for name, tensor in network.named_parameters():
        yield name, _bytes_of(tensor)
    for name, layer in network.named_modules():
        if isinstance(layer, PackedLinear) and isinstance(layer.products, DecodedProducts):
            yield f"{name}.weight (draft)", _bytes_of(layer.products.draft_values)
            yield f"{name}.weight (target)", _bytes_of(layer.products.target_values)


def _bytes_of(tensor: torch.Tensor) -> NDArray[np.uint8]:
    octets: NDArray[np.uint8] = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy()
    return octets
