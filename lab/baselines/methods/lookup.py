"""Prompt lookup: what followed the last tokens earlier in prompt and reply."""

from __future__ import annotations

import dataclasses

from cassandra_spec.drafting import COPIES
from cassandra_spec.lab.baselines import Method, PreparedLow
from cassandra_spec.model.speculative import CassandraForCausalLM


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lookup(Method, name="lookup"):
    """A chain of gamma copies, each of the longest run of up to six tokens that occurred before."""

    compared = ("lookup@7",)

    def prepare(self, lm: CassandraForCausalLM) -> PreparedLow:
        """Return the method, which needs no preparation."""
        return PreparedLow(lm, sources=(COPIES,))
