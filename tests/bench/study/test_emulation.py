"""Emulated acceptance against the decoding loop itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch

from cassandra_spec.bench.study.emulation import Replies, Round, follow, greedy_replies, rounds
from cassandra_spec.drafting import Chooser, Counters, Levels, Settings, decode
from cassandra_spec.drafting import sessions as sessions_module
from cassandra_spec.golden import CassandraError, Format
from cassandra_spec.model.packing.packer import Recipe, pack_model
from cassandra_spec.model.speculative import CassandraForCausalLM
from cassandra_spec.model.weights.sources import open_source
from tests.model.tiny import FOUR_TYPES, change_config, write_model

PROMPTS = [[5, 9, 2, 33], [7], list(range(20, 51)), [3, 3, 3, 3, 3, 3, 3]]
LENGTH = 40
DEPTH = 8
OTHERS = [kind for kind in FOUR_TYPES if kind != "gemma3_text"]


MODELS = ["gemma3_text", *(pytest.param(t, marks=pytest.mark.slow) for t in OTHERS)]
"""The kind with a sliding window, and the others, whose layers are torch's."""


@pytest.fixture(scope="module", params=MODELS)
def lm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> object:
    """Return a packed model whose draft is right now and then, in float32: no ties by rounding."""
    folder = tmp_path_factory.mktemp("emulation")
    source = write_model(folder / "plain", model_type=request.param, max_position_embeddings=256)
    if request.param == "gemma3_text":
        change_config(source, sliding_window=16)
    format = Format(scheme="exact", group=32, segment=1024, truncated=3, fill="midpoint")
    pack_model(open_source(source), folder / "packed", Recipe(format=format), jobs=1)
    return in_float32(CassandraForCausalLM.from_pretrained(folder / "packed"))


def in_float32(lm: CassandraForCausalLM) -> CassandraForCausalLM:
    """Return the model in float32, without the ties of rounding to BF16."""
    lm.network.float()
    for module in lm.network.modules():
        products = getattr(module, "products", None)
        if products is not None:
            products.draft_values = products.draft_values.float()
            products.target_values = products.target_values.float()
    return lm


LEVELS: list[dict[str, Any]] = [
    {"draft": "hybrid"},
    {"draft": "hybrid", "levels": Levels(low=7, branches=1, alternatives=0, tail=False)},
    {"draft": "hybrid", "levels": Levels(low=5, rows=8, alternatives=3, alternative_margin=9.0)},
    {"draft": "lookup"},
]
ASKED = [
    *(Settings(gamma=gamma, min_margin=margin) for margin in (0.0, 1.5) for gamma in (1, 5, DEPTH)),
    *(Settings(gamma=5, **fields) for fields in LEVELS),
    *(Settings(gamma=3, min_margin=1.5, **fields) for fields in LEVELS[:3]),
]


class Table:
    """A table that names the next numbers: right now and then in no reply, wrong in all others."""

    def candidates(self, tail: Sequence[int]) -> list[tuple[int, float]]:
        return [((tail[-1] + step) % 96, 0.3 / step) for step in (1, 2)]


TABLE = Table()


def _emulate(lm: CassandraForCausalLM, stops: frozenset[int]) -> tuple[Replies, list[Counters]]:
    network = lm.network
    before = network.config._attn_implementation
    try:
        replies = greedy_replies(network, PROMPTS, max_tokens=LENGTH, stop_tokens=stops)
        with lm.mode.drafting():
            drafts = follow(network, replies, replies.sequences, depth=DEPTH)
    finally:
        network.config._attn_implementation = before
    return replies, [
        _count(found, prompt)
        for asked in ASKED
        for prompt, found in zip(PROMPTS, rounds(replies, drafts, asked, table=TABLE), strict=True)
    ]


def _count(found: list[Round], prompt: Sequence[int]) -> Counters:
    counters = Counters(replies=1, prompt_tokens=len(prompt))
    for each in found:
        each.add_to(counters)
    return counters


