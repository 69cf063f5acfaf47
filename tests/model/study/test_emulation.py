"""Emulated acceptance against the decoding loop itself."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import pytest
import torch

from cassandra_spec.drafting import Counters, Settings
from cassandra_spec.golden import CassandraError, Format
from cassandra_spec.model.packing.packer import Recipe, pack_model
from cassandra_spec.model.speculative import CassandraForCausalLM, decode
from cassandra_spec.model.study.emulation import Replies, Round, follow, greedy_replies, rounds
from cassandra_spec.model.weights.sources import open_source
from tests.model.tiny import MODEL_TYPES, change_config, write_model

PROMPTS = [[5, 9, 2, 33], [7], list(range(20, 51)), [3, 3, 3, 3, 3, 3, 3]]
LENGTH = 40
DEPTH = 8


@pytest.fixture(scope="module", params=MODEL_TYPES)
def lm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> object:
    """A packed model whose draft is right now and then, in float32: no ties by rounding."""
    folder = tmp_path_factory.mktemp("emulation")
    source = write_model(folder / "plain", model_type=request.param, max_position_embeddings=256)
    if request.param == "gemma3_text":
        change_config(source, sliding_window=16)
    format = Format(scheme="exact", group=32, segment=1024, truncated=3, fill="midpoint")
    pack_model(open_source(source), folder / "packed", Recipe(format=format), jobs=1)
    return in_float32(CassandraForCausalLM.from_pretrained(folder / "packed"))


def in_float32(lm: CassandraForCausalLM) -> CassandraForCausalLM:
    """The same model without ties that rounding to BF16 makes and breaks."""
    lm.network.float()
    for module in lm.network.modules():
        products = getattr(module, "products", None)
        if products is not None:
            products.draft_values = products.draft_values.float()
            products.target_values = products.target_values.float()
    return lm


MARGINS = (0.0, 1.5)


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
        for margin in MARGINS
        for gamma in (1, 3, DEPTH)
        for prompt, found in zip(
            PROMPTS, rounds(replies, drafts, gamma, min_margin=margin), strict=True
        )
    ]


def _count(found: list[Round], prompt: Sequence[int]) -> Counters:
    counters = Counters(replies=1, prompt_tokens=len(prompt))
    for each in found:
        each.add_to(counters)
    return counters


def _decode(
    lm: CassandraForCausalLM, stops: frozenset[int]
) -> Iterator[tuple[list[int], Counters]]:
    for margin, gamma in itertools.product(MARGINS, (1, 3, DEPTH)):
        settings = Settings(gamma=gamma, max_tokens=LENGTH, stop_tokens=stops, min_margin=margin)
        for prompt in PROMPTS:
            counters, session = Counters(), lm.session(len(prompt) + LENGTH)
            tokens = [t for emitted in decode(session, prompt, settings, counters) for t in emitted]
            yield tokens, counters


def test_rounds_are_those_of_the_loop(lm: CassandraForCausalLM) -> None:
    replies, emulated = _emulate(lm, frozenset())
    decoded = list(_decode(lm, frozenset()))
    assert [tokens for tokens, _ in decoded] == list(map(list, replies.replies)) * 3 * len(MARGINS)
    assert emulated == [counters for _, counters in decoded]
    assert 0 < sum(counters.accepted for counters in emulated) < sum(t.drafted for t in emulated)


def test_stop_tokens_end_replies_and_drafts(lm: CassandraForCausalLM) -> None:
    plain, _ = _emulate(lm, frozenset())
    stops = frozenset(reply[len(reply) // 2] for reply in plain.replies)
    replies, emulated = _emulate(lm, stops)
    decoded = list(_decode(lm, stops))
    assert [tokens for tokens, _ in decoded] == list(map(list, replies.replies)) * 3 * len(MARGINS)
    assert min(map(len, replies.replies)) < LENGTH
    assert emulated == [counters for _, counters in decoded]


def test_an_unsure_draft_stops_early(lm: CassandraForCausalLM) -> None:
    _, emulated = _emulate(lm, frozenset())
    half = len(emulated) // 2
    drafted = [sum(t.drafted for t in some) for some in (emulated[:half], emulated[half:])]
    assert drafted[1] < drafted[0]


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
