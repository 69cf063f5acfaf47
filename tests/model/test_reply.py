from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from cassandra_spec.golden import CassandraError, Format, GoldenCodec
from cassandra_spec.model.packing.packer import Recipe, open_packed, pack_model, unpack_model
from cassandra_spec.model.reply import ReadWeights, build_model, packed_reader, reply
from cassandra_spec.model.weights.sources import open_source
from tests.model.tiny import MODEL_TYPES, WORDS, write_model

TOKENS = torch.arange(2, 14)[None]


def load(path: Path) -> torch.nn.Module:
    model: torch.nn.Module = AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16)
    return model


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_a_model_from_a_source_computes_what_transformers_computes(
    tmp_path: Path, model_type: str, tied: bool
) -> None:
    path = write_model(tmp_path / "m", model_type=model_type, tied=tied)
    model = build_model(path, open_source(path))
    assert torch.equal(model(TOKENS).logits, load(path)(TOKENS).logits)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_model_from_a_packed_file_computes_what_the_unpacked_one_computes(
    tmp_path: Path, dtype: torch.dtype
) -> None:
    path = write_model(tmp_path / "m", dtype=dtype)
    recipe = Recipe(format=Format(scheme="mx"), prune=0.3, prune_scores="magnitude")
    pack_model(open_source(path), tmp_path / "p", recipe, jobs=1)
    packed = open_packed(tmp_path / "p")
    for draft in (False, True):
        unpack_model(tmp_path / "p", tmp_path / f"u{draft}", draft=draft, jobs=1)
        codec = GoldenCodec()
        decode = codec.decode_draft if draft else codec.decode_target
        model = build_model(tmp_path / "p", packed_reader(packed, decode))
        assert torch.equal(model(TOKENS).logits, load(tmp_path / f"u{draft}")(TOKENS).logits)


def test_a_tensor_of_another_size_is_refused(llama: Path) -> None:
    source = open_source(llama)
    with pytest.raises(
        CassandraError, match=r"^model\.embed_tokens\.weight must have the shape \[96, 48\], not 7"
    ):
        build_model(llama, ReadWeights(source.tensors, lambda name: source.read(name)[:7]))


def naive_reply(path: Path, prompt: str, tokens: int) -> list[int]:
    """Return the argmax, one token after another, without a cache; the end is the last token."""
    model, tokenizer = load(path), AutoTokenizer.from_pretrained(path)
    sequence = tokenizer(f"{prompt} word3", return_tensors="pt").input_ids
    generated: list[int] = []
    while len(generated) < tokens and 0 not in generated:
        logits = model(sequence).logits[0, -1]
        generated.append(int(np.argmax(logits.detach().float().numpy())))
        sequence = torch.cat([sequence, torch.tensor([[generated[-1]]])], dim=1)
    return generated


def test_a_reply_is_the_greedy_continuation_of_the_chat_template(llama: Path) -> None:
    model = build_model(llama, open_source(llama))
    answer = reply(model, llama, "word5 word7", tokens=6)
    assert list(answer.tokens) == naive_reply(llama, "word5 word7", 6)
    assert answer.text == " ".join(WORDS[token] for token in answer.tokens if token)


def test_a_reply_ends_with_the_token_that_ends_it(llama: Path) -> None:
    model = build_model(llama, open_source(llama))
    with torch.no_grad():
        model.lm_head.weight.copy_(torch.zeros_like(model.lm_head.weight))
    answer = reply(model, llama, "word5", tokens=6)
    assert answer.tokens == (0,)  # all logits are equal, and the first token is the end
    assert answer.text == ""
