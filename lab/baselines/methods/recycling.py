"""Token Recycling: trees of what the target held likely after each token."""

from __future__ import annotations

import dataclasses

from cassandra_spec.drafting import RECYCLED
from cassandra_spec.drafting.low import BRANCHES
from cassandra_spec.golden import CassandraError
from cassandra_spec.lab.baselines import Method, PreparedLow
from cassandra_spec.model.speculative import CassandraForCausalLM


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recycling(Method, name="recycling"):
    """The adjacency matrix is that of one reply, and holds the target's four best tokens."""

    compared = ("recycling",)

    nodes: int = 15  # of a tree
    branches: int = BRANCHES  # candidates of one place

    def __post_init__(self) -> None:
        if self.nodes < 1:
            raise CassandraError(f"nodes must be at least 1, not {self.nodes}")
        if not 1 <= self.branches <= BRANCHES:
            raise CassandraError(f"branches must be from 1 to {BRANCHES}, not {self.branches}")

    def prepare(self, lm: CassandraForCausalLM) -> PreparedLow:
        """Return the method, which needs no preparation."""
        return PreparedLow(lm, sources=(RECYCLED,), nodes=self.nodes, branches=self.branches)
