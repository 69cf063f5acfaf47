"""Logits processors and outputs of ``generate()``, held to transformers' own loop."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM
from transformers.generation import GenerateDecoderOnlyOutput

import cassandra_spec.model.huggingface as packed_models
from cassandra_spec.golden import CassandraError, Format
from cassandra_spec.model.packing.packer import Recipe, pack_model
from cassandra_spec.model.weights.sources import open_source
from tests.model.tiny import write_model

RECIPE = Recipe(format=Format(scheme="exact", group=16, truncated=4, fill="midpoint"))
PADDED = {
    "inputs": torch.tensor([[0, 0, 0, 7, 9, 11, 7, 9], [2, 3, 5, 8, 13, 21, 34, 55]]),
    "attention_mask": torch.tensor([[0, 0, 0, 1, 1, 1, 1, 1], [1] * 8]),
}
OUTPUTS: dict[str, Any] = {
    "return_dict_in_generate": True,
    "output_scores": True,
    "output_logits": True,
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("processing")
    write_model(folder / "plain", max_position_embeddings=128)
    pack_model(open_source(folder / "plain"), folder / "packed", RECIPE, jobs=1)
    return AutoModelForCausalLM.from_pretrained(folder / "packed")


def theirs(model: Any, **arguments: Any) -> Any:
    """Return the result of transformers' loop on the same weights."""
    return super(packed_models.SpeculativeGeneration, model).generate(**arguments)


class Wary:
    """Forbids tokens by the last one, and makes tokens that have come less likely."""

    def __call__(self, ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        changed = scores.clone()
        for row, seen in enumerate(ids.tolist()):
            changed[row, [token for token in range(96) if (token + seen[-1]) % 5 == 0]] = -torch.inf
            changed[row, seen] -= 0.5 * len(seen) / 10
        return changed


def by_row(row: int, ids: torch.Tensor) -> list[int]:
    """Return tokens that the row and the last token allow."""
    return [token for token in range(96) if (token + int(ids[-1]) + row) % 3]


ASKED: dict[str, dict[str, Any]] = {
    "nothing": {},
    "processor": {"logits_processor": [Wary()]},
    "two": {"logits_processor": [Wary()], "repetition_penalty": 1.4},
    "prefix": {"prefix_allowed_tokens_fn": by_row},
    "prefix and processor": {"prefix_allowed_tokens_fn": by_row, "logits_processor": [Wary()]},
    "ngram": {"no_repeat_ngram_size": 2},
    "minimum": {"min_new_tokens": 9, "suppress_tokens": [5], "eos_token_id": list(range(0, 60))},
    "words": {"bad_words_ids": [[4], [8, 9]], "sequence_bias": [[[6], 2.0]]},
    "begin": {"begin_suppress_tokens": list(range(50)), "min_length": 12},
}


@pytest.mark.parametrize("name", ASKED)
def test_replies_and_scores_are_those_of_transformers(model: Any, name: str) -> None:
    asked = {**PADDED, "max_new_tokens": 16, "do_sample": False, **OUTPUTS, **ASKED[name]}
    expected = theirs(model, **asked)
    found = model.generate(**asked)
    assert isinstance(found, GenerateDecoderOnlyOutput)
    assert torch.equal(model.generate(**asked, draft="none").sequences, found.sequences)
    _compare(found, expected, asked)


def _compare(
    found: Any, expected: Any, asked: dict[str, Any], names: tuple[str, ...] = ("logits", "scores")
) -> None:
    """Compare each reply up to its end, or to a near tie that both decide differently."""
    width = PADDED["inputs"].shape[1]
    ends = set(asked.get("eos_token_id", [0]))
    compared = 0
    for row in range(len(found.sequences)):
        for at, token in enumerate(found.sequences[row, width:].tolist()):
            for name in names:
                one, other = (getattr(each, name)[at][row] for each in (found, expected))
                assert one.dtype == torch.float32
                torch.testing.assert_close(one, other, atol=0.03, rtol=0.03)
            other_token = expected.sequences[row, width + at]
            if token != other_token:
                assert other[other_token] - other[token] < 0.1
                break
            compared += 1
            if token in ends:
                rest = slice(at + 1, len(found.scores))
                assert all(scores[row].softmax(0)[0] == 1 for scores in found.scores[rest])
                assert torch.equal(found.sequences[row], expected.sequences[row])
                break
    assert compared >= 4 * len(found.sequences)


@pytest.mark.parametrize("name", ["nothing", "two"])
def test_drafts_change_no_bit_of_scores(model: Any, name: str) -> None:
    asked = {**PADDED, "max_new_tokens": 16, "do_sample": False, **OUTPUTS, **ASKED[name]}
    drafted, plain = model.generate(**asked), model.generate(**asked, draft="none")
    for name in ("scores", "logits"):
        for one, other in zip(getattr(drafted, name), getattr(plain, name), strict=True):
            assert torch.equal(one, other)


def test_several_replies_to_a_prompt_are_those_of_transformers(model: Any) -> None:
    """With one token to draw from, sampling is certain in both."""
    asked = {**PADDED, "max_new_tokens": 9, "do_sample": True, "top_k": 1, **OUTPUTS}
    asked |= {"num_return_sequences": 3, "temperature": 0.7, "prefix_allowed_tokens_fn": by_row}
    expected, found = theirs(model, **asked), model.generate(**asked)
    assert found.sequences.shape[0] == 6
    _compare(found, expected, asked, ("logits",))
    for at, scores in enumerate(found.scores):
        assert torch.equal(scores.argmax(1), found.sequences[:, 8 + at])
        assert scores.isfinite().sum() < 12  # 6, and ties


def test_several_replies_to_a_prompt_have_seeds_of_their_own(model: Any) -> None:
    asked: dict[str, Any] = {"max_new_tokens": 12, "do_sample": True, "temperature": 2.0}
    found = model.generate(PADDED["inputs"][1:], **asked, num_return_sequences=3, seed=5)
    for number, reply in enumerate(found):
        alone = model.generate(PADDED["inputs"][1:], **asked, seed=5 + number)[0]
        assert torch.equal(reply[: len(alone)], alone)
    assert len({tuple(reply.tolist()) for reply in found}) == 3


def test_without_a_dictionary_the_tokens_alone_come_back(model: Any) -> None:
    found = model.generate(PADDED["inputs"], max_new_tokens=3, do_sample=False, output_scores=True)
    assert isinstance(found, torch.Tensor)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ({"num_return_sequences": 2}, "num_return_sequences must be 1 without do_sample, not 2"),
        ({"num_return_sequences": 0}, "num_return_sequences must be an integer from 1 to 1024, no"),
        ({"logits_processor": [lambda ids, scores: scores[0]]}, "logits_processor must give score"),
        (
            {"logits_processor": [lambda ids, scores: scores - torch.inf]},
            "processors must leave at least one token",
        ),
        ({"return_dict_in_generate": True, "output_attentions": True}, "generate.. must not be gi"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(
    model: Any, arguments: dict[str, Any], line: str
) -> None:
    with pytest.raises(CassandraError, match=f"^{line}"):
        model.generate(PADDED["inputs"], max_new_tokens=5, do_sample=False, **arguments)
