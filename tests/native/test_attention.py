"""Attention chunk by chunk: against the naive model, and bit for bit against single rows."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from cassandra_spec.drafting import Counters, DraftCache, DraftKind, Levels, Sampling, Settings
from cassandra_spec.golden import Format, decode_draft
from cassandra_spec.golden.packed import Packed
from cassandra_spec.native.engine import Engine
from cassandra_spec.native.engine_binding import Row
from cassandra_spec.native.library import rounds_attention
from cassandra_spec.native.limits import MAX_ROWS
from cassandra_spec.native.models.reading import read_model_config
from tests.native.model_oracle import CHUNK, ModelOracle, Seen
from tests.native.models import packed, small
from tests.native.test_engine import make, require_close, require_same

TOKENS = np.random.default_rng(7).integers(0, 97, 2 * CHUNK + 40).tolist()
LONG = 2 * CHUNK + 31


@pytest.mark.parametrize("size", [16, 40, 64, 80, 128, 256])
@pytest.mark.parametrize("group", [1, 3, 8])
def test_heads_of_every_size_attend_as_the_naive_model(
    size: int, group: int, every_isa: str
) -> None:
    config, tensors = small(
        head_dim=size, num_hidden_layers=1, num_key_value_heads=1, num_attention_heads=group
    )
    tokens = TOKENS[: CHUNK + 9]
    expected = ModelOracle(read_model_config(config), tensors).logits(tokens)
    with make(config, tensors) as engine:
        require_same(engine.forward(tokens), expected)


def random_tree(rng: np.random.Generator, position: int) -> list[Row]:
    rows = [Row(0, position, int(rng.integers(97)))]
    while len(rows) < MAX_ROWS:
        parent = int(rng.integers(len(rows)))
        rows.append(Row(0, rows[parent].position + 1, int(rng.integers(97)), parent))
    return rows


def path_to(rows: Sequence[Row], at: int) -> list[int]:
    above = path_to(rows, rows[at].parent) if rows[at].parent >= 0 else []
    return [*above, rows[at].token]


@pytest.mark.parametrize("kind", ["llama", "gemma2", "qwen2"])
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_bits_of_a_row_depend_on_its_path_alone(kind: str, threads: int, every_isa: str) -> None:
    """Trees around borders of blocks and chunks, whose chunks are dealt to threads."""
    config, tensors = small(kind)
    rng = np.random.default_rng(threads)
    with (
        make(config, packed(tensors), threads=threads) as engine,
        make(config, packed(tensors)) as alone,
    ):
        places = (0, CHUNK - 9, CHUNK - 1, CHUNK, 2 * CHUNK - 17, 2 * CHUNK + 5)
        for before, position in itertools.pairwise(places):
            for each in (engine, alone):
                each.forward(TOKENS[before:position], before, last=0)
            rows = random_tree(rng, position)
            _, logits = engine.run_rows(rows, drawn=MAX_ROWS)
            for at in rng.choice(MAX_ROWS, 4, replace=False).tolist():
                path = path_to(rows, at)
                expected = alone.forward(path, position, rows=1, last=1)[0]
                assert (logits[at] == expected).all()


@pytest.mark.parametrize("threads", [2, 3, 4, 7])
def test_prompts_have_the_same_bits_for_all_threads_and_passes(
    threads: int, every_isa: str
) -> None:
    config, tensors = small()
    with make(config, tensors) as alone, make(config, tensors, threads=threads) as engine:
        expected = alone.forward(TOKENS, rows=1, last=20)
        for rows in (7, 16, 128):
            assert (engine.forward(TOKENS, rows=rows, last=20) == expected).all()


def draft_model(kind: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a config and packed tensors whose drafts take inputs in BF16."""
    config, tensors = small(kind)
    return config, packed(tensors, Format(scheme="exact", truncated=2, group=32))


