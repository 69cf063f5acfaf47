"""A separate draft model with the target's tokens."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from cassandra_spec.golden import CassandraError
from cassandra_spec.golden.model_config import read_config
from cassandra_spec.lab.baselines import Method, NetworkSize, PreparedNetwork
from cassandra_spec.model.pretrained import load_tokenizer
from cassandra_spec.model.reply import build_model
from cassandra_spec.model.speculative import CassandraForCausalLM
from cassandra_spec.model.weights.sources import DirectorySource


@dataclasses.dataclass(frozen=True, kw_only=True)
class Model(Method, name="model"):
    """The model of a directory drafts, with keys and values of its own."""

    path: Path = Path()

    def check_model(self, lm: CassandraForCausalLM) -> None:
        """Check that the draft model has the target's vocabulary."""
        if self.path == Path():
            raise CassandraError("path must be the directory of a draft model, not left out")
        tokens, expected = read_config(self.path)["vocab_size"], lm.network.config.vocab_size
        if tokens != expected:
            raise CassandraError(f"path must be a model of {expected} tokens, not {tokens}")
        if lm.tokenizer is not None:
            ours, theirs = (each.get_vocab() for each in (lm.tokenizer, load_tokenizer(self.path)))
            if ours != theirs:
                raise CassandraError(
                    f"path must be a model of the target's tokens, not {self.path}"
                )

    def prepare(self, lm: CassandraForCausalLM) -> PreparedNetwork:
        """Load the model."""
        self.check_model(lm)
        network = build_model(self.path, DirectorySource(self.path))
        size = NetworkSize.of(network)
        return PreparedNetwork(lm, network, own=True, size=size, memory=size.weights)
