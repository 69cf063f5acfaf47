"""Passes whose logits do not depend on how many positions they are computed with.

A position p is always computed in row ``p mod rows`` of a tile of ``rows`` rows: the positions of
one tile start at a multiple of ``rows``, and rows that a pass does not need are padding. So every
layer sees the same shape with a position in the same row, whether it is the only one (plain
decoding), one of gamma+1 (verification) or one of a prompt. Attention is computed row by row, over
exactly the keys that the row sees. What is left to the kernels is that a row of a result does not
depend on the contents of other rows, and that a kernel does twice the same.

The same passes serve the target and the draft.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from transformers import AttentionInterface

from cassandra_spec.model.speculative.key_values import KeyValueCache
from cassandra_spec.model.speculative.rotary import Attributes, fixed_angles
from cassandra_spec.model.speculative.tiles import ROWS, Tile, tiles

ATTENTION = "cassandra_by_rows"
"""Name of this module's attention in transformers."""


def _attend_by_rows(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float,
    tile: Tile,
    key_values: KeyValueCache,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Compute causal attention in float32, row by row (transformers' interface).

    ``query`` is [1, heads, rows, dimensions]; keys and values are what ``key_values`` lets each row
    see. Returns [1, rows, heads, dimensions], zero in the padding.
    """
    _, heads, rows, size = query.shape
    out = query.new_zeros((1, rows, heads, size))
    layer: Any = module.layer_idx
    for row in range(tile.first, tile.stop):
        row_query = query[0, :, row].float()
        keys, values = key_values.seen(layer, tile.start + row, sliding_window, row_query)
        groups = (keys.shape[0], heads // keys.shape[0], size)
        scores = row_query.reshape(groups) @ keys.transpose(1, 2) * scaling
        out[0, row] = (
            (capped(scores, softcap).softmax(-1) @ values).reshape(heads, size).to(out.dtype)
        )
    return out, None


AttentionInterface.register(ATTENTION, _attend_by_rows)


def capped(x: torch.Tensor, bound: float | None) -> torch.Tensor:
    """Apply a soft cap to scores or logits, as some models do; None: no cap."""
    return x if bound is None else bound * (x / bound).tanh()


@contextmanager
def attention_by_rows(network: Any) -> Iterator[None]:
    """Attend by rows within the block, with the angles that were chosen; other passes of the
    network are as its config says.
    """
    ours = [(network.config, {"_attn_implementation": ATTENTION}), *fixed_angles(network)]
    before = [(of, {name: getattr(of, name) for name in values}) for of, values in ours]
    try:
        _set_attributes(ours)
        yield
    finally:
        _set_attributes(before)


def _set_attributes(all_values: Sequence[Attributes]) -> None:
    for of, values in all_values:
        for name, value in values.items():
            setattr(of, name, value)


def run_pass(
    network: Any,
    cache: KeyValueCache,
    tokens: Sequence[int],
    position: int,
    *,
    rows: int = ROWS,
    last: int | None = None,
    draft: bool = False,
) -> torch.Tensor:
    """Compute the logits of consecutive tokens, the first of them at ``position``.

    ``network`` is a transformers model; ``cache`` holds all earlier positions and gets those of the
    tokens; ``draft`` says whose keys and values the pass sees. Returns float32 [``last``,
    vocabulary] for the last tokens, all by default.
    """
    stop = position + len(tokens)
    first = position if last is None else stop - last
    parts = []
    for tile in tiles(position, stop, rows):
        cache.begin(tile, draft=draft)
        logits = _run_tile(network, cache, tokens, position, tile, first)
        if logits is not None:
            parts.append(logits)
    return torch.cat(parts)


def _run_tile(
    network: Any,
    cache: KeyValueCache,
    tokens: Sequence[int],
    position: int,
    tile: Tile,
    wanted: int,
) -> torch.Tensor | None:
    """Compute the logits of one tile's positions from ``wanted`` on; None if it has none."""
    ids = torch.zeros((1, tile.rows), dtype=torch.int64)
    offset = tile.start - position
    ids[0, tile.first : tile.stop] = torch.tensor(
        tokens[tile.first + offset : tile.stop + offset], dtype=torch.int64
    )
    first = max(tile.first, wanted - tile.start)
    needed = first < tile.stop
    with torch.inference_mode(), attention_by_rows(network):
        logits = network(
            input_ids=ids,
            position_ids=torch.arange(tile.start, tile.start + tile.rows)[None],
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=0 if needed else torch.zeros(0, dtype=torch.int64),
            tile=tile,
            key_values=cache,
        ).logits
    return logits[0, first : tile.stop].float() if needed else None
