"""Cassandra's draft view: the speculation data of the packed weights (section IV of the paper)."""

from __future__ import annotations

import dataclasses

from cassandra_spec.lab.baselines import Method, NetworkSize, PreparedNetwork, clone
from cassandra_spec.model.speculative import CassandraForCausalLM


class _PreparedView(PreparedNetwork):
    """The target is read as it is packed, not in BF16."""

    def __init__(self, lm: CassandraForCausalLM, *, own: bool) -> None:
        view = clone(lm, draft=True)
        weights = lm.costs.weights
        size = NetworkSize.of(view, weights=weights.draft)
        super().__init__(lm, view, own=own, size=size)
        self._target = dataclasses.replace(size, weights=weights.target)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cassandra(Method, name="cassandra"):
    """The draft view of a packed model, in the scheme in which it is packed."""

    compared = ("cassandra", "cassandra@8", "cassandra:own=yes", "cassandra@8+low")
    claim = "accepted / drafted .74 to .91 (Table IV), 1.78 to 2.41 times as fast (Figure 12)"

    own: bool = False  # keys and values of its own instead of the target's

    def prepare(self, lm: CassandraForCausalLM) -> PreparedNetwork:
        """Prepare the draft view, which needs no memory of its own."""
        return _PreparedView(lm, own=self.own)
