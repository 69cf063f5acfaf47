"""Low-rank attention projections: a matrix W [outputs, inputs] as outer [outputs, rank] by inner
[rank, inputs].

By weights, the product is the truncated SVD of W: nearest to W, whatever its inputs are. By
activations, it is U U^T W with the first eigenvectors U of W G W^T, where G is the Gram matrix of
the inputs over a text: its outputs over the text are the nearest that the rank allows.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.functional import linear
from tqdm import tqdm

from cassandra_spec.golden import CassandraError

PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj")

Grams = Mapping[str, torch.Tensor]
"""Gram matrices, float64 [inputs, inputs], of the inputs of each attention projection by name."""


class LowRank(torch.nn.Module):
    """A linear layer of two factors; the bias is that of the whole matrix."""

    def __init__(
        self, outer: torch.Tensor, inner: torch.Tensor, bias: torch.Tensor | None, like: torch.dtype
    ) -> None:
        super().__init__()
        self.outer = torch.nn.Parameter(outer.to(like), requires_grad=False)
        self.inner = torch.nn.Parameter(inner.to(like), requires_grad=False)
        self._bias = bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``x`` [..., inputs] to [..., outputs]."""
        return linear(linear(x, self.inner), self.outer, self._bias)


def by_weights(weight: torch.Tensor, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Outer and inner factor of the truncated SVD, float64."""
    u, s, vh = torch.linalg.svd(weight.double(), full_matrices=False)
    root = s[:rank].sqrt()
    return u[:, :rank] * root, root[:, None] * vh[:rank]


def by_activations(
    weight: torch.Tensor, rank: int, gram: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Outer and inner factor that keep the outputs over a text, float64."""
    weight = weight.double()
    vectors = torch.linalg.eigh(weight @ gram @ weight.T).eigenvectors
    first = vectors[:, -rank:].flip(-1)
    return first, first.T @ weight


def output_error(
    weight: torch.Tensor, factors: tuple[torch.Tensor, torch.Tensor], gram: torch.Tensor
) -> float:
    """||(W - outer inner) X||^2 / ||W X||^2 over the inputs X of a Gram matrix."""
    weight = weight.double()
    apart = weight - factors[0] @ factors[1]
    lost, whole = (torch.trace(each @ gram @ each.T) for each in (apart, weight))
    return float(lost / whole)


def projections(network: Any) -> Iterator[tuple[str, Any]]:
    """The attention projections of a network, by name."""
    for name, layer in network.named_modules():
        if name.rsplit(".", 1)[-1] in PROJECTIONS:
            yield name, layer


def check_rank(rank: int, network: Any) -> None:
    """Refuse a rank that no projection of a network has room for."""
    most = max(min(layer.weight.shape) for _, layer in projections(network))
    if not 1 <= rank <= most:
        raise CassandraError(f"rank must be from 1 to {most}, the model's dimension, not {rank}")


def gather_grams(
    network: Any, sequences: Iterable[Sequence[int]], *, progress: bool = False
) -> Grams:
    """Gram matrices over sequences of tokens, by the network's own passes."""
    grams: dict[str, torch.Tensor] = {}

    def add(name: str) -> Any:
        def hook(module: Any, inputs: tuple[torch.Tensor, ...]) -> None:
            x = inputs[0].flatten(0, -2).float()
            grams[name] = grams.get(name, torch.zeros(())) + (x.T @ x).double()

        return hook

    handles = [layer.register_forward_pre_hook(add(name)) for name, layer in projections(network)]
    try:
        with torch.inference_mode():
            for tokens in tqdm(sequences, "activations", disable=None if progress else True):
                network.model(input_ids=torch.tensor([tokens]), use_cache=False)
    finally:
        for handle in handles:
            handle.remove()
    return grams


def project(network: Any, rank: int, grams: Grams | None = None) -> Any:
    """A network with low-rank attention and everything else in common with ``network``.

    By activations if there are ``grams``, else by weights. A matrix with a side that is no longer
    than the rank stays whole.
    """
    check_rank(rank, network)
    memo = {id(each): each for each in (*network.parameters(), *network.buffers())}
    made = copy.deepcopy(network, memo)
    for name, layer in list(projections(network)):
        weight = layer.weight.detach()
        if rank >= min(weight.shape):
            continue
        factors = (
            by_weights(weight, rank) if grams is None else by_activations(weight, rank, grams[name])
        )
        made.set_submodule(name, LowRank(*factors, layer.bias, weight.dtype))
    return made
