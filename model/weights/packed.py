"""A packed model as a source of weights: what its target computes with."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.golden import Codec, GoldenCodec, bf16
from cassandra_spec.golden.file import PackedFile, RawTensor
from cassandra_spec.golden.file.description import Spec
from cassandra_spec.golden.model_config import read_config
from cassandra_spec.golden.model_types import HEAD, Kind, find_model_type
from cassandra_spec.model.weights.mark import unmark
from cassandra_spec.model.weights.sources import (
    MODEL_FILE,
    Tensor,
    Values,
    companions,
    copy_companions,
)


class PackedSource:
    """A :class:`cassandra_spec.model.weights.sources.Source` of the target values of a packed
    directory.

    ``lossless`` says whether they are those of the model that was packed (no tensor in mx).
    """

    def __init__(self, path: Path, codec: Codec | None = None) -> None:
        self.label = str(path)
        self.notes: tuple[str, ...] = ()
        self._path = path
        self._codec = GoldenCodec() if codec is None else codec
        config = read_config(path)
        self.packed = PackedFile(path / MODEL_FILE)
        self.files = (path / MODEL_FILE, *companions(path))
        architecture = find_model_type(
            config.get("model_type"), field="name", where=path / "config.json"
        )
        specs: dict[str, Spec] = {**self.packed.tensors, **self.packed.others}
        tied = HEAD not in specs
        self.tensors = {
            name: _describe(name, spec, architecture.kind(name, tied=tied))
            for name, spec in specs.items()
        }

    @property
    def lossless(self) -> bool:
        """Return whether the values equal those of the original model."""
        return all(spec.format.scheme != "mx" for spec in self.packed.tensors.values())

    def read(self, name: str, start: int = 0, stop: int | None = None) -> Values:
        """Target values ``start`` to ``stop``; the whole tensor is decoded."""
        if name in self.packed.tensors:
            values = self._codec.decode_target(self.packed.read_packed(name))
        else:
            values = bf16.from_bytes(self.packed.others[name].dtype, self.packed.read_raw(name))
        return values[start:stop]

    def read_raw(self, name: str) -> NDArray[np.uint8]:
        """Read all bytes of a tensor in its dtype; BF16 if it is packed."""
        if name in self.packed.others:
            return self.packed.read_raw(name)
        return self.read(name).astype("<u2", copy=False).view(np.uint8)

    def save_companions(self, directory: Path) -> None:
        """Copy the config and the tokenizer's files."""
        copy_companions(self._path, directory)
        unmark(directory)


def _describe(name: str, spec: Spec, kind: Kind) -> Tensor:
    if isinstance(spec, RawTensor):
        return Tensor(name=name, shape=spec.shape, dtype=spec.dtype, nbytes=spec.nbytes, kind=kind)
    return Tensor(name=name, shape=spec.shape, dtype="BF16", nbytes=2 * spec.count, kind=kind)
