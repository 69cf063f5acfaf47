"""A short run of the native regression, and its logic: that it sees a reply that differs."""

from __future__ import annotations

from pathlib import Path

import pytest

from cassandra_spec.golden import CassandraError
from cassandra_spec.model.packing.packer import pack_model
from cassandra_spec.model.weights.sources import open_source
from cassandra_spec.native.engine import Engine
from cassandra_spec.native.engine_binding import MOST
from tests.model.speculative.conftest import RECIPE
from tests.model.tiny import write_model
from tests.soak.engine import (
    CONTEXTS,
    DRAFTS,
    POSITIONS,
    Ask,
    Plain,
    Prompts,
    asks,
    compare,
    main,
)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A packed model with room for whole contexts."""
    folder = tmp_path_factory.mktemp("engine")
    source = write_model(folder / "plain", max_position_embeddings=POSITIONS)
    pack_model(open_source(source), folder / "packed", RECIPE, jobs=1)
    return folder / "packed"


def test_everything_takes_part() -> None:
    todo = list(asks(60))
    assert len(todo) == 60
    assert {ask.gamma for ask in todo} == {*range(1, MOST + 1), "adaptive"}
    for context in set(CONTEXTS):
        assert {ask.draft for ask in todo if ask.context == context} == set(DRAFTS)
    for draft in DRAFTS:
        assert {ask.min_margin for ask in todo if ask.draft == draft} == {0.0, 0.75}


@pytest.mark.parametrize("target", ["bf16", "packed12"])
def test_a_small_model_with_whole_contexts(small: Path, target: str) -> None:
    prompts, plain = Prompts(small), Plain()
    todo = list(asks(12))
    with Engine.from_packed(small, target=target, threads=2, context=POSITIONS) as engine:
        found = compare(engine, prompts, todo, plain, 48)
        assert found.differing == []
        assert max(len(prompts(ask)) for ask in todo) > 1890
        assert 0 < found.counters.accepted < found.counters.drafted
        assert found.counters.copies.drafted > 0
        plain[3][-1] ^= 1
        assert [ask.prompt for ask in compare(engine, prompts, todo, plain, 48).differing] == [3]


@pytest.mark.slow
def test_smollm2_on_some_prompts(tmp_path: Path) -> None:
    source = open_source("smollm2")
    pack_model(source, tmp_path / "packed", RECIPE)
    prompts = Prompts(tmp_path / "packed")
    todo = [
        Ask(prompt=prompt, context=None, draft=draft, gamma=gamma, min_margin=margin)
        for prompt, draft, gamma, margin in [
            (0, DRAFTS[0], 3, 0.0),
            (1, DRAFTS[1], MOST, 0.75),
            (2, DRAFTS[2], 5, 0.0),
        ]
    ]
    with Engine.from_packed(tmp_path / "packed", threads=2, context=512) as engine:
        found = compare(engine, prompts, todo, Plain(), 32)
    assert found.differing == []
    assert found.counters.accepted > 10


def test_the_number_of_prompts_is_known() -> None:
    with pytest.raises(CassandraError, match="prompts must be from 1 to 74, not 75"):
        main(["--prompts", "75"])
