"""Bits that flip in memory while the torch runtime generates, and checks of it on demand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from cassandra_spec.drafting import Counters, Settings
from cassandra_spec.golden import CassandraError, Packed
from cassandra_spec.golden.errors import FileError
from cassandra_spec.golden.file import PackedFile
from cassandra_spec.model.speculative import CassandraForCausalLM, KeyValueFormat
from cassandra_spec.model.speculative.linear import DecodedProducts, PackedLinear
from cassandra_spec.native.codec import NativeCodec
from tests.model.speculative.conftest import RECIPE
from tests.native.test_memory_faults import Faults, directory, regions


class FromPacked:
    """Products that decode packed data, which stay in memory, at each use."""

    codec = NativeCodec()
    made: list[Packed] = []  # noqa: RUF012

    def __init__(self, packed: Packed, target: torch.Tensor) -> None:
        self.packed, self.shape = packed, target.shape
        self.made.append(packed)

    def _product(self, x: torch.Tensor, values: NDArray[np.uint16]) -> torch.Tensor:
        weight = torch.from_numpy(values.view(np.int16)).view(torch.bfloat16)
        return torch.nn.functional.linear(x, weight.reshape(self.shape))

    def draft(self, x: torch.Tensor) -> torch.Tensor:
        return self._product(x, self.codec.decode_draft(self.packed))

    def target(self, x: torch.Tensor) -> torch.Tensor:
        return self._product(x, self.codec.decode_target(self.packed))


def end_of(lm: CassandraForCausalLM) -> str:
    """Return the end of a reply: tokens, or an error of this project."""
    settings = Settings(gamma=3, max_tokens=12)
    try:
        tokens = [t for part in lm.rounds((5, 9, 11), settings, Counters()) for t in part]
    except CassandraError:
        return "error"
    assert 0 < len(tokens) <= 12
    assert all(0 <= token < lm.network.config.vocab_size for token in tokens)
    return "reply"


@pytest.fixture
def from_packed(packed: Path) -> CassandraForCausalLM:
    FromPacked.made.clear()
    return CassandraForCausalLM.from_pretrained(packed, products=FromPacked)


@pytest.mark.parametrize("place", [regions, directory])
def test_flips_in_packed_weights_have_a_defined_end(
    from_packed: CassandraForCausalLM, place: object
) -> None:
    parts = [part for packed in FromPacked.made for part in place(packed)]  # type: ignore[operator]
    before = [part.copy() for part in parts]
    with Faults(parts, 1) as faults:
        ends = {end_of(from_packed) for _ in range(12)}
    assert ends <= {"reply", "error"}
    assert faults.flips > 0
    assert all(map(np.array_equal, parts, before))
    assert end_of(from_packed) == "reply"


def test_flips_in_decoded_weights_have_a_defined_end(packed: Path) -> None:
    """With keys and values packed: what a damaged model computes is sealed, too."""
    kv = KeyValueFormat(format=RECIPE.format, block=32)
    lm = CassandraForCausalLM.from_pretrained(packed, kv=kv)
    parts = [p.detach().view(torch.uint8).numpy().reshape(-1) for p in lm.network.parameters()]
    with Faults(parts, 2):
        assert {end_of(lm) for _ in range(12)} <= {"reply", "error"}
    assert end_of(lm) == "reply"


def test_packed_data_in_memory_are_checked_against_the_file(
    packed: Path, from_packed: CassandraForCausalLM
) -> None:
    file = PackedFile(packed / "model.safetensors")
    name = next(iter(file.tensors))
    held = file.read_packed(name)
    file.check_packed(name, held)
    for part in (held.speculation, held.verification, held.directory.view(np.uint8).reshape(-1)):
        part[3] ^= 16
        with pytest.raises(FileError, match=f"{name}.* must have the CRC-32"):
            file.check_packed(name, held)
        part[3] ^= 16
    file.check_packed(name, held)


def test_weights_in_memory_are_checked_on_demand(packed: Path) -> None:
    lm = CassandraForCausalLM.from_pretrained(packed, verify=True)
    lm.verify()
    name, layer = next(
        (name, module)
        for name, module in lm.network.named_modules()
        if isinstance(module, PackedLinear)
    )
    assert isinstance(layer.products, DecodedProducts)
    values = layer.products.draft_values.clone()
    values.view(torch.int16)[0, 0] ^= 1
    layer.products.draft_values = values
    with pytest.raises(CassandraError, match=rf"^{name}.weight \(draft\) in memory must have the"):
        lm.verify()
    lm = CassandraForCausalLM.from_pretrained(packed, verify=True)
    lm.network.model.norm.weight.data.view(torch.int16)[0] ^= 1
    with pytest.raises(CassandraError, match=r"^model.norm.weight in memory must have the CRC-32"):
        lm.verify()
    with pytest.raises(CassandraError, match="verify must be true"):
        CassandraForCausalLM.from_pretrained(packed).verify()
