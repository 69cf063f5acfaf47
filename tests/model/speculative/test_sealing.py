"""The layout of sealed keys and values: orders, what vectors keep and who packs them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from cassandra_spec.drafting import Counters, Settings, decode
from cassandra_spec.golden import (
    CassandraError,
    Format,
    GoldenCodec,
    GoldenEncoder,
    Packed,
    decode_draft,
    decode_target,
    keep_largest,
)
from cassandra_spec.golden.format import SCHEMES, Scheme
from cassandra_spec.model.speculative import KeyValueFormat
from cassandra_spec.model.speculative.causal_lm import CassandraForCausalLM
from cassandra_spec.model.speculative.sealing import Order, Sealer, flatten, unflatten
from tests.model.speculative.test_passes import tokens_of

ORDERS: tuple[Order, ...] = ("channel", "token")


@pytest.mark.parametrize("group", [1, 2, 4])
@pytest.mark.parametrize("order", ORDERS)
def test_orders_are_those_of_the_document(order: Order, group: int) -> None:
    layers, blocks, block, heads, size = shape = (2, 3, 4, 4, 5)
    x = np.arange(np.prod(shape)).reshape(shape)
    naive = []
    for b in range(blocks):
        for layer in range(layers):
            for first in range(0, heads, group):
                part = x[layer, b, :, first : first + group]
                if order == "channel":
                    naive += [part[:, h, c] for h in range(group) for c in range(size)]
                else:
                    naive += [part[p, h] for p in range(block) for h in range(group)]
    flat = flatten(x, order, group)
    assert np.array_equal(flat, np.concatenate(naive))
    assert np.array_equal(unflatten(flat, shape, order, group), x)


def key_values(layers: int, positions: int, heads: int, size: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(3)
    return torch.randn(layers, positions, heads, size, generator=generator).to(torch.bfloat16)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("order", ORDERS)
def test_what_is_sealed_comes_back_in_its_place(order: Order, scheme: Scheme) -> None:
    kv = KeyValueFormat(format=Format(scheme=scheme, truncated=0), order=order)
    values = key_values(2, 96, 3, 64)
    sealed = Sealer(kv, GoldenCodec()).seal(values)
    if scheme == "mx":
        assert (sealed.target - values.float()).abs().max() < values.abs().max() / 64
    else:
        assert torch.equal(sealed.target, values.float())


@pytest.mark.parametrize(("most", "heads"), [(1 << 14, 8), (1 << 13, 4), (5000, 2), (2048, 1)])
def test_a_segment_has_as_many_heads_as_fit(most: int, heads: int) -> None:
    kv = KeyValueFormat(format=Format(scheme="exact"), order="token", segment=most)
    values = key_values(2, 64, 8, 64)
    sealed = Sealer(kv, GoldenCodec()).seal(values)
    assert sealed.packed.format.segment == heads * 64 * 32
    assert torch.equal(sealed.target, values.float())


def test_by_token_a_block_may_be_one_token() -> None:
    kv = KeyValueFormat(format=Format(scheme="exact"), order="token", block=1)
    values = key_values(2, 7, 3, 64)
    sealed = Sealer(kv, GoldenCodec()).seal(values)
    assert len(sealed.packed.directory) == 2 * 7
    assert torch.equal(sealed.target, values.float())


@pytest.mark.parametrize("scheme", SCHEMES)
def test_drafts_have_the_largest_values_of_each_vector(scheme: Scheme) -> None:
    kv = KeyValueFormat(format=Format(scheme=scheme, truncated=0), order="token", keep=20)
    values = key_values(1, 64, 3, 64)
    sealed = Sealer(kv, GoldenCodec()).seal(values)
    patterns = values.view(torch.int16).numpy().view(np.uint16).reshape(-1)
    kept = keep_largest(patterns, 64, 20)
    draft = decode_draft(sealed.packed)
    assert not draft[~kept].any()
    assert kept.sum() == 20 * 64 * 3
    if scheme == "unary":
        missing = draft[kept] == 0  # exponents that are not in the codebook
        assert np.array_equal(draft[kept][~missing], patterns[kept][~missing])
    assert np.array_equal(decode_target(sealed.packed), patterns) or scheme == "mx"


class Recording(GoldenEncoder):
    """Notes what it is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[int, int | None, bool]] = []

    def encode(
        self,
        values: NDArray[np.uint16],
        format: Format,
        *,
        vector: int,
        keep: int | None = None,
        codebook: Sequence[int] | None = None,
    ) -> Packed:
        self.asked.append((vector, keep, codebook is not None))
        assert values.size % format.segment == 0
        return super().encode(values, format, vector=vector, keep=keep, codebook=codebook)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_an_encoder_packs_whole_segments_of_vectors(scheme: Scheme) -> None:
    encoder = Recording()
    kv = KeyValueFormat(format=Format(scheme=scheme), order="token", keep=16)
    sealer = Sealer(kv, GoldenCodec(), encoder)
    first, second = (sealer.seal(key_values(2, 64, 2, 64)).packed for _ in range(2))
    assert encoder.asked == [(64, 16, scheme == "unary")] * 2
    assert first.codebook == second.codebook


def test_an_encoder_takes_no_pruning_by_position() -> None:
    kv = KeyValueFormat(prune=0.5)
    with pytest.raises(CassandraError, match="prune must be 0 for an encoder that keeps"):
        Sealer(kv, GoldenCodec(), GoldenEncoder())


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"segment": 0}, "segment must be 1 to 65536, not 0"),
        ({"order": "token", "block": 0}, "block must be a multiple of 1 .the group., not 0"),
        ({"order": "head"}, "order must be channel or token, not 'head'"),
        ({"keep": 5}, "keep must be left out in the order channel"),
        ({"order": "token", "keep": -1}, "keep must be at least 0, not -1"),
        ({"order": "token", "keep": 3, "prune": 0.5}, "prune must be 0 beside keep, not 0.5"),
    ],
)
def test_fields_that_cannot_be_are_named(fields: dict[str, object], text: str) -> None:
    with pytest.raises(CassandraError, match=text):
        KeyValueFormat(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("scheme", ["unary", "exact"])
def test_replies_do_not_depend_on_the_order(lm: CassandraForCausalLM, scheme: Scheme) -> None:
    prompt = tokens_of(30)
    format = Format(scheme=scheme, group=16)
    found = []
    for kv in (None, KeyValueFormat(format=format, block=16, order="token", keep=5)):
        session = lm.session(70, kv=kv)
        settings = Settings(gamma=3, max_tokens=40)
        found.append([t for step in decode(session, prompt, settings, Counters()) for t in step])
    assert found[0] == found[1]
