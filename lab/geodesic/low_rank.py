"""Low-rank projections: a matrix W [outputs, inputs] as outer [outputs, rank] by inner
[rank, inputs].

By weights, the product is the truncated SVD of W: nearest to W, whatever its inputs are. By
activations, it is U U^T W with the first eigenvectors U of W G W^T, where G is the Gram matrix of
the inputs over a text: its outputs over the text are the nearest that the rank allows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.nn.functional import linear
from tqdm import tqdm

from cassandra_spec.golden import CassandraError
from cassandra_spec.lab.baselines.networks import clone
from cassandra_spec.model.speculative import CassandraForCausalLM, PackedLinear
from cassandra_spec.model.speculative.linear import DecodedProducts

PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj")
"""Projections of attention; the first three have the same inputs."""

KEY_VALUES = ("k_proj", "v_proj")
"""Projections with outputs in the KV cache."""

Factors = tuple[torch.Tensor, torch.Tensor]
"""The outer and the inner factor."""

Grams = Mapping[str, torch.Tensor]
"""Gram matrices, float64 [inputs, inputs], of the inputs of each projection by its name."""


class LowRank(torch.nn.Module):
    """A linear layer of two factors, in BF16; the bias is that of the whole matrix."""

    def __init__(self, factors: Factors, bias: torch.Tensor | None) -> None:
        super().__init__()
        outer, inner = (each.to(torch.bfloat16) for each in factors)
        self._outer, self._inner, self._bias = outer, inner, bias
        self.products = outer.numel() + inner.numel()
        self.weight_bytes = 2 * (self.products + (0 if bias is None else bias.numel()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``x`` [..., inputs] to [..., outputs]."""
        return linear(linear(x, self._inner), self._outer, self._bias)


def by_weights(weight: torch.Tensor, rank: int) -> Factors:
    """Compute the truncated SVD, float32."""
    u, s, vh = torch.linalg.svd(weight.float(), full_matrices=False)
    root = s[:rank].sqrt()
    return u[:, :rank] * root, root[:, None] * vh[:rank]


def by_activations(weight: torch.Tensor, rank: int, gram: torch.Tensor) -> Factors:
    """Compute the factors that best keep the outputs over a text, float64."""
    weight = weight.double()
    vectors = torch.linalg.eigh(weight @ gram @ weight.T).eigenvectors
    first = vectors[:, -rank:].flip(-1)
    return first, first.T @ weight


def output_error(weight: torch.Tensor, factors: Factors, gram: torch.Tensor) -> float:
    """||(W - outer inner) X||^2 / ||W X||^2 over the inputs X of a Gram matrix."""
    weight = weight.double()
    apart = weight - factors[0].double() @ factors[1].double()
    lost, whole = (torch.trace(each @ gram @ each.T) for each in (apart, weight))
    return float(lost / whole)


def projections(network: Any) -> Iterator[tuple[str, Any]]:
    """Yield the attention projections of a network, by name."""
    for name, layer in network.named_modules():
        if name.rsplit(".", 1)[-1] in PROJECTIONS:
            yield name, layer


def weight_of(layer: Any) -> torch.Tensor:
    """Return the matrix of a linear layer [outputs, inputs] in the target."""
    if isinstance(layer, PackedLinear) and isinstance(layer.products, DecodedProducts):
        return layer.products.target_values
    found: torch.Tensor = layer.weight.detach()
    return found


def check_rank(rank: int, network: Any) -> None:
    """Refuse a rank that no projection of a network has room for."""
    most = max(min(weight_of(layer).shape) for _, layer in projections(network))
    if not 1 <= rank <= most:
        raise CassandraError(f"rank must be from 1 to {most}, the model's dimension, not {rank}")


def gather_grams(
    network: Any, sequences: Iterable[Sequence[int]], *, progress: bool = False
) -> Grams:
    """Gram matrices over sequences of tokens, by the network's own passes."""
    grams: dict[str, torch.Tensor] = {}

    def watch(name: str, layer: Any) -> Any:
        def add(module: Any, inputs: tuple[torch.Tensor, ...]) -> None:
            x = inputs[0].flatten(0, -2).float()
            grams[name] = grams.get(name, torch.zeros(())) + (x.T @ x).double()

        return layer.register_forward_pre_hook(add)

    alike = ("k_proj", "v_proj")  # as q_proj
    handles = [
        watch(name, layer) for name, layer in projections(network) if not name.endswith(alike)
    ]
    try:
        with torch.inference_mode():
            for tokens in tqdm(sequences, "activations", disable=None if progress else True):
                network.model(input_ids=torch.tensor([list(tokens)]), use_cache=False)
    finally:
        for handle in handles:
            handle.remove()
    for name in [name for name in grams if name.endswith("q_proj")]:
        grams |= {name.replace("q_proj", other): grams[name] for other in alike}
    return grams


def project(
    lm: CassandraForCausalLM,
    rank: int,
    grams: Grams | None = None,
    *,
    only: tuple[str, ...] = PROJECTIONS,
) -> Any:
    """Build a network with low-rank attention that shares all else with a model's target.

    By activations if there are ``grams``, else by weights. A matrix with a side that is no longer
    than the rank stays whole, and so do projections that are not among ``only``. With keys and
    values alone, a cache may hold ``rank`` numbers of each instead of all: the outer factor, and
    the rotation of keys, are applied when they are read.
    """
    check_rank(rank, lm.network)
    made = clone(lm)
    for name, layer in list(projections(made)):
        weight = weight_of(layer)
        if rank >= min(weight.shape) or not name.endswith(only):
            continue
        bias = layer._bias if isinstance(layer, PackedLinear) else layer.bias
        factors = (
            by_weights(weight, rank) if grams is None else by_activations(weight, rank, grams[name])
        )
        made.set_submodule(name, LowRank(factors, bias))
    return made
