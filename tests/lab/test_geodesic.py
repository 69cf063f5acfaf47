"""Methods of the HyperTensor papers without a verifier: residuals, tables, keys, values."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch

from cassandra_spec.drafting import Counters, NgramTable, Settings
from cassandra_spec.golden import CassandraError, Format
from cassandra_spec.lab.geodesic.low_rank import KEY_VALUES, LowRank, project
from cassandra_spec.lab.geodesic.one_decode import generate
from cassandra_spec.lab.geodesic.residuals import block_residuals, mix
from cassandra_spec.model.packing.packer import Recipe, pack_model
from cassandra_spec.model.speculative import CassandraForCausalLM
from cassandra_spec.model.weights.sources import open_source
from tests.model.tiny import WORDS

TOKENS = [5, 9, 17, 3, 44, 8]


@pytest.fixture(scope="session")
def lm(llama: Path, tmp_path_factory: pytest.TempPathFactory) -> CassandraForCausalLM:
    path = tmp_path_factory.mktemp("geodesic") / "packed"
    pack_model(open_source(llama), path, Recipe(format=Format(segment=256)), jobs=1)
    return CassandraForCausalLM.from_pretrained(path)


def logits(network: torch.nn.Module) -> torch.Tensor:
    with torch.inference_mode():
        found: torch.Tensor = network(input_ids=torch.tensor([TOKENS]), use_cache=False).logits
    return found


def test_zero_queries_change_no_bit_and_others_do(lm: CassandraForCausalLM) -> None:
    plain, width = logits(lm.network), lm.network.config.hidden_size
    with block_residuals(lm.network, [torch.zeros(width)], strength=1.0):
        assert torch.equal(logits(lm.network), plain)
    with block_residuals(lm.network, [torch.ones(width)]):
        assert not torch.equal(logits(lm.network), plain)
    with block_residuals(lm.network, [torch.ones(width)], strength=0.0):
        assert torch.equal(logits(lm.network), plain)
    assert torch.equal(logits(lm.network), plain), "nothing is left behind"


def test_mixed_summaries_are_the_weighted_sum() -> None:
    random = torch.Generator().manual_seed(2)
    parts = [torch.randn(3, 8, generator=random) for _ in range(4)]
    query = torch.randn(8, generator=random)
    found = mix(sum(parts[1:], parts[0]), parts, query, 1.0)
    scores = torch.stack([p @ query / (8**0.5 * p.square().mean(-1).sqrt()) for p in parts])
    expected = 4 * (scores.softmax(0)[..., None] * torch.stack(parts)).sum(0)
    torch.testing.assert_close(found, expected)


def test_blocks_divide_the_layers(lm: CassandraForCausalLM) -> None:
    with (
        pytest.raises(CassandraError, match="blocks must divide the 2 layers, not be 3"),
        block_residuals(lm.network, [torch.zeros(48)] * 2),
    ):
        pass


def test_keys_and_values_alone_can_be_of_low_rank(lm: CassandraForCausalLM) -> None:
    network = project(lm, 6, only=KEY_VALUES)
    changed = {n for n, module in network.named_modules() if isinstance(module, LowRank)}
    assert {name.rsplit(".", 1)[-1] for name in changed} == set(KEY_VALUES)
    assert len(changed) == 4


def test_a_table_that_is_never_sure_leaves_plain_decoding(lm: CassandraForCausalLM) -> None:
    asked = Settings(gamma=0, max_tokens=12)
    plain = list(itertools.chain.from_iterable(lm.rounds(TOKENS, asked, Counters())))
    made = NgramTable.count([[*TOKENS, *plain] * 5, [1, 2, 3]], vocabulary=len(WORDS))
    sizes: dict[str, Any] = {"max_tokens": 12, "stop_tokens": frozenset()}
    never = list(generate(lm, made, TOKENS, threshold=1.01, **sizes))
    assert never == [(token, False) for token in plain]
    some = list(generate(lm, made, TOKENS, threshold=0.4, **sizes))
    assert not some[0][1], "the first token is the model's"
    assert [token for token, _ in some] == plain, "the table is of this reply"
    assert any(hit for _, hit in some)
    with pytest.raises(CassandraError, match="threshold must be above 0"):
        next(generate(lm, made, TOKENS, threshold=0, **sizes))
