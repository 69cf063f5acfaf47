"""Passes over some of a network's layers, from states instead of tokens.

The rows and tiles are those of :mod:`cassandra_spec.model.speculative.passes`, so the states and
the keys and values of a position are the same bits whether its layers run in one pass or in
several, alone or with other positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from cassandra_spec.model.speculative import KeyValueCache
from cassandra_spec.model.speculative.passes import attention_by_rows
from cassandra_spec.model.speculative.tiles import ROWS, tiles


@torch.inference_mode()
def embed(network: Any, tokens: Sequence[int]) -> torch.Tensor:
    """Return the states before the first layer [tokens, width]."""
    found: torch.Tensor = network.model.embed_tokens(torch.tensor(tokens))
    return found


def run_layers(
    network: Any,
    cache: KeyValueCache,
    states: torch.Tensor,
    position: int,
    layers: range,
    *,
    rows: int = ROWS,
    draft: bool = False,
) -> torch.Tensor:
    """Return the states behind some layers of consecutive positions, the first at ``position``.

    ``states`` [positions, width] are those before the layers; keys and values of the layers are
    written. The network must be a Llama: layers that take what its rotary embedding gives.
    """
    found = []
    for tile in tiles(position, position + len(states), rows):
        cache.begin(tile, draft=draft)
        padded = states.new_zeros((1, tile.rows, states.shape[1]))
        first = tile.start + tile.first - position
        padded[0, tile.first : tile.stop] = states[first : first + tile.stop - tile.first]
        places = torch.arange(tile.start, tile.start + tile.rows)[None]
        with torch.inference_mode(), attention_by_rows(network):
            angles = network.model.rotary_emb(padded, places)
            for number in layers:
                padded = network.model.layers[number](
                    padded,
                    attention_mask=None,
                    position_ids=places,
                    past_key_values=cache,
                    use_cache=True,
                    position_embeddings=angles,
                    tile=tile,
                    key_values=cache,
                )
        found.append(padded[0, tile.first : tile.stop])
    return torch.cat(found)


@torch.inference_mode()
def head(
    network: Any, state: torch.Tensor, position: int, adapter: Any = None, rows: int = ROWS
) -> torch.Tensor:
    """Return the logits, float32 [vocabulary], of a state [width] behind the last layer or an
    exit's.
    """
    padded = state.new_zeros((1, rows, len(state)))
    padded[0, position % rows] = state
    adapted = padded if adapter is None else adapter(padded).to(state.dtype)
    logits: torch.Tensor = network.lm_head(network.model.norm(adapted))
    return logits[0, position % rows].float()
