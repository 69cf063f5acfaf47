from __future__ import annotations

import pytest
import torch
from torch.nn.functional import linear

from cassandra_spec.model.speculative import DecodedProducts
from cassandra_spec.model.speculative import linear as module

SIZES = [(576, 576), (192, 576), (96, 48), (80, 48), (7, 5), (1, 3)]


def matrix(outputs: int, inputs: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(outputs, inputs, generator=generator).to(torch.bfloat16)


@pytest.mark.parametrize(("outputs", "inputs"), SIZES)
@pytest.mark.parametrize("rows", [1, 8, 16, 100])
def test_products_have_the_bits_of_linear(outputs: int, inputs: int, rows: int) -> None:
    draft, target = (matrix(outputs, inputs, seed) for seed in (1, 2))
    products = DecodedProducts(draft=draft, target=target)
    x = matrix(rows, inputs, 3)[None]
    with torch.inference_mode():
        assert torch.equal(products.draft(x), linear(x, draft))
        assert torch.equal(products.target(x), linear(x, target))
    assert torch.equal(products.draft_values, draft)
    assert torch.equal(products.target_values, target)


def test_values_can_be_replaced() -> None:
    products = DecodedProducts(draft=matrix(8, 8), target=matrix(8, 8))
    products.draft_values = matrix(8, 8, 1)
    products.target_values = matrix(8, 8, 2).double()
    assert torch.equal(products.draft_values, matrix(8, 8, 1))
    x = torch.eye(8)
    assert torch.equal(products.target(x.double()).T, matrix(8, 8, 2).double())
    assert torch.equal(products.draft(x.to(torch.bfloat16)).T, matrix(8, 8, 1))


def test_one_matrix_is_kept_once() -> None:
    values = matrix(8, 8)
    products = DecodedProducts(draft=values, target=values)
    assert products._draft is products._target


def test_where_there_is_no_such_kernel_linear_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_kernel_is_there", lambda: False)
    values = matrix(16, 8)
    products = DecodedProducts(draft=values, target=values)
    assert products.draft_values is values
    x = matrix(4, 8, 1)
    assert torch.equal(products.draft(x), linear(x, values))
