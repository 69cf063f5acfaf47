from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import linear
from transformers import AutoModelForCausalLM

from cassandra_spec.drafting import Counters, Proposal, Settings
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
from tests.model.tiny import (
    BY_LENGTH,
    DYNAMIC,
    LONGROPE,
    MODEL_TYPES,
    with_long_angles,
    write_model,
)

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


@pytest.mark.parametrize(
    ("model_type", "entries"), [*((kind, {}) for kind in MODEL_TYPES), *BY_LENGTH]
)
def test_logits_are_those_of_transformers(
    model_type: str, entries: dict[str, Any], tmp_path: Path
) -> None:
    source = write_model(tmp_path / "plain", model_type=model_type, sliding_window=8, **entries)
    ours = _packed(source)
    assert ours.positions == (44 if entries else 64)
    with pytest.raises(CassandraError, match=f"fit the context of {ours.positions} positions, not"):
        ours.session(ours.positions + 1)
    _require_same(ours, source, tokens_of(43))  # in tiles of 8, whose padding is beyond 44


def _packed(source: Path, **options: Any) -> CassandraForCausalLM:
    packed = source.with_name("packed")
    pack_model(open_source(source), packed, RECIPE, jobs=1)
    return CassandraForCausalLM.from_pretrained(packed, **options)


def _require_same(ours: CassandraForCausalLM, source: Path, tokens: list[int]) -> None:
    """Require that a pass equals transformers' own without a cache, in double precision."""
    theirs = AutoModelForCausalLM.from_pretrained(
        source, dtype=torch.bfloat16, attn_implementation="eager"
    ).double()
    with torch.inference_mode():
        expected = theirs(torch.tensor([tokens])).logits[0].float()
    found = run_pass(_in_double(ours.network), KeyValueCache(128), tokens, 0)
    # attention is in float32 whatever the model's dtype
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("count", [60, 20])
@pytest.mark.parametrize(("model_type", "entries"), BY_LENGTH)
def test_a_long_context_has_its_angles_from_the_first_position(
    model_type: str, entries: dict[str, Any], count: int, tmp_path: Path
) -> None:
    source = write_model(tmp_path / "plain", model_type=model_type, **entries)
    ours = _packed(source, context=60)
    if count < 44:  # where transformers by itself would take others
        entries = with_long_angles(entries, 60)
        source = write_model(tmp_path / "long", model_type=model_type, **entries)
    _require_same(ours, source, tokens_of(count))


@pytest.mark.parametrize(("model_type", "entries"), BY_LENGTH)
def test_replies_in_a_long_context_are_those_of_plain_decoding(
    model_type: str, entries: dict[str, Any], tmp_path: Path
) -> None:
    ours = _packed(write_model(tmp_path / "plain", model_type=model_type, **entries), context=90)
    replies = [
        list(ours.stream(tokens_of(30), Settings(gamma=gamma, max_tokens=60), Counters()))
        for gamma in (0, 2, 5)
    ]
    assert replies == [replies[0]] * 3
    ours.use_context(44)
    short = Settings(gamma=0, max_tokens=14)
    assert list(ours.stream(tokens_of(30), short, Counters())) != replies[0][:14]


@pytest.mark.parametrize(
    ("model_type", "entries", "most"), [("phi3", LONGROPE, 128), ("llama", DYNAMIC, 132)]
)
def test_contexts_beyond_all_angles_are_refused(
    model_type: str, entries: dict[str, Any], most: int, tmp_path: Path
) -> None:
    ours = _packed(write_model(tmp_path / "plain", model_type=model_type, **entries))
    line = f"not need 45 (context can be set, up to {most})"
    with pytest.raises(CassandraError, match=re.escape(line)):
        ours.session(45)
    for context in (0, most + 1):
        line = f"context must be from 1 to the model's {most if context else 44} positions, not"
        with pytest.raises(CassandraError, match=f"{line} {context}"):
            ours.use_context(context)
    ours.use_context(most)
    assert ours.positions == most


def test_passes_of_transformers_choose_their_angles_themselves(tmp_path: Path) -> None:
    ours = _packed(write_model(tmp_path / "plain", model_type="phi3", **LONGROPE))
    tokens = torch.tensor([tokens_of(60)])
    with torch.inference_mode():
        expected = ours.network(tokens).logits
        run_pass(ours.network, KeyValueCache(64), tokens[0, :40].tolist(), 0)
        assert torch.equal(ours.network(tokens).logits, expected)


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
