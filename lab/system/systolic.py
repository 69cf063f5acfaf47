"""Cycles of a systolic array, in closed form: the compute stage of the paper's NPU.

A product is cut into folds that fill the array; every fold loads what stays in the array, streams
what does not, and drains. Folds are independent, so several arrays share them. The forms are those
of SCALE-Sim; a test holds them to its recorded counts.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from typing import Literal, get_args

from cassandra_spec.lab.system.errors import check_count, check_number, unknown

Dataflow = Literal["is", "os", "ws"]
"""Stationary operand of the array: inputs, outputs, or weights."""

DATAFLOWS: tuple[Dataflow, ...] = get_args(Dataflow)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Product:
    """``m`` rows of ``k`` activations times a matrix of ``k`` by ``n``."""

    m: int  # rows: tokens of all requests in linear layers
    k: float  # length of the inner products; the mean of a growing cache may be fractional
    n: float  # columns of the matrix, which are read as weights or as cache; likewise
    times: int = 1  # equal products, independent of each other: heads, requests

    def __post_init__(self) -> None:
        for name in ("m", "times"):
            check_count(name, getattr(self, name), 1)
        for name in ("k", "n"):
            check_number(name, getattr(self, name))

    @property
    def flops(self) -> float:
        """Operations: two for each product and sum."""
        return 2.0 * self.m * self.k * self.n * self.times


@dataclasses.dataclass(frozen=True, kw_only=True)
class Array:
    """Equal systolic arrays side by side."""

    rows: int  # multipliers in a column of one array
    columns: int  # multipliers in a row of one array
    count: int = 1  # arrays that share the folds of a product

    def __post_init__(self) -> None:
        for name in ("rows", "columns", "count"):
            check_count(f"array.{name}", getattr(self, name), 1)

    @property
    def multipliers(self) -> int:
        """Return the number of multipliers of all arrays."""
        return self.rows * self.columns * self.count

    def cycles(self, product: Product) -> float:
        """Return the cycles of a product in its fastest dataflow."""
        return min(array_cycles(self, product, dataflow) for dataflow in DATAFLOWS)

    def utilisation(self, products: Iterable[Product]) -> float:
        """Part of all multipliers that works while the products are computed, one by one."""
        work = list(products)
        spent = 2.0 * self.multipliers * sum(self.cycles(product) for product in work)
        return sum(product.flops for product in work) / spent


def folds_of(array: Array, product: Product, dataflow: Dataflow) -> tuple[int, float, int]:
    """Return the folds of a product, the cycles that each streams, and the cycles that each fills.

    Inputs or weights that stay take a cycle a row to load, which is the second ``rows``; outputs
    that stay need no loading, and drain while the next fold starts.
    """
    fill = array.rows + array.columns - 2
    shapes = {
        "is": ((product.k, product.m), product.n, fill + array.rows),
        "ws": ((product.k, product.n), product.m, fill + array.rows),
        "os": ((product.m, product.n), product.k, fill),
    }
    if dataflow not in shapes:
        unknown("dataflow", dataflow, DATAFLOWS)
    (down, across), streamed, loading = shapes[dataflow]
    return math.ceil(down / array.rows) * math.ceil(across / array.columns), streamed, loading


def array_cycles(array: Array, product: Product, dataflow: Dataflow) -> float:
    """Return the cycles of a product, its folds shared by all arrays.

    Where folds are few, what streams through one is cut into parts for several arrays.
    """
    folds, streamed, fill = folds_of(array, product, dataflow)
    return min(
        math.ceil(folds * product.times * parts / array.count) * (streamed / parts + fill)
        for parts in range(1, array.count + 1)
    )
