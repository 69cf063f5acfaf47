from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from cassandra_spec.drafting import Counters, Sampling, Settings, decode
from cassandra_spec.golden import CassandraError, Format, GoldenCodec, Packed
from cassandra_spec.golden.file import PackedFile
from cassandra_spec.model.packing.packer import Recipe, open_packed, pack_model
from cassandra_spec.model.reply import build_model, packed_reader
from cassandra_spec.model.speculative import (
    CassandraForCausalLM,
    KeyValueCache,
    KeyValueFormat,
    PackedLinear,
    run_pass,
)
from cassandra_spec.model.weights.sources import open_source
from tests.model.speculative.conftest import RECIPE
from tests.model.tiny import write_model

PROMPTS = ("word5 word9 word11", "word7", "word20 word21 word22 word23 word24 word25")


def plain(lm: CassandraForCausalLM, prompt: list[int], count: int) -> list[int]:
    """Greedy decoding with the target in passes of one position; ends with a stop token."""
    cache = KeyValueCache(len(prompt) + count)
    logits = run_pass(lm.network, cache, prompt, 0, last=1)
    found = [int(logits[-1].argmax())]
    while len(found) < count and found[-1] not in lm.stop_tokens():
        logits = run_pass(lm.network, cache, found[-1:], len(prompt) + len(found) - 1)
        found.append(int(logits[-1].argmax()))
    return found


def speculate(
    lm: CassandraForCausalLM, prompt: list[int], *, gamma: int = 3, max_tokens: int = 128
) -> list[int]:
    settings = Settings(gamma=gamma, max_tokens=max_tokens, stop_tokens=lm.stop_tokens())
    return list(lm.stream(prompt, settings, Counters()))


@pytest.mark.parametrize("prompt", PROMPTS)
def test_the_reply_is_that_of_plain_decoding(lm: CassandraForCausalLM, prompt: str) -> None:
    tokens = lm.encode_prompt(prompt)
    expected = plain(lm, tokens, 60)
    for gamma in (0, 1, 2, 3, 5, 8):
        assert speculate(lm, tokens, gamma=gamma, max_tokens=60) == expected


@pytest.mark.parametrize(
    "recipe",
    [
        Recipe(format=Format(scheme="unary", truncated=4), prune=0.4, prune_scores="magnitude"),
        Recipe(format=Format(scheme="mx", truncated=4, fill="midpoint")),
        Recipe(format=Format(scheme="mx", truncated=5, significand=7)),
        Recipe(format=Format(scheme="exact", truncated=7)),
    ],
    ids=["unary", "mx", "mxint8", "exact"],
)
def test_every_scheme_replies_as_its_own_target_does(
    recipe: Recipe, llama: Path, tmp_path: Path
) -> None:
    pack_model(open_source(llama), tmp_path / "packed", recipe, jobs=1)
    lm = CassandraForCausalLM.from_pretrained(tmp_path / "packed")
    tokens = lm.encode_prompt(PROMPTS[0])
    expected = plain(lm, tokens, 40)
    assert speculate(lm, tokens, gamma=4, max_tokens=40) == expected


def test_some_drafted_tokens_are_accepted_and_some_are_not(lm: CassandraForCausalLM) -> None:
    report = lm.reply(PROMPTS, Settings(gamma=3, max_tokens=60)).report
    assert 0 < report.accepted < report.drafted
    assert sum(report.accepted_lengths) == report.rounds


def test_a_seed_makes_sampling_repeatable(lm: CassandraForCausalLM) -> None:
    sampling = Sampling(temperature=1.0, top_k=20)
    runs = [
        lm.reply(PROMPTS, Settings(gamma=3, max_tokens=30, sampling=sampling, seed=seed))
        for seed in (1, 1, 2)
    ]
    assert runs[0].tokens == runs[1].tokens != runs[2].tokens


def test_text_is_streamed_in_pieces_that_make_the_reply(lm: CassandraForCausalLM) -> None:
    pieces: list[str] = []
    generation = lm.reply(
        PROMPTS[:1], Settings(gamma=3, max_tokens=20), on_text=lambda _, text: pieces.append(text)
    )
    assert "".join(pieces) == generation.texts[0]
    assert 1 < sum(map(bool, pieces)) < len(generation.tokens[0])  # a piece for each round


def test_the_layers_hold_target_and_draft(packed: Path, lm: CassandraForCausalLM) -> None:
    file = open_packed(packed)
    network = build_model(packed, packed_reader(file, GoldenCodec().decode_draft))
    layers = {
        name: layer for name, layer in lm.network.named_modules() if isinstance(layer, PackedLinear)
    }
    assert {f"{name}.weight" for name in layers} == set(file.tensors)
    for name, layer in layers.items():
        weight = network.get_parameter(f"{name}.weight")
        x = torch.eye(weight.shape[1], dtype=torch.bfloat16)
        assert torch.equal(layer.products.draft(x).T, weight)
        assert not torch.equal(layer.products.target(x).T, weight)


def test_costs_are_those_of_the_file(packed: Path, lm: CassandraForCausalLM) -> None:
    file = open_packed(packed)
    stored = [file.stored_bytes(name) for name in file.tensors]
    costs = lm.costs.linear + lm.costs.head
    assert costs.target == sum(sum(parts.values()) for parts in stored)
    assert costs.draft == costs.target - sum(parts["verification"] for parts in stored)
    assert costs.bf16 == 2 * sum(spec.count for spec in file.tensors.values())
    assert lm.costs.other == _norm_bytes(file)
    assert lm.costs.position == 2 * 2 * 2 * 12 * 2  # keys and values, layers, heads, size, bytes


def _norm_bytes(file: PackedFile) -> int:
    return sum(raw.nbytes for name, raw in file.others.items() if "norm" in name)


