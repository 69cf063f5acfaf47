"""Some tensors of a source as a source of their own."""

from __future__ import annotations

from collections.abc import Iterable

from cassandra_spec.golden import CassandraError
from cassandra_spec.model.weights.sources import Source


class Subset:
    """A :class:`cassandra_spec.model.weights.sources.Source` with the named tensors of another, in
    its order.
    """

    def __init__(self, whole: Source, names: Iterable[str]) -> None:
        chosen = set(names)
        for name in sorted(chosen - set(whole.tensors)):
            raise CassandraError(f"tensor must be one of {whole.label}, not {name!r}")
        self.label = whole.label
        self.files = whole.files
        self.notes = whole.notes
        self.read, self.read_raw = whole.read, whole.read_raw
        self.save_companions = whole.save_companions
        self.tensors = {name: tensor for name, tensor in whole.tensors.items() if name in chosen}
