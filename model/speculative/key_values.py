"""Keys and values: in BF16, or sealed in the Cassandra format block by block (runtime.md).

A block is a run of consecutive positions in all layers. Once its positions are committed it is
packed by a :class:`golden.Encoder`. From then on the target sees ``decode_target`` of the packed
data, and the draft ``decode_draft``: its speculation data alone. A sealed block is never written
again, so a rollback touches only the positions that are not sealed, which both read in BF16.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cassandra_spec.drafting import DraftCache, ReadBytes
from cassandra_spec.golden import CassandraError, Codec, Encoder, GoldenCodec, Packed
from cassandra_spec.model.speculative.sealing import KeyValueFormat, Sealed, Sealer
from cassandra_spec.model.speculative.tiles import Tile

__all__ = ["KeyValueCache", "KeyValueFormat", "Sealed", "Sealer"]

_BF16_BYTES = 2

Pair = tuple[torch.Tensor, torch.Tensor]
"""Keys and values."""


def _rows(x: torch.Tensor, runs: Sequence[tuple[int, int]]) -> torch.Tensor:
    """Return the rows of some runs, in order; a view of ``x`` if there is one run."""
    if len(runs) == 1:
        return x[slice(*runs[0])]
    return torch.cat([x[first:stop] for first, stop in runs])


@dataclasses.dataclass(kw_only=True)
class _Layer:
    """Keys and values of one layer as passes see them, float32 [capacity, heads, dimensions]."""

    target: Pair
    draft: Pair  # the same tensors if nothing is sealed
    window: int | None = None  # positions of sliding attention; None: all

    def write(self, kind: int, place: int | slice, rows: torch.Tensor) -> None:
        """Write keys (kind 0) or values (1) at positions that are not sealed."""
        self.target[kind][place] = rows
        if self.draft is not self.target:
            self.draft[kind][place] = rows


class KeyValueCache:
    """Keys and values by layer and position, shared by draft and target.

    A pass writes the rows of its own positions, over whatever is there, and sees those up to its
    last; so a rollback needs no work: the next pass starts at an earlier position. Memory for
    ``capacity`` positions is taken at the first use of a layer. With ``kv``, whole blocks of
    committed positions are sealed; the tensors that passes see are then copies of what was decoded.
    Draft passes see the part of it that ``draft_cache`` says (by default everything).
    """

    def __init__(
        self,
        capacity: int,
        kv: KeyValueFormat | None = None,
        codec: Codec | None = None,
        encoder: Encoder | None = None,
        draft_cache: DraftCache | None = None,
    ) -> None:
        self.capacity = capacity
        self._draft_cache = DraftCache(window=None) if draft_cache is None else draft_cache
        self._kv = kv
        self._layers: list[_Layer] = []
        self._tile: Tile | None = None
        self._drafting = False
        self._committed = 0  # committed positions
        self._written = 0  # positions that the target has computed
        self._sealed = 0  # blocks
        codec = GoldenCodec() if codec is None else codec
        self._sealers = (Sealer(kv, codec, encoder), Sealer(kv, codec, encoder)) if kv else None
        self._packed: list[tuple[Sealed, Sealed]] = []
        self._rounded_from: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    @property
    def sealed(self) -> int:
        """Number of sealed positions, from the first on."""
        return 0 if self._kv is None else self._sealed * self._kv.block

    def packed(self) -> Iterator[tuple[Packed, Packed]]:
        """Yield keys and values of runs of sealed blocks, in order."""
        return ((keys.packed, values.packed) for keys, values in self._packed)

    # --- what a sequence does -------------------------------------------------------------------

    @torch.inference_mode()
    def commit(self, position: int) -> None:
        """Commit all tokens before ``position``; their blocks may be sealed."""
        self._committed = position
        self._written = min(self._written, position)
        if self._kv is None:
            return
        self._seal(min(self._kv.sealed_for(position), self._written // self._kv.block))
        for block in [b for b in self._rounded_from if b < self._kv.sealed_for(position)]:
            del self._rounded_from[block]  # no later query sees its unrounded values

    @torch.inference_mode()
    def begin(self, tile: Tile, *, draft: bool = False) -> None:
        """Set the rows that the next updates bring, and True if the draft computes them."""
        stop = tile.start + tile.stop
        if stop > self.capacity:
            raise CassandraError(f"positions must fit the cache of {self.capacity}, not {stop}")
        self._tile, self._drafting = tile, draft
        if self._kv is not None and not self._kv.lossless:
            self._seal_for(tile, self._kv)
        if not draft:
            self._written = stop

    def update(
        self, key: torch.Tensor, value: torch.Tensor, layer: int, *args: Any, **kwargs: Any
    ) -> Pair:
        """Write the rows of the tile (transformers' interface).

        ``key`` and ``value`` are [1, heads, rows, dimensions] with the padding; they are returned
        as they are: attention asks for what it sees of them by :meth:`seen`.
        """
        assert self._tile is not None, "begin() comes first"
        tile = self._tile
        if layer == len(self._layers):
            self._layers.append(self._new_layer(key, value))
        rooms = self._layers[layer]
        place = slice(tile.start + tile.first, tile.start + tile.stop)
        for kind, rows in enumerate((key, value)):
            written = rows[0, :, tile.first : tile.stop].transpose(0, 1).float()
            rooms.write(kind, place, written)
        return key, value

    def rows(self, position: int) -> list[Pair]:
        """Copy the keys and values of an unsealed position, by layer."""
        return [
            (layer.target[0][position].clone(), layer.target[1][position].clone())
            for layer in self._layers
        ]

    @torch.inference_mode()
    def restore(self, position: int, rows: Sequence[Pair]) -> None:
        """Write back what :meth:`rows` has copied, as the rows of the last pass."""
        for layer, pair in zip(self._layers, rows, strict=True):
            for kind, row in enumerate(pair):
                layer.write(kind, position, row)
        if not self._drafting:
            self._written = position + 1

    def seen(
        self,
        layer: int,
        position: int,
        window: int | None = None,
        query: torch.Tensor | None = None,
    ) -> Pair:
        """Return the keys and values that a query sees, float32 [heads, positions, dimensions].

        Neither the capacity of the cache nor the pass shows in strides or values. ``query``
        [heads, dimensions] is for caches that choose by it; here each query sees everything.
        """
        rooms = self._layers[layer]
        rooms.window = window
        stop = position + 1
        start = 0 if window is None else max(stop - window, 0)
        keys, values = rooms.draft if self._drafting else rooms.target
        if self._sees_rounded_too_early(position):
            keys, values = self._before_rounding((keys, values), layer, position)
        runs = self._runs(start, stop, draft=self._drafting)
        return _rows(keys, runs).transpose(0, 1), _rows(values, runs).transpose(0, 1)

    def _runs(self, start: int, stop: int, *, draft: bool) -> list[tuple[int, int]]:
        """Return the parts of ``start`` to ``stop - 1`` that a pass sees; a round begins behind
        the committed positions.
        """
        if draft:
            return self._draft_cache.runs(self._committed, start, stop)
        return [(start, stop)]

    # --- sealing --------------------------------------------------------------------------------

    def _seal_for(self, tile: Tile, kv: KeyValueFormat) -> None:
        """Seal what the last query of a tile sees sealed: a prompt has no other occasion."""
        end = kv.sealed_for(tile.start + tile.stop - 1)
        ready = min(self._committed, tile.start + tile.first) // kv.block
        if end > max(ready, self._sealed):
            raise CassandraError(
                f"a pass must end within {kv.lag} positions (the lag of the keys and values) after"
                f" the {self._committed} that are committed, not at {tile.start + tile.stop}"
            )
        self._seal(end)

    def _seal(self, count: int) -> None:
        """Seal the blocks up to ``count``; they are committed, and all layers have them."""
        if self._kv is None or self._sealers is None or count <= self._sealed or not self._layers:
            return
        place = slice(self.sealed, count * self._kv.block)
        sides = []
        for kind, sealer in enumerate(self._sealers):
            rooms = torch.stack([layer.target[kind][place] for layer in self._layers])
            sides.append(sealer.seal(rooms.to(torch.bfloat16)))
        if not self._kv.lossless:
            self._keep_unrounded(place)
        for kind, sealed in enumerate(sides):
            for number, layer in enumerate(self._layers):
                layer.target[kind][place] = sealed.target[number]
                layer.draft[kind][place] = sealed.draft[number]
        self._packed.append((sides[0], sides[1]))
        self._sealed = count

    def _keep_unrounded(self, place: slice) -> None:
        assert self._kv is not None
        rooms = [torch.stack([layer.target[k][place] for layer in self._layers]) for k in (0, 1)]
        parts = zip(*(room.split(self._kv.block, dim=1) for room in rooms), strict=True)
        for number, pair in enumerate(parts, start=place.start // self._kv.block):
            self._rounded_from[number] = pair

    def _sees_rounded_too_early(self, position: int) -> bool:
        kv = self._kv
        return kv is not None and not kv.lossless and kv.sealed_for(position) < self._sealed

    def _before_rounding(self, rooms: Pair, layer: int, position: int) -> Pair:
        """Return keys and values with unrounded blocks where ``position`` does not see them
        sealed.
        """
        assert self._kv is not None
        first = self._kv.sealed_for(position)
        sides = []
        for kind, room in enumerate(rooms):
            middle = [self._rounded_from[b][kind][layer] for b in range(first, self._sealed)]
            head, tail = room[: first * self._kv.block], room[self.sealed : position + 1]
            sides.append(torch.cat([head, *middle, tail]))
        return sides[0], sides[1]

    def _new_layer(self, key: torch.Tensor, value: torch.Tensor) -> _Layer:
        target = (self._room(key), self._room(value))
        draft = (self._room(key), self._room(value)) if self._kv is not None else target
        return _Layer(target=target, draft=draft)

    def _room(self, like: torch.Tensor) -> torch.Tensor:
        return torch.zeros((self.capacity, like.shape[1], like.shape[3]), dtype=torch.float32)

    # --- figures --------------------------------------------------------------------------------

    def reads(self, position: int) -> ReadBytes:
        """Return the bytes that a pass reads whose last query is at ``position``, by the blocks
        sealed now.

        A pass reads each block that one of its layers sees a part of, and each position that is not
        sealed in BF16, once. A draft pass belongs to a round behind the committed positions.
        """
        total = ReadBytes()
        windows = {layer.window for layer in self._layers}
        for window in windows:
            chosen = [n for n, layer in enumerate(self._layers) if layer.window == window]
            start = 0 if window is None else max(position + 1 - window, 0)
            total += self._reads(chosen, start, position)
        return total

    def _reads(self, layers: list[int], start: int, position: int) -> ReadBytes:
        each = sum(self._position_bytes(layer) for layer in layers)
        sealed = 0 if self._kv is None else min(self._kv.sealed_for(position), self._sealed)
        sizes = {}
        for table, name in zip(self._tables(), ("draft", "target"), strict=True):
            runs = self._runs(start, position + 1, draft=name == "draft")
            blocks, rows = self._seen_blocks(runs, sealed)
            sizes[name] = int(table[blocks][:, layers].sum()) + rows * each
        return ReadBytes(**sizes, bf16=(position + 1 - start) * each)

    def _seen_blocks(self, runs: list[tuple[int, int]], sealed: int) -> tuple[list[int], int]:
        """Return sealed blocks with positions of the runs, and the number of positions outside."""
        if self._kv is None or not sealed:
            return [], sum(stop - first for first, stop in runs)
        size = self._kv.block
        end = sealed * size
        parts = (range(first // size, -(-min(stop, end) // size)) for first, stop in runs)
        rows = sum(max(stop - max(first, end), 0) for first, stop in runs)
        return sorted({block for part in parts for block in part}), rows

    def _tables(self) -> list[NDArray[np.int64]]:
        """Return the bytes of the sealed blocks, [blocks, layers]: draft's and all."""
        if not self._packed:
            return [np.zeros((0, len(self._layers)), np.int64)] * 2
        pairs = [
            (k.draft_bytes + v.draft_bytes, k.target_bytes + v.target_bytes)
            for k, v in self._packed
        ]
        return [np.concatenate(tables) for tables in zip(*pairs, strict=True)]

    def stored(self) -> ReadBytes:
        """Return the bytes of memory for the committed positions: blocks and the rest, beside BF16.

        ``draft`` is the part that is speculation data or not sealed.
        """
        each = sum(self._position_bytes(layer) for layer in range(len(self._layers)))
        tail = (self._committed - self.sealed) * each
        draft, target = (int(table.sum()) for table in self._tables())
        return ReadBytes(draft=draft + tail, target=target + tail, bf16=self._committed * each)

    def _position_bytes(self, layer: int) -> int:
        return sum(
            _BF16_BYTES * room.shape[1] * room.shape[2] for room in self._layers[layer].target
        )
