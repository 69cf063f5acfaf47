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

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from transformers import AttentionInterface

from golden import CassandraError

__all__ = ["ATTENTION", "ROWS", "KeyValueCache", "Tile", "run_pass", "tiles"]

ATTENTION = "cassandra_by_rows"
"""The name under which transformers finds the attention of this module."""

ROWS = 16
"""Rows of a tile by default."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tile:
    """The rows of one tile that a pass computes: ``first`` to ``stop`` of ``rows``."""

    start: int  # position of row 0, a multiple of rows
    rows: int
    first: int  # first row that is not padding
    stop: int  # row after the last that is not padding


def tiles(start: int, stop: int, rows: int) -> Iterator[Tile]:
    """The tiles that cover the positions ``start`` to ``stop``."""
    for base in range(start - start % rows, stop, rows):
        yield Tile(start=base, rows=rows, first=max(start - base, 0), stop=min(stop - base, rows))


class KeyValueCache:
    """Keys and values by layer and position, shared by draft and target.

    A pass writes the rows of its own positions, over whatever is there, and sees those up to its
    last; so a rollback needs no work: the next pass starts at an earlier position. Memory for
    ``capacity`` positions is taken at the first use of a layer.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._layers: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._tile: Tile | None = None

    def begin(self, tile: Tile) -> None:
        """Say which rows the next updates bring."""
        if tile.start + tile.stop > self.capacity:
            wanted = tile.start + tile.stop
            raise CassandraError(f"positions must fit the cache of {self.capacity}, not {wanted}")
        self._tile = tile

    def update(
        self, key: torch.Tensor, value: torch.Tensor, layer: int, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the rows of the tile (transformers' interface).

        ``key`` and ``value`` are [1, heads, rows, dimensions] with the padding; returns both as
        [1, heads, positions, dimensions] up to the last position of the tile.
        """
        assert self._tile is not None, "begin() comes first"
        tile = self._tile
        if layer not in self._layers:
            self._layers[layer] = (self._room(key), self._room(value))
        stop = tile.start + tile.stop
        stored = self._layers[layer]
        for room, rows in zip(stored, (key, value), strict=True):
            room[:, :, tile.start + tile.first : stop] = rows[:, :, tile.first : tile.stop]
        return stored[0][:, :, :stop], stored[1][:, :, :stop]

    def _room(self, like: torch.Tensor) -> torch.Tensor:
        return like.new_zeros((1, like.shape[1], self.capacity, like.shape[3]))


def _attend_by_rows(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float,
    tile: Tile,
    sliding_window: int | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Causal attention in float32, one query row at a time (transformers' interface).

    ``query`` [1, heads, rows, dimensions], ``key`` and ``value`` [1, key heads, positions,
    dimensions]; returns [1, rows, heads, dimensions], zero in the padding.
    """
    _, heads, rows, size = query.shape
    groups = (key.shape[1], heads // key.shape[1], size)
    out = query.new_zeros((1, rows, heads, size))
    for row in range(tile.first, tile.stop):
        stop = tile.start + row + 1
        start = 0 if sliding_window is None else max(stop - sliding_window, 0)
        # Copies, so that neither the capacity of the cache nor the pass shows in their layout.
        keys, values = (x[0, :, start:stop].float().contiguous() for x in (key, value))
        scores = query[0, :, row].float().reshape(groups) @ keys.transpose(1, 2) * scaling
        out[0, row] = (scores.softmax(-1) @ values).reshape(heads, size).to(out.dtype)
    return out, None


AttentionInterface.register(ATTENTION, _attend_by_rows)


def run_pass(
    network: Any,
    cache: KeyValueCache,
    tokens: Sequence[int],
    position: int,
    *,
    rows: int = ROWS,
    last: int | None = None,
) -> torch.Tensor:
    """Logits of consecutive tokens, the first of them at ``position``.

    ``network`` is a transformers model whose attention is :data:`ATTENTION`; ``cache`` holds all
    earlier positions and gets those of the tokens. Returns float32 [``last``, vocabulary] for the
    last tokens, all by default.
    """
    stop = position + len(tokens)
    wanted = position if last is None else stop - last
    found = []
    for tile in tiles(position, stop, rows):
        logits = _run_tile(network, cache, tokens, position, tile, wanted)
        if logits is not None:
            found.append(logits)
    return torch.cat(found)


def _run_tile(
    network: Any,
    cache: KeyValueCache,
    tokens: Sequence[int],
    position: int,
    tile: Tile,
    wanted: int,
) -> torch.Tensor | None:
    """Logits of the positions of one tile from ``wanted`` on, None if there are none."""
    ids = torch.zeros((1, tile.rows), dtype=torch.int64)
    offset = tile.start - position
    ids[0, tile.first : tile.stop] = torch.tensor(
        tokens[tile.first + offset : tile.stop + offset], dtype=torch.int64
    )
    first = max(tile.first, wanted - tile.start)
    needed = first < tile.stop
    cache.begin(tile)
    with torch.inference_mode():
        logits = network(
            input_ids=ids,
            position_ids=torch.arange(tile.start, tile.start + tile.rows)[None],
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=0 if needed else torch.zeros(0, dtype=torch.int64),
            tile=tile,
        ).logits
    return logits[0, first : tile.stop].float() if needed else None