def _decode(
    lm: CassandraForCausalLM, stops: frozenset[int], monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[list[int], Counters]]:
    """Decode by the loop, which recycles the target's best tokens of the reply alone."""
    accept, seen, paths = Chooser.choose, sessions_module._seen, list[tuple[int, ...]]()

    def accept_and_keep(*args: Any) -> tuple[tuple[int, ...], int]:
        path, last = accept(*args)
        paths.append(path)
        return path, last

    def seen_on_the_path(*args: Any) -> tuple[tuple[int, tuple[int, ...]], ...]:
        rows = seen(*args)
        return tuple(rows[row] for row in (0, *(at + 1 for at in paths[-1])))

    monkeypatch.setattr(Chooser, "choose", accept_and_keep)
    monkeypatch.setattr(sessions_module, "_seen", seen_on_the_path)
    for asked in ASKED:
        settings = dataclasses.replace(asked, max_tokens=LENGTH, stop_tokens=stops)
        for prompt in PROMPTS:
            counters, session = Counters(), lm.session(len(prompt) + LENGTH)
            loop = decode(session, prompt, settings, counters, table=TABLE)
            yield [t for emitted in loop for t in emitted], counters


def test_rounds_are_those_of_the_loop(
    lm: CassandraForCausalLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    replies, emulated = _emulate(lm, frozenset())
    decoded = list(_decode(lm, frozenset(), monkeypatch))
    assert [tokens for tokens, _ in decoded] == list(map(list, replies.replies)) * len(ASKED)
    assert emulated == [counters for _, counters in decoded]
    assert 0 < sum(counters.accepted for counters in emulated) < sum(t.drafted for t in emulated)


@pytest.mark.parametrize("lm", [*MODELS, "gemma2"], indirect=True)  # caps of scores, too
def test_stop_tokens_end_replies_and_drafts(
    lm: CassandraForCausalLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, _ = _emulate(lm, frozenset())
    stops = frozenset(reply[len(reply) // 2] for reply in plain.replies)
    replies, emulated = _emulate(lm, stops)
    decoded = list(_decode(lm, stops, monkeypatch))
    assert [tokens for tokens, _ in decoded] == list(map(list, replies.replies)) * len(ASKED)
    assert min(map(len, replies.replies)) < LENGTH
    assert emulated == [counters for _, counters in decoded]


def test_an_unsure_draft_stops_early(lm: CassandraForCausalLM) -> None:
    _, emulated = _emulate(lm, frozenset())
    drafted = {0.0: 0, 1.5: 0}
    for number, counters in enumerate(emulated):
        asked = ASKED[number // len(PROMPTS)]
        if asked.draft == "model":
            drafted[asked.min_margin] += counters.drafted
    assert drafted[1.5] < drafted[0.0]


def test_levels_draft_with_fewer_passes_and_verify_fewer_times(lm: CassandraForCausalLM) -> None:
    """In replies of a random model, which repeat themselves."""
    _, emulated = _emulate(lm, frozenset())
    totals = [Counters() for _ in ASKED]
    for number, counters in enumerate(emulated):
        totals[number // len(PROMPTS)].add(counters)
    alone, hybrid, chains = totals[1], totals[6], totals[7]  # gamma 5, no margin
    assert hybrid.passes < alone.passes
    assert hybrid.rounds < alone.rounds
    assert (chains.rounds, chains.accepted) == (alone.rounds, alone.accepted)
    assert chains.passes < alone.passes == alone.drafted


def test_a_perfect_draft_is_always_right(lm: CassandraForCausalLM) -> None:
    network = lm.network
    before = network.config._attn_implementation
    replies = greedy_replies(network, PROMPTS, max_tokens=LENGTH, stop_tokens=frozenset())
    found = follow(network, replies, replies.sequences, depth=DEPTH)
    network.config._attn_implementation = before
    for draft, reply in zip(found, replies.replies, strict=True):
        for k in range(len(reply) - 1):
            ahead = reply[k + 1 : k + 1 + DEPTH]
            assert tuple(draft.tokens[k, : len(ahead)]) == ahead


def test_what_a_draft_reads_is_what_it_is_given(lm: CassandraForCausalLM) -> None:
    network = lm.network
    before = network.config._attn_implementation
    replies = greedy_replies(network, PROMPTS, max_tokens=LENGTH, stop_tokens=frozenset())
    perfect = follow(network, replies, replies.sequences, depth=DEPTH)
    for layer, stored in replies.sequences.layers.items():
        replies.sequences.layers[layer] = [(k, torch.zeros_like(v)) for k, v in stored]
    spoilt = follow(network, replies, replies.sequences, depth=DEPTH)
    network.config._attn_implementation = before
    assert any(
        (one.tokens != other.tokens).any() for one, other in zip(perfect, spoilt, strict=True)
    )


def test_prompts_are_required() -> None:
    for prompts in ([], [[1], []]):
        with pytest.raises(CassandraError, match="prompts must be at least one"):
            greedy_replies(None, prompts, max_tokens=1, stop_tokens=frozenset())
