"""The linear layer behind one interface: a draft product and a target product.

A kernel that reads packed data directly implements :class:`Products` and is handed to
:meth:`cassandra_spec.model.speculative.CassandraForCausalLM.from_pretrained`; the decoding loop
does not change.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import linear

from cassandra_spec.golden import Codec, Packed
from cassandra_spec.model.speculative.tiles import ROWS


class Products(Protocol):
    """Multiply by the draft and the target values of one packed matrix [outputs, inputs].

    Every row of a result must depend on the same row of ``x`` alone, and be the same whenever the
    shape of ``x`` and the place of the row in it are: verification is lossless because of that
    (docs/software/lossless.md).
    """

    def draft(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply ``x`` [..., inputs] by the draft values; read speculation data alone."""

    def target(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply ``x`` [..., inputs] by the target values; read all data."""


ProductsFactory = Callable[[Packed, torch.Tensor], Products]
"""Makes the products of a packed matrix; the tensor holds its decoded target values."""


class _Matrix:
    """A matrix [outputs, inputs] in the order in which torch's BF16 kernel reads it.

    ``linear`` puts its weights into that order at every call, which takes longer than the product
    of a few rows. The bits of a product are the same.
    """

    def __init__(self, values: torch.Tensor) -> None:
        self._ordered = (
            values.dtype == torch.bfloat16 and values.device.type == "cpu" and _kernel_is_there()
        )
        self._values = (
            torch.ops.mkldnn._reorder_linear_weight(values, ROWS) if self._ordered else values
        )

    @property
    def values(self) -> torch.Tensor:
        """The matrix in the usual order."""
        return self._values.to_dense() if self._ordered else self._values

    def product(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply ``x`` [..., inputs] by the matrix; return [..., outputs]."""
        if not self._ordered:
            return linear(x, self._values)
        product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(
            x, self._values, None, "none", [], ""
        )
        return product


@functools.cache
def _kernel_is_there() -> bool:
    return torch.backends.mkldnn.is_available() and bool(
        torch.ops.mkldnn._is_mkldnn_bf16_supported()
    )


class DecodedProducts:
    """Products of weights that were decoded into two BF16 matrices when the model was loaded."""

    def __init__(self, *, draft: torch.Tensor, target: torch.Tensor) -> None:
        self.count = target.numel()  # weights
        self._target = _Matrix(target)
        self._draft = self._target if draft is target else _Matrix(draft)

    @property
    def draft_values(self) -> torch.Tensor:
        """Draft values [outputs, inputs]."""
        return self._draft.values

    @draft_values.setter
    def draft_values(self, values: torch.Tensor) -> None:
        self._draft = _Matrix(values)

    @property
    def target_values(self) -> torch.Tensor:
        """Target values [outputs, inputs]."""
        return self._target.values

    @target_values.setter
    def target_values(self, values: torch.Tensor) -> None:
        self._target = _Matrix(values)

    def draft(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply ``x`` [..., inputs] by the draft values."""
        return self._draft.product(x)

    def target(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply ``x`` [..., inputs] by the target values."""
        return self._target.product(x)


def decoded(codec: Codec) -> ProductsFactory:
    """Return a factory of :class:`DecodedProducts` with draft values decoded by ``codec``."""

    def make(packed: Packed, target: torch.Tensor) -> Products:
        draft = _as_bf16(codec.decode_draft(packed)).reshape(target.shape).to(target.dtype)
        return DecodedProducts(draft=draft, target=target)

    return make


def _as_bf16(patterns: NDArray[np.uint16]) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(patterns).view(np.int16)).view(torch.bfloat16)


class Mode:
    """The switch between draft and target of all layers that share this object."""

    def __init__(self) -> None:
        self.draft = False

    @contextmanager
    def drafting(self) -> Iterator[None]:
        """Select the draft within the block; restore the mode at its end, also after an error."""
        before, self.draft = self.draft, True
        try:
            yield
        finally:
            self.draft = before


class PackedLinear(torch.nn.Module):
    """A linear layer that is draft or target by its mode; the bias, if any, is common to both."""

    def __init__(self, products: Products, mode: Mode, bias: torch.Tensor | None = None) -> None:
        super().__init__()
        self.products = products
        self._mode = mode
        self._bias = bias

    def forward(self, x: torch.Tensor) -> Any:
        """Multiply ``x`` [..., inputs] by the matrix of the mode; return [..., outputs]."""
        product = self.products.draft if self._mode.draft else self.products.target
        return product(x) if self._bias is None else product(x) + self._bias
