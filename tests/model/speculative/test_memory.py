from __future__ import annotations

from pathlib import Path

import pytest

from cassandra_spec.golden import CassandraError
from cassandra_spec.model.packing.packer import open_packed, pack_model
from cassandra_spec.model.packing.plan import Override, PackPlan
from cassandra_spec.model.speculative import CassandraForCausalLM, KeyValueFormat, causal_lm
from cassandra_spec.model.speculative.memory import model_memory
from cassandra_spec.model.weights.sources import open_source
from cassandra_spec.native import memory
from tests.model.speculative.conftest import RECIPE
from tests.model.tiny import SIZES, WORDS, write_model


def limit(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda: size)


def test_a_model_that_does_not_fit_is_refused_before_it_is_read(
    packed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = model_memory(open_packed(packed), products=2)
    values = sum(tensor.count for tensor in open_packed(packed).tensors.values())
    assert 4 * values < needed < 8 * values
    limit(monkeypatch, needed)
    CassandraForCausalLM.from_pretrained(packed)
    limit(monkeypatch, needed - 1)
    monkeypatch.setattr(causal_lm, "build_model", lambda *_: pytest.fail("weights were read"))
    with pytest.raises(CassandraError, match=r"packed needs 0\.\d MB of memory, and 0\.\d MB are"):
        CassandraForCausalLM.from_pretrained(packed)


@pytest.mark.parametrize(("tied", "copies"), [(True, 3), (False, 1)])
def test_a_packed_embedding_counts_as_often_as_it_is_there(
    tmp_path: Path, tied: bool, copies: int
) -> None:
    """Beside one copy in BF16 when it is kept; other matrices are the larger ones."""
    source = write_model(tmp_path / "plain", tied=tied, intermediate_size=160)
    found = {}
    for keep in (False, True):
        overrides = (Override(tensors="model.embed_tokens.weight", keep=keep),)
        plan = PackPlan(default=RECIPE, overrides=overrides)
        pack_model(open_source(source), tmp_path / f"{keep}", plan, jobs=1)
        found[keep] = model_memory(open_packed(tmp_path / f"{keep}"), products=2)
    assert found[False] - found[True] == (copies - 1) * 2 * len(WORDS) * SIZES["hidden_size"]


def test_one_product_needs_less(packed: Path) -> None:
    file = open_packed(packed)
    assert model_memory(file, products=1) < model_memory(file, products=2)


def test_keys_and_values_that_do_not_fit_are_refused(
    lm: CassandraForCausalLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, 100 * 2 * lm.costs.position)
    lm.session(100)
    for kv, positions in ((None, 101), (KeyValueFormat(), 51)):
        with pytest.raises(CassandraError, match=f"a cache of {positions} positions needs"):
            lm.session(positions, kv=kv)


def test_caches_of_a_batch_must_fit_together(
    lm: CassandraForCausalLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, 20 * 2 * lm.costs.position)
    prompts = [[3, 4, 5], [6, 7, 8]]
    lm.generate(prompts, max_new_tokens=7)
    with pytest.raises(CassandraError, match="a cache of 22 positions needs"):
        lm.generate(prompts, max_new_tokens=8)
