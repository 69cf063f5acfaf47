"""Layers of a network one run after another, over consecutive positions.

What :func:`cassandra_spec.model.speculative.run_pass` does in one go, in parts: embedding, some
layers, the head. Positions lie in the same rows of the same tiles, so parts that make up a whole
pass give its bits, and those of keys and values, whichever positions run together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from cassandra_spec.golden import CassandraError
from cassandra_spec.model.speculative import KeyValueCache
from cassandra_spec.model.speculative.passes import attention_by_rows
from cassandra_spec.model.speculative.tiles import ROWS, Tile, tiles

_KNOWN = ("llama", "qwen2", "qwen3")


class Stack:
    """A network's layers on a cache; ``rows`` is the size of the tiles, ``draft`` as in a pass.

    Hidden states are [positions, dimensions], without padding. Layers must take what the network's
    rotary embedding gives (:func:`require_stack`).
    """

    def __init__(
        self, network: Any, cache: KeyValueCache, rows: int = ROWS, *, draft: bool = False
    ) -> None:
        self._network, self._cache, self._rows, self._draft = network, cache, rows, draft

    @property
    def count(self) -> int:
        """Layers of the network."""
        return len(self._network.model.layers)

    @torch.inference_mode()
    def embed(self, tokens: Sequence[int]) -> torch.Tensor:
        """Hidden states before the first layer."""
        found: torch.Tensor = self._network.model.embed_tokens(torch.tensor(tokens))
        return found

    @torch.inference_mode()
    def run(self, hidden: torch.Tensor, position: int, layers: range) -> torch.Tensor:
        """Hidden states after some layers, the first row at ``position``.

        Keys and values of these layers are written at the positions of the rows.
        """
        if not layers:
            return hidden
        found = []
        with attention_by_rows(self._network):
            for tile, padded in self._padded(hidden, position):
                self._cache.begin(tile, draft=self._draft)
                places = torch.arange(tile.start, tile.start + tile.rows)[None]
                rotary = self._network.model.rotary_emb(padded, position_ids=places)
                for number in layers:
                    padded = self._network.model.layers[number](
                        padded,
                        attention_mask=None,
                        position_ids=places,
                        past_key_values=self._cache,
                        use_cache=True,
                        position_embeddings=rotary,
                        tile=tile,
                        key_values=self._cache,
                    )
                found.append(padded[0, tile.first : tile.stop])
        return torch.cat(found)

    @torch.inference_mode()
    def logits(self, hidden: torch.Tensor, position: int, adapter: Any = None) -> torch.Tensor:
        """Float32 [positions, vocabulary] of hidden states after the last layer, or of an exit's
        with its ``adapter``.
        """
        found = []
        for tile, padded in self._padded(hidden, position):
            adapted = padded if adapter is None else adapter(padded).to(hidden.dtype)
            logits = self._network.lm_head(self._network.model.norm(adapted))
            found.append(logits[0, tile.first : tile.stop].float())
        return torch.cat(found)

    def _padded(self, hidden: torch.Tensor, position: int) -> Iterator[tuple[Tile, torch.Tensor]]:
        """Yield the rows of each tile [1, rows, dimensions], with zeros in the padding."""
        for tile in tiles(position, position + len(hidden), self._rows):
            padded = hidden.new_zeros((1, tile.rows, hidden.shape[1]))
            first = tile.start + tile.first - position
            padded[0, tile.first : tile.stop] = hidden[first : first + tile.stop - tile.first]
            yield tile, padded


def require_stack(network: Any) -> None:
    """Refuse a network whose layers cannot be run in parts."""
    kind = network.config.model_type
    if kind not in _KNOWN:
        raise CassandraError(f"model_type must be one of {', '.join(_KNOWN)}, not {kind!r}")
