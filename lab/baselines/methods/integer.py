"""Self-drafts of 8 or 4 bits: the target's own weights, rounded to the nearest integer by group."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from cassandra_spec.golden import CassandraError
from cassandra_spec.lab.baselines import Method, PreparedNetwork
from cassandra_spec.lab.baselines.quantized import quantized_clone, stored_bytes
from cassandra_spec.model.speculative import CassandraForCausalLM


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Integer(Method):
    """w' = s round(w / s), with s = max |w| / (2^(bits-1) - 1) of each group of inputs."""

    bits: ClassVar[int]

    group: int = 64  # inputs that share a scale
    own: bool = False  # keys and values of its own instead of the target's

    def __post_init__(self) -> None:
        if self.group < 1:
            raise CassandraError(f"group must be at least 1, not {self.group}")

    def prepare(self, lm: CassandraForCausalLM) -> PreparedNetwork:
        """Prepare the copy, which takes memory beside the target."""
        network = quantized_clone(lm, bits=self.bits, group=self.group)
        return PreparedNetwork(lm, network, own=self.own, memory=stored_bytes(network))


class Int8(_Integer, name="int8"):
    """An 8-bit copy."""

    bits = 8
    compared = ("int8", "int8@8")


class Int4(_Integer, name="int4"):
    """A 4-bit copy."""

    bits = 4
    compared = ("int4",)
