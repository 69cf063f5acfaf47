"""Some tensors of a source as a source of their own."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.golden import CassandraError
from cassandra_spec.model.weights.sources import Source, Values

__all__ = ["Subset"]


class Subset:
    """A :class:`cassandra_spec.model.weights.sources.Source` with the named tensors of another, in
    its order.
    """

    def __init__(self, whole: Source, names: Iterable[str]) -> None:
        wanted = set(names)
        for name in sorted(wanted - set(whole.tensors)):
            raise CassandraError(f"tensor must be one of {whole.label}, not {name!r}")
        self._whole = whole
        self.label = whole.label
        self.files = whole.files
        self.notes = whole.notes
        self.tensors = {name: tensor for name, tensor in whole.tensors.items() if name in wanted}

    def read(self, name: str, start: int = 0, stop: int | None = None) -> Values:
        """Values ``start`` to ``stop`` of a tensor, as BF16 patterns."""
        return self._whole.read(name, start, stop)

    def read_raw(self, name: str) -> NDArray[np.uint8]:
        """All bytes of a tensor in its own dtype."""
        return self._whole.read_raw(name)

    def save_companions(self, directory: Path) -> None:
        """Put the config and the tokenizer's files into a directory."""
        self._whole.save_companions(directory)
