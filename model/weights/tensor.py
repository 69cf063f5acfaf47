"""Describe the tensors of a source."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.golden.file import RawTensor
from cassandra_spec.golden.model_types import Kind

Values = NDArray[np.uint16]
"""BF16 patterns."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tensor:
    """A tensor of a source, before anything of it is read."""

    name: str  # Hugging Face's
    shape: tuple[int, ...]
    dtype: str  # safetensors' name of the dtype in which the source has it
    nbytes: int  # size in that dtype
    kind: Kind

    @property
    def count(self) -> int:
        """Values in the tensor."""
        return math.prod(self.shape)

    @property
    def raw(self) -> RawTensor:
        """Return the tensor's stored form when it is not packed."""
        return RawTensor(dtype=self.dtype, shape=self.shape, nbytes=self.nbytes)
