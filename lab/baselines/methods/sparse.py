"""Sparse keys and values (MagicDec): the whole target drafts, and reads a part of its cache."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from cassandra_spec.drafting import DraftPass
from cassandra_spec.golden import CassandraError
from cassandra_spec.lab.baselines import Method, PassCost, PreparedNetwork, clone
from cassandra_spec.model.speculative import CassandraForCausalLM, KeyValueCache, ModelSession


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sparse(Method, name="sparse"):
    """A row sees the first ``sinks`` positions, the last ``window`` ones, and the ``top`` others.

    These are chosen for each key head by the largest product of a key with its queries.
    """

    compared = ("sparse", "sparse:window=16:top=16")
    claim = "at times slower than no speculation, at low batch (Cassandra, section VII.B)"

    sinks: int = 4
    window: int = 64
    top: int = 0

    def __post_init__(self) -> None:
        for name, least in {"sinks": 0, "window": 1, "top": 0}.items():
            if getattr(self, name) < least:
                raise CassandraError(f"{name} must be at least {least}, not {getattr(self, name)}")

    def check_model(self, lm: CassandraForCausalLM) -> None:
        """Check that the visible positions fit the context."""
        most = lm.network.config.max_position_embeddings
        if self.sinks + self.window > most:
            raise CassandraError(
                f"sinks and window must fit the model's {most} positions, not be"
                f" {self.sinks + self.window}"
            )

    def prepare(self, lm: CassandraForCausalLM) -> PreparedNetwork:
        """Prepare the draft, which reads the target's weights and cache."""
        self.check_model(lm)
        return _Prepared(lm, self)


class _Prepared(PreparedNetwork):
    def __init__(self, lm: CassandraForCausalLM, method: Sparse) -> None:
        super().__init__(lm, clone(lm))
        self._method = method

    def cache(self, session: ModelSession) -> Any:
        return _SparseCache(session.cache, self._method)

    def alone(self) -> None:
        """Return None: rounds need the target's whole cache."""

    def draft_cost(self, position: int, drafted: DraftPass) -> PassCost:
        """Return the cost of a draft pass; with ``top``, of all keys and the chosen values."""
        whole, method = super().draft_cost(position, drafted), self._method
        seen = position + drafted.start + drafted.rows
        part = min(1.0, (method.sinks + method.window + method.top + drafted.rows - 1) / seen)
        read = (1 + part) / 2 if method.top else part
        shorter = self.size.cost(0, drafted.rows).flops
        return dataclasses.replace(
            whole, kv=whole.kv * read, flops=shorter + (whole.flops - shorter) * read
        )


class _SparseCache:
    """A view of a session's keys and values; rows see a part of them."""

    def __init__(self, cache: KeyValueCache, method: Sparse) -> None:
        self._cache, self._method = cache, method

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cache, name)

    def seen(
        self, layer: int, position: int, window: int | None, query: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the keys and values [heads, chosen, dimensions] of a query [heads, dimensions]."""
        keys, values = self._cache.seen(layer, position, window, query)
        sinks, recent = self._method.sinks, max(keys.shape[1] - self._method.window, 0)
        if recent <= sinks:
            return keys, values
        near = torch.cat([torch.arange(sinks), torch.arange(recent, keys.shape[1])])
        chosen = near.expand(keys.shape[0], -1)
        if self._method.top:
            groups = query.reshape(keys.shape[0], -1, keys.shape[2])
            scores = (groups @ keys[:, sinks:recent].transpose(1, 2)).amax(1)
            top = scores.topk(min(self._method.top, recent - sinks)).indices + sinks
            chosen = torch.cat([chosen, top.sort().values], 1)
        places = chosen[..., None].expand(-1, -1, keys.shape[2])
        return keys.gather(1, places), values.gather(1, places)