@functools.cache
def read_drafts(kind: str, rounds: bool) -> tuple[ModelOracle, Seen]:
    """Return the naive model of drafts, and what it has seen of LONG tokens."""
    config, whole = draft_model(kind)
    drafts = {
        name: decode_draft(tensor) if isinstance(tensor, Packed) else tensor
        for name, tensor in whole.items()
    }
    oracle = ModelOracle(read_model_config(config), drafts)
    assert oracle.rounds_attention == rounds
    seen = oracle.nothing()
    oracle.logits(TOKENS[:LONG], seen)
    return oracle, seen


@pytest.mark.parametrize("kind", ["llama", "qwen2"])
@pytest.mark.parametrize(("window", "sinks"), [(32, 0), (100, 3), (128, 16), (200, 40), (None, 5)])
def test_drafts_see_sinks_and_a_window(
    kind: str, window: int | None, sinks: int, every_isa: str
) -> None:
    config, whole = draft_model(kind)
    oracle, before = read_drafts(kind, rounds_attention())
    cache = DraftCache(window=window, sinks=sinks)
    with make(config, whole, threads=2) as engine:
        for start, position in itertools.pairwise((0, CHUNK + 1, LONG)):
            seen = {place for run in cache.runs(position, 0, len(TOKENS)) for place in range(*run)}
            oracle.sees = lambda at, place: place in seen  # noqa: B023
            rest = TOKENS[position : position + 3]
            expected = oracle.logits(rest, [layer[:position] for layer in before])
            engine.forward(TOKENS[start:position], start, draft=True, last=0)
            found = engine.forward(rest, position, draft=True, draft_cache=cache)
            require_close(found, expected)
            whole_cache = engine.forward(rest, position, draft=True)
            assert np.array_equal(found, whole_cache) == (cache.start(position) == 0)


@pytest.mark.parametrize("draft", ["model", "hybrid"])
def test_replies_do_not_depend_on_what_drafts_see(draft: DraftKind) -> None:
    config, tensors = small()
    plain = Settings(gamma=0, max_tokens=80)
    caches = [DraftCache(window=None), DraftCache(window=32, sinks=0), DraftCache(window=64)]
    with make(config, packed(tensors), threads=2) as engine:
        expected = _reply(engine, plain)
        for cache in caches:
            settings = dataclasses.replace(plain, gamma=5, draft=draft, draft_cache=cache)
            assert _reply(engine, settings) == expected


def test_sampled_replies_draft_from_the_window() -> None:
    config, tensors = small()
    settings = Settings(
        gamma=4,
        max_tokens=60,
        sampling=Sampling(temperature=1.0),
        levels=Levels(branches=1, alternatives=0),
        draft_cache=DraftCache(window=32, sinks=2),
        seed=5,
    )
    counters = Counters()
    with make(config, packed(tensors)) as engine:
        list(engine.rounds(TOKENS[:200], settings, counters))
        each = engine.memory()["position"]
    assert counters.kv is not None
    assert 0 < counters.kv.draft <= counters.passes * (2 + 32 + 31 + 5) * each


def test_bytes_that_drafts_read_are_those_of_their_window() -> None:
    config, tensors = small()
    position_bytes = 2 * 2 * 2 * 12 * config["num_hidden_layers"]
    settings = Settings(gamma=3, max_tokens=60, draft_cache=DraftCache(window=64, sinks=4))
    counters = Counters()
    with make(config, packed(tensors)) as engine:
        _reply(engine, settings, counters)
    assert counters.kv is not None
    assert 0 < counters.kv.draft <= counters.passes * (4 + 64 + 31 + 3 + 1) * position_bytes
    assert counters.kv.target == counters.target_positions * position_bytes


def _reply(engine: Engine, settings: Settings, counters: Counters | None = None) -> list[int]:
    rounds = engine.rounds(TOKENS[:200], settings, counters or Counters())
    return [token for emitted in rounds for token in emitted]
