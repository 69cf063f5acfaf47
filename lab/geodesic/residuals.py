"""Block attention residuals, injected into a model that was trained without them (HyperTensor,
section 4; Kimi Team, arXiv:2603.15031).

The layers are cut into blocks. Before block l the residual stream is the sum of what came before,
h = b_0 + ... + b_{l-1}, with the embedding b_0 and the sums b_n of the updates of each block. The
injection attends over these summaries by depth, for each position on its own:

    s_n = <q_l, b_n> / (sqrt(d) rms(b_n))     a = softmax(s)
    h' = h + strength sum_n (l a_n - 1) b_n

so that strength 1 gives the weighted sum, times l. A plain softmax sum would shrink the stream to a
mean; this form keeps its size, and with zero queries, where every a_n is 1/l, it is h itself, bit
for bit. Nothing uses it unless it is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from cassandra_spec.golden import CassandraError

STRENGTH = 0.35
"""Default of the HyperTensor runtime."""

_EPSILON = 1e-6


@contextmanager
def block_residuals(
    network: Any, queries: Sequence[torch.Tensor], strength: float = STRENGTH
) -> Iterator[None]:
    """Inject within the block, before each block of layers but the first.

    ``queries`` [width] are those of the blocks from the second on; the number of layers must be a
    multiple of the number of blocks.
    """
    layers, blocks = network.model.layers, len(queries) + 1
    if len(layers) % blocks:
        raise CassandraError(f"blocks must divide the {len(layers)} layers, not be {blocks}")
    summaries: list[torch.Tensor] = []

    def start(module: Any, inputs: tuple[torch.Tensor, ...]) -> None:
        summaries[:] = [inputs[0]]

    def inject(query: torch.Tensor) -> Any:
        def hook(module: Any, inputs: tuple[torch.Tensor, ...]) -> tuple[Any, ...]:
            state = inputs[0]
            summaries.append(state - sum(summaries[1:], summaries[0]))
            return mix(state, summaries, query, strength), *inputs[1:]

        return hook

    step = len(layers) // blocks
    handles = [layers[0].register_forward_pre_hook(start)]
    for number, query in enumerate(queries, start=1):
        handles.append(layers[number * step].register_forward_pre_hook(inject(query)))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def mix(
    state: torch.Tensor, summaries: Sequence[torch.Tensor], query: torch.Tensor, strength: float
) -> torch.Tensor:
    """Return the stream h' [..., width] of a stream h and the summaries of its blocks."""
    stacked = torch.stack([each.float() for each in summaries])
    sizes = stacked.square().mean(-1).add(_EPSILON).sqrt()
    scores = stacked @ query.float() / (math.sqrt(len(query)) * sizes)
    weights = len(summaries) * scores.softmax(0) - 1
    if not query.any():
        weights = torch.zeros_like(weights)  # a softmax of zeros may be off by a bit
    change = (weights[..., None] * stacked).sum(0)
    return (state.float() + strength * change).to(state.dtype)
