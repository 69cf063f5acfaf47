from __future__ import annotations

import numpy as np
import pytest
import torch

from cassandra_spec.golden import CassandraError, bf16

LOW_HALVES = (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF)


def by_torch(values: torch.Tensor) -> np.ndarray:
    return values.to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16)


def is_nan(patterns: np.ndarray) -> np.ndarray:
    return (patterns & 0x7FFF) > 0x7F80


def assert_same_numbers(ours: np.ndarray, theirs: np.ndarray) -> None:
    np.testing.assert_array_equal(is_nan(ours), is_nan(theirs))
    np.testing.assert_array_equal(ours[~is_nan(ours)], theirs[~is_nan(ours)])


@pytest.mark.parametrize("low", LOW_HALVES)
def test_every_high_half_of_an_f32_rounds_as_in_torch(low: int) -> None:
    bits = np.arange(low, 1 << 32, 1 << 16, dtype=np.uint64).astype(np.uint32)
    assert_same_numbers(bf16.from_f32(bits), by_torch(torch.from_numpy(bits.view(np.float32))))


def test_every_f16_rounds_as_in_torch() -> None:
    bits = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16)
    assert_same_numbers(bf16.from_f16(bits), by_torch(torch.from_numpy(bits.view(np.float16))))


def test_a_nan_keeps_its_sign_and_its_high_payload_and_becomes_quiet() -> None:
    bits = np.array([0x7F800001, 0xFF800001, 0x7FA30000, 0xFFFFFFFF], np.uint32)
    assert bf16.from_f32(bits).tolist() == [0x7FC0, 0xFFC0, 0x7FE3, 0xFFFF]


@pytest.mark.parametrize(
    ("dtype", "values", "expected"),
    [
        ("BF16", np.array([0x3F80, 0x0001], "<u2"), [0x3F80, 0x0001]),
        ("F16", np.array([1.0, -2.0], "<f2"), [0x3F80, 0xC000]),
        ("F32", np.array([1.0, -2.0], "<f4"), [0x3F80, 0xC000]),
    ],
)
def test_bytes_of_each_dtype(dtype: str, values: np.ndarray, expected: list[int]) -> None:
    assert bf16.from_bytes(dtype, values.view(np.uint8)).tolist() == expected


def test_another_dtype_is_refused() -> None:
    with pytest.raises(CassandraError, match="dtype must be one of BF16, F16, F32, not I8"):
        bf16.from_bytes("I8", np.zeros(2, np.uint8))