def test_a_tied_head_is_drafted_too(tmp_path: Path) -> None:
    source = write_model(tmp_path / "plain", tied=True)
    pack_model(open_source(source), tmp_path / "packed", RECIPE, jobs=1)
    lm = CassandraForCausalLM.from_pretrained(tmp_path / "packed")
    assert isinstance(lm.network.lm_head, PackedLinear)
    assert lm.costs.head.bf16 == 2 * 96 * 48
    tokens = lm.encode_prompt(PROMPTS[0])
    assert speculate(lm, tokens, gamma=3, max_tokens=40) == plain(lm, tokens, 40)


def test_weights_come_through_the_codec(packed: Path) -> None:
    asked: dict[str, int] = {"draft": 0, "target": 0}

    class Counting(GoldenCodec):
        def decode_draft(self, packed: Packed) -> NDArray[np.uint16]:
            asked["draft"] += 1
            return super().decode_draft(packed)

        def decode_target(self, packed: Packed) -> NDArray[np.uint16]:
            asked["target"] += 1
            return super().decode_target(packed)

    CassandraForCausalLM.from_pretrained(packed, codec=Counting())
    assert asked == dict.fromkeys(("draft", "target"), len(open_packed(packed).tensors))


def test_another_kernel_can_be_plugged_in(packed: Path) -> None:
    class Kernel:
        """Decodes at each use, as a kernel that reads packed data does."""

        def __init__(self, packed: Packed, target: torch.Tensor) -> None:
            self.packed, self.shape = packed, target.shape

        def _product(self, x: torch.Tensor, values: NDArray[np.uint16]) -> torch.Tensor:
            weight = torch.from_numpy(values.view(np.int16)).view(torch.bfloat16)
            return torch.nn.functional.linear(x, weight.reshape(self.shape))

        def draft(self, x: torch.Tensor) -> torch.Tensor:
            return self._product(x, GoldenCodec().decode_draft(self.packed))

        def target(self, x: torch.Tensor) -> torch.Tensor:
            return self._product(x, GoldenCodec().decode_target(self.packed))

    lm = CassandraForCausalLM.from_pretrained(packed, products=Kernel)
    tokens = lm.encode_prompt(PROMPTS[0])
    assert speculate(lm, tokens, gamma=3, max_tokens=8) == plain(lm, tokens, 8)


def test_the_mode_is_restored_when_a_pass_fails(lm: CassandraForCausalLM) -> None:
    with pytest.raises(IndexError):
        lm.session(8).draft(10_000, (), 0)
    assert not lm.mode.draft


def test_a_reply_that_does_not_fit_is_refused(lm: CassandraForCausalLM) -> None:
    text = "prompt and reply must fit the context of 256 positions, not need 303"
    with pytest.raises(CassandraError, match=text):
        speculate(lm, [1, 2, 3], max_tokens=300)


def test_an_empty_prompt_is_refused(lm: CassandraForCausalLM) -> None:
    with pytest.raises(CassandraError, match="prompt must have at least one token"):
        speculate(lm, [])


def test_rows_must_be_positive(packed: Path) -> None:
    with pytest.raises(CassandraError, match="rows must be at least 1, not 0"):
        CassandraForCausalLM.from_pretrained(packed, rows=0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("weights", "scheme"),
    [
        ("exact", None),
        ("exact", "unary"),
        ("exact", "exact"),
        ("exact", "mx"),
        ("unary", None),
        ("unary", "exact"),
    ],
)
def test_smollm2_replies_as_plain_decoding_does(
    weights: str,
    scheme: Literal["unary", "exact", "mx"] | None,
    smollm2: Callable[[str], CassandraForCausalLM],
    plain_reply: Callable[..., list[int]],
) -> None:
    lm = smollm2(weights)
    kv = None if scheme is None else KeyValueFormat(format=Format(scheme=scheme, fill="midpoint"))
    for gamma, prompt in SMOLLM2_PROMPTS.items():
        expected = plain_reply(lm, prompt, kv=kv if scheme == "mx" else None)
        assert reply_tokens(lm, lm.encode_prompt(prompt), gamma=gamma, kv=kv) == expected


SMOLLM2_PROMPTS = {3: "Why is the sky blue?", 5: "Write a Python function that reverses a list."}
"""By the gamma that is used for them."""


@pytest.fixture(scope="module")
def plain_reply() -> Callable[..., list[int]]:
    @cache
    def reply(lm: CassandraForCausalLM, prompt: str, *, kv: KeyValueFormat | None) -> list[int]:
        return reply_tokens(lm, lm.encode_prompt(prompt), gamma=0, kv=kv)

    return reply


@pytest.fixture(scope="module")
def smollm2(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[str], CassandraForCausalLM]:
    folder = tmp_path_factory.mktemp("smollm2")
    unary = Recipe(format=Format(scheme="unary", truncated=4), prune=0.4, prune_scores="magnitude")

    @cache
    def load(weights: str) -> CassandraForCausalLM:
        recipe = unary if weights == "unary" else RECIPE
        pack_model(open_source("smollm2"), folder / weights, recipe)
        return CassandraForCausalLM.from_pretrained(folder / weights)

    return load


def reply_tokens(
    lm: CassandraForCausalLM, prompt: list[int], *, gamma: int, kv: KeyValueFormat | None
) -> list[int]:
    settings = Settings(gamma=gamma, max_tokens=24, stop_tokens=lm.stop_tokens())
    session = lm.session(len(prompt) + 24, kv=kv)
    tokens = [
        token for emitted in decode(session, prompt, settings, Counters()) for token in emitted
    ]
    assert kv is None or session.cache.sealed >= 32
    return tokens
