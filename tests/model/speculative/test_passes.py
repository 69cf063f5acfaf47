from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import linear
from transformers import AutoModelForCausalLM

from cassandra_spec.drafting import Proposal
from cassandra_spec.golden import CassandraError, Packed
from cassandra_spec.model.packing.packer import pack_model
from cassandra_spec.model.speculative import (
    CassandraForCausalLM,
    DecodedProducts,
    KeyValueCache,
    PackedLinear,
    run_pass,
)
from cassandra_spec.model.speculative.tiles import Tile, tiles
from cassandra_spec.model.weights.sources import open_source
from tests.model.speculative.conftest import RECIPE
from tests.model.tiny import MODEL_TYPES, write_model

GAMMA = 8


def tokens_of(count: int) -> list[int]:
    random = torch.Generator().manual_seed(count)
    return torch.randint(2, 96, (count,), generator=random).tolist()


def test_tiles_start_at_multiples() -> None:
    assert list(tiles(6, 17, 8)) == [
        Tile(start=0, rows=8, first=6, stop=8),
        Tile(start=8, rows=8, first=0, stop=8),
        Tile(start=16, rows=8, first=0, stop=1),
    ]


@pytest.mark.parametrize("context", [1, 13, 16, 60, 200])
@pytest.mark.parametrize("draft", [False, True])
def test_logits_do_not_depend_on_how_many_positions_are_verified(
    lm: CassandraForCausalLM, context: int, draft: bool
) -> None:
    tokens = tokens_of(context + GAMMA + 1)
    lm.mode.draft = draft
    try:
        one_by_one = KeyValueCache(256)
        run_pass(lm.network, one_by_one, tokens[:context], 0, last=1)
        expected = torch.cat(
            [
                run_pass(lm.network, one_by_one, [tokens[place]], place)
                for place in range(context, len(tokens))
            ]
        )
        for count in range(1, GAMMA + 2):
            cache = KeyValueCache(300)
            run_pass(lm.network, cache, tokens[:context], 0, last=1)
            found = run_pass(lm.network, cache, tokens[context : context + count], context)
            assert torch.equal(found, expected[:count])
    finally:
        lm.mode.draft = False


def test_a_prompt_in_one_pass_is_its_tokens_one_by_one(lm: CassandraForCausalLM) -> None:
    tokens = tokens_of(50)
    cache = KeyValueCache(64)
    expected = torch.cat([run_pass(lm.network, cache, [t], p) for p, t in enumerate(tokens)])
    assert torch.equal(run_pass(lm.network, KeyValueCache(50), tokens, 0), expected)


class Capricious:
    """Products that depend on how many rows there are, and on the place of each."""

    def __init__(self, packed: Packed, target: torch.Tensor) -> None:
        self._weight = target

    def target(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.shape[-2]
        return linear(x, self._weight) + torch.arange(rows, rows * 2, dtype=x.dtype)[:, None] / 8

    draft = target


def test_kernels_see_each_position_in_the_same_row_of_the_same_shape(packed: Path) -> None:
    lm = CassandraForCausalLM.from_pretrained(packed, products=Capricious)
    tokens = tokens_of(30)
    expected = run_pass(lm.network, KeyValueCache(64), tokens, 0)
    for context in (3, 14, 16):
        for count in (1, 2, 5, 9):
            cache = KeyValueCache(64)
            run_pass(lm.network, cache, tokens[:context], 0, last=1)
            found = run_pass(lm.network, cache, tokens[context : context + count], context)
            assert torch.equal(found, expected[context : context + count])


def test_verification_overwrites_what_the_draft_wrote(lm: CassandraForCausalLM) -> None:
    tokens = tokens_of(40)
    clean = KeyValueCache(64)
    expected = run_pass(lm.network, clean, tokens, 0)
    session = lm.session(64)
    session.prompt(tokens[:20])
    for place in range(20, 30):
        session.draft(tokens[place] ^ 1, (), place)  # rejected
    nodes = Proposal.chain(tokens[21:], [0.0] * 19, "test").nodes
    assert torch.equal(session.target(tokens[20], nodes, 20), expected[20:])


def test_the_draft_reads_the_targets_keys_and_values(lm: CassandraForCausalLM) -> None:
    tokens = tokens_of(20)
    shared, own = lm.session(64), lm.session(64)
    for place, token in enumerate(tokens[:19]):
        shared.target(token, (), place)
        own.draft(token, (), place)
    assert not torch.equal(shared.draft(tokens[19], (), 19), own.draft(tokens[19], (), 19))


LONGROPE = {
    "max_position_embeddings": 128,
    "original_max_position_embeddings": 44,
    "rope_parameters": {
        "rope_type": "longrope",
        "rope_theta": 100.0,
        "short_factor": [1.0, 1.5, 2.0, 2.0, 2.5, 3.0],
        "long_factor": [2.0, 4.0, 8.0, 8.0, 9.0, 9.0],
    },
}


@pytest.mark.parametrize(
    ("model_type", "entries"), [*((kind, {}) for kind in MODEL_TYPES), ("phi3", LONGROPE)]
)
def test_logits_are_those_of_transformers(
    model_type: str, entries: dict[str, Any], tmp_path: Path
) -> None:
    source = write_model(tmp_path / "plain", model_type=model_type, sliding_window=8, **entries)
    pack_model(open_source(source), tmp_path / "packed", RECIPE, jobs=1)
    ours = CassandraForCausalLM.from_pretrained(tmp_path / "packed")
    theirs = AutoModelForCausalLM.from_pretrained(
        source, dtype=torch.bfloat16, attn_implementation="eager"
    ).double()
    tokens = tokens_of(40)
    with torch.inference_mode():
        expected = theirs(torch.tensor([tokens])).logits[0].float()
    assert ours.positions == (40 if entries else 64)  # in whole tiles of 8
    with pytest.raises(CassandraError, match=f"fit the model's {ours.positions} positions, not"):
        ours.session(ours.positions + 1)
    found = run_pass(_in_double(ours.network), KeyValueCache(64), tokens, 0)
    # attention is in float32 whatever the model's dtype
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def _in_double(network: torch.nn.Module) -> torch.nn.Module:
    for layer in network.modules():
        if isinstance(layer, PackedLinear):
            products = layer.products
            assert isinstance(products, DecodedProducts)
            products.target_values = products.target_values.double()
    return network.double()


def test_a_cache_that_is_too_small_is_named(lm: CassandraForCausalLM) -> None:
    with pytest.raises(CassandraError, match="positions must fit the cache of 4, not 5"):
        run_pass(lm.network, KeyValueCache(4), tokens_of(5), 0)
