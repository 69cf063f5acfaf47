"""Geodesic projection: low-rank attention drafts (HyperTensor, section 2)."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Literal

from cassandra_spec.golden import CassandraError
from cassandra_spec.lab.baselines.method import Method
from cassandra_spec.lab.baselines.networks import PreparedNetwork
from cassandra_spec.lab.geodesic.low_rank import (
    Grams,
    LowRank,
    check_rank,
    gather_grams,
    project,
)
from cassandra_spec.model.packing.calibration import Calibration, read_text, spread
from cassandra_spec.model.speculative import CassandraForCausalLM


@dataclasses.dataclass(frozen=True, kw_only=True)
class Geodesic(Method, name="geodesic"):
    """Low-rank attention; everything else is the target's."""

    compared = ("geodesic", "geodesic:rank=144:by=activations")
    claim = "1.6 times as fast at acceptance .385 (section 5.5); 1.34 by the formula of section 3"
    rank: int = 256
    by: Literal["weights", "activations"] = "weights"
    text: str = ""  # a file for the activations; empty: the bundled calibration text
    samples: int = 32  # of the text
    length: int = 256  # tokens of a sample
    own: bool = False  # keys and values of its own instead of the target's

    def check_model(self, lm: CassandraForCausalLM) -> None:
        """Check that the rank is within the dimension and that there is a text to read."""
        check_rank(self.rank, lm.network)
        if self.by == "activations":
            self._text(lm)

    def _text(self, lm: CassandraForCausalLM) -> str:
        if lm.tokenizer is None:
            raise CassandraError("tokenizer must be there to read a text, and is not")
        return read_text(Path(self.text) if self.text else None)

    def prepare(self, lm: CassandraForCausalLM) -> PreparedNetwork:
        """Compute the factors, which is the training."""
        self.check_model(lm)
        begin = time.monotonic()
        return self.of_grams(lm, self.grams(lm), begin)

    def grams(self, lm: CassandraForCausalLM) -> Grams | None:
        """Gather the Gram matrices of activations; None if factors come from weights."""
        if self.by == "weights":
            return None
        asked = Calibration(samples=self.samples, length=self.length)
        return gather_grams(lm.network, spread(lm.tokenizer, self._text(lm), asked).tolist())

    def of_grams(
        self, lm: CassandraForCausalLM, grams: Grams | None, begin: float | None = None
    ) -> PreparedNetwork:
        """Build the draft from known Gram matrices; ``begin`` is the start time, monotonic."""
        begin = time.monotonic() if begin is None else begin
        network = project(lm, self.rank, grams if self.by == "activations" else None)
        made = [module for module in network.modules() if isinstance(module, LowRank)]
        return PreparedNetwork(
            lm,
            network,
            own=self.own,
            memory=sum(each.weight_bytes for each in made),
            training_seconds=time.monotonic() - begin,
        )
