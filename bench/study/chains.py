"""Passes over rows that belong to many places of many sequences at once.

A row is one token at one position of one sequence. In a *writing* pass a row's keys and values go
into the sequence and the row sees all positions up to its own: a prompt, or the next token of every
sequence. In a *chain* pass a row sees the sequence before its start and the rows of its own chain
after it: what a draft sees in its rounds, for all the rounds that could begin anywhere, together.

Big products make this ten times as fast as decoding; the price is that a row's logits may differ in
their last bits from those of :mod:`cassandra_spec.model.speculative.passes`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from transformers import AttentionInterface

from cassandra_spec.model.speculative.passes import capped

ATTENTION = "cassandra_chains"
"""The name under which transformers finds the attention of this module."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rows:
    """One row for each entry; all int64 [rows]."""

    sequence: torch.Tensor  # number of the sequence
    position: torch.Tensor

    def __getitem__(self, chosen: torch.Tensor) -> Rows:
        return Rows(sequence=self.sequence[chosen], position=self.position[chosen])


Pair = tuple[torch.Tensor, torch.Tensor]
"""Keys and values."""


class Sequences:
    """Keys and values of a number of sequences by layer, [key heads, positions, dimensions]."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.layers: dict[int, list[Pair]] = {}

    def write(self, layer: int, rows: Rows, key: torch.Tensor, value: torch.Tensor) -> None:
        """Append rows, [key heads, rows, dimensions]; those of a sequence come in their order."""
        stored = self.layers.setdefault(layer, [(key[:, :0], value[:, :0])] * self.count)
        for sequence in rows.sequence.unique().tolist():
            chosen = rows.sequence == sequence
            keys, values = stored[sequence]
            stored[sequence] = (
                torch.cat([keys, key[:, chosen]], 1),
                torch.cat([values, value[:, chosen]], 1),
            )

    def blocks_seen(self, starts: torch.Tensor) -> torch.Tensor:
        """Return how many blocks chains with these starts see sealed."""
        return torch.zeros_like(starts)

    def seen(self, layer: int, sequence: int, blocks: int) -> Pair:
        """Return all keys and values as chains with ``blocks`` sealed blocks see them."""
        return self.layers[layer][sequence]


class Chains:
    """Keys and values of the rows of chains by layer, [key heads, rows, depth, dimensions]."""

    def __init__(self) -> None:
        self.layers: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def write(self, layer: int, key: torch.Tensor, value: torch.Tensor) -> None:
        """Append one row to every chain, [key heads, rows, dimensions]."""
        new = (key[:, :, None], value[:, :, None])
        old = self.layers.get(layer)
        self.layers[layer] = new if old is None else (_join(old[0], new[0]), _join(old[1], new[1]))

    @property
    def depth(self) -> int:
        """Rows of each chain."""
        return next((key.shape[2] for key, _ in self.layers.values()), 0)


def _join(old: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
    return torch.cat([old, new], 2)


class _Cache:
    """The cache that transformers calls ``past_key_values``, in a pass over rows."""

    def __init__(self, rows: Rows, sequences: Sequences, chains: Chains | None) -> None:
        self.rows, self.sequences, self.chains = rows, sequences, chains
        self.depth = chains.depth if chains is not None else 0
        self.layer = 0

    def update(
        self, key: torch.Tensor, value: torch.Tensor, layer: int, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        self.layer = layer
        if self.chains is None:
            self.sequences.write(layer, self.rows, key[0], value[0])
        else:
            self.chains.write(layer, key[0], value[0])
        return key, value

    def groups(self) -> Iterator[tuple[torch.Tensor, Pair]]:
        """Yield the rows that see the same stored keys and values, bool [rows], with those,
        float32.
        """
        blocks = torch.zeros_like(self.rows.position)
        if self.chains is not None:
            blocks = self.sequences.blocks_seen(self.rows.position - self.depth)
        pairs = torch.stack([self.rows.sequence, blocks], 1)
        for sequence, count in pairs.unique(dim=0).tolist():
            key, value = self.sequences.seen(self.layer, sequence, count)
            chosen = (pairs[:, 0] == sequence) & (pairs[:, 1] == count)
            yield chosen, (key.float(), value.float())


def _attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float,
    cache: _Cache,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Attention in float32 by sequence; ``query`` is [1, heads, rows, dimensions]."""
    _, heads, count, size = query.shape
    grouped = query[0].float().reshape(key.shape[1], -1, count, size) * scaling
    out = torch.empty_like(grouped)
    for chosen, (keys, values) in cache.groups():
        scores = capped(grouped[:, :, chosen] @ keys[:, None].transpose(2, 3), softcap)
        visible = _visible(cache.rows[chosen], cache, keys.shape[1], sliding_window)
        scores.masked_fill_(~visible, -torch.inf)
        out[:, :, chosen] = _mix(grouped[:, :, chosen], scores, values, cache, chosen, softcap)
    return out.reshape(1, heads, count, size).transpose(1, 2).to(query.dtype), None


def _visible(rows: Rows, cache: _Cache, positions: int, window: int | None) -> torch.Tensor:
    """Return which stored positions each row sees, bool [rows, positions]."""
    place = torch.arange(positions)[None]
    stop = rows.position[:, None] + 1
    visible = place < (stop if cache.chains is None else stop - 1 - cache.depth)
    return visible if window is None else visible & (place >= stop - window)


def _mix(
    query: torch.Tensor,
    scores: torch.Tensor,
    values: torch.Tensor,
    cache: _Cache,
    chosen: torch.Tensor,
    softcap: float | None,
) -> torch.Tensor:
    """Softmax over stored positions and the row's chain, applied to the values of both."""
    if cache.chains is None:
        return scores.softmax(-1) @ values[:, None]
    keys, own = (x[:, None, chosen].float() for x in cache.chains.layers[cache.layer])
    chained = capped((query[..., None, :] @ keys.transpose(-1, -2))[..., 0, :], softcap)
    weights = torch.cat([scores, chained], -1).softmax(-1)
    stored, recent = weights.split([scores.shape[-1], chained.shape[-1]], -1)
    return stored @ values[:, None] + (recent[..., None, :] @ own)[..., 0, :]


AttentionInterface.register(ATTENTION, _attend)


def run_rows(
    network: Any,
    tokens: Sequence[int] | torch.Tensor,
    rows: Rows,
    sequences: Sequences,
    chains: Chains | None = None,
    *,
    wanted: torch.Tensor | slice = slice(None),
) -> torch.Tensor:
    """Compute the logits of rows, float32 [wanted, vocabulary]; without chains, write the cache.

    ``network`` is a transformers model whose attention is :data:`ATTENTION`; ``wanted`` are the
    rows (int64 or a slice) whose logits are computed.
    """
    keep = torch.arange(len(rows.position))[wanted]
    with torch.inference_mode():
        cache = _Cache(rows, sequences, chains)
        logits = network(
            input_ids=torch.as_tensor(tokens, dtype=torch.int64)[None],
            position_ids=rows.position[None],
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=keep,
            cache=cache,
        ).logits
    return logits[0].float()
