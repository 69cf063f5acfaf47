"""``generate()`` with the arguments of transformers, and its batches."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from transformers import GenerationConfig, TextStreamer
from transformers.generation.streamers import BaseStreamer

from cassandra_spec.drafting import Counters, Settings
from cassandra_spec.golden import CassandraError
from cassandra_spec.model.speculative import CassandraForCausalLM, KeyValueFormat
from tests.model.speculative.test_passes import tokens_of

NEW = 24
LENGTHS: list[dict[str, Any]] = [{"max_new_tokens": 6}, {"max_length": 44}, {"max_length": 60}]


def alone(lm: CassandraForCausalLM, prompt: list[int], count: int = NEW) -> list[int]:
    """Return the reply of plain decoding."""
    settings = Settings(gamma=0, max_tokens=count, stop_tokens=frozenset({0}))
    return list(lm.stream(prompt, settings, Counters()))


def batch(*prompts: list[int]) -> dict[str, Any]:
    """Return prompts padded on the left, with a mask."""
    width = max(map(len, prompts))
    ids = [[0] * (width - len(prompt)) + prompt for prompt in prompts]
    mask = [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts]
    return {"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(mask)}


PROMPTS = [tokens_of(length) for length in (5, 1, 40, 17)]


@pytest.mark.parametrize("gamma", [0, 3, 8, "adaptive"])
def test_every_reply_of_a_batch_is_the_one_alone(lm: CassandraForCausalLM, gamma: Any) -> None:
    found = lm.generate(**batch(*PROMPTS), max_new_tokens=NEW, gamma=gamma, eos_token_id=0)
    expected = [alone(lm, prompt) for prompt in PROMPTS]
    longest = max(map(len, expected))
    assert found.dtype == torch.int64
    assert torch.equal(found[:, :40], batch(*PROMPTS)["input_ids"])
    assert found[:, 40:].tolist() == [r + [0] * (longest - len(r)) for r in expected]
    assert lm.report is not None
    assert lm.report.replies == 4
    assert lm.report.tokens == sum(map(len, expected))


def test_drafts_that_stop_early_give_the_same_replies(lm: CassandraForCausalLM) -> None:
    found, drafted = [], []
    for margin in (0.0, 0.3, 1e9):
        replies = lm.generate(
            **batch(*PROMPTS), max_new_tokens=NEW, gamma=8, draft="model", min_margin=margin
        )
        assert lm.report is not None
        found.append(replies.tolist())
        drafted.append(lm.report.drafted / lm.report.rounds)
    assert found[0] == found[1] == found[2]
    assert drafted[0] > drafted[1] > drafted[2]
    assert drafted[2] <= 1  # one token is drafted before it can be judged


def test_a_stop_token_ends_its_reply_alone(lm: CassandraForCausalLM) -> None:
    replies = [alone(lm, prompt) for prompt in PROMPTS]
    stop = replies[0][9]
    found = lm.generate(
        **batch(*PROMPTS), max_new_tokens=NEW, eos_token_id=[stop, 95], pad_token_id=94
    )[:, 40:]
    for row, reply in zip(found.tolist(), replies, strict=True):
        length = next((n + 1 for n, token in enumerate(reply) if token in (stop, 95)), NEW)
        assert row[:length] == reply[:length]
        assert set(row[length:]) <= {94}
    assert 94 in found[0]


def test_it_is_what_transformers_gives(lm: CassandraForCausalLM) -> None:
    """The shape of what comes out, held to transformers itself: a tiny model in its own passes.

    Its tokens are not ours in general (docs/software/lossless.md); the sizes and the padding are.
    """
    config = copy.deepcopy(lm.network.config)
    config._attn_implementation = "eager"
    theirs = type(lm.network)(config)
    arguments: dict[str, Any] = {"do_sample": False, "pad_token_id": 7, "eos_token_id": None}
    assert lm.generate(PROMPTS[0], **arguments).shape == (1, 25)  # as transformers warns
    for lengths in LENGTHS:
        expected = theirs.generate(**batch(*PROMPTS), **arguments, **lengths)
        found = lm.generate(**batch(*PROMPTS), **arguments, **lengths)
        assert found.shape == expected.shape
        assert torch.equal(found[:, :40], expected[:, :40])


@pytest.mark.parametrize("kind", ["list", "rows", "tensor", "row"])
def test_ids_come_in_several_ways(lm: CassandraForCausalLM, kind: str) -> None:
    several: dict[str, Any] = {
        "list": PROMPTS[0],
        "rows": [PROMPTS[0]],
        "tensor": torch.tensor([PROMPTS[0]]),
        "row": torch.tensor(PROMPTS[0], dtype=torch.int32),
    }
    ids = several[kind]
    found = lm.generate(ids, max_new_tokens=5)
    assert found.tolist() == [PROMPTS[0] + alone(lm, PROMPTS[0], 5)]
    assert torch.equal(lm.generate(input_ids=ids, max_new_tokens=5), found)


def test_padding_is_seen_without_a_mask_where_it_is_no_stop_token(
    lm: CassandraForCausalLM,
) -> None:
    ids = [[7, 7, 5, 9], [3, 7, 5, 9]]
    found = lm.generate(ids, pad_token_id=7, max_new_tokens=5, eos_token_id=1)
    for row, prompt in zip(found, ([5, 9], [3, 7, 5, 9]), strict=True):
        assert row[4:].tolist() == alone(lm, prompt, 5)
    same = lm.generate(ids[:1], pad_token_id=7, max_new_tokens=5, eos_token_id=7)
    assert same[0, 4:].tolist()[0] == alone(lm, ids[0], 5)[0]


def test_a_config_gives_defaults_and_arguments_go_before_it(lm: CassandraForCausalLM) -> None:
    config = GenerationConfig(max_new_tokens=3, do_sample=False)
    assert lm.generate(PROMPTS[0], config).shape[1] == 5 + 3
    assert lm.generate(PROMPTS[0], config, max_new_tokens=4).shape[1] == 5 + 4
    assert config.max_new_tokens == 3


def test_the_models_own_config_counts(
    lm: CassandraForCausalLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = GenerationConfig(max_new_tokens=2, eos_token_id=0, cache_implementation="hybrid")
    monkeypatch.setattr(lm.network, "generation_config", own)
    assert lm.generate(PROMPTS[0]).shape[1] == 5 + 2
    assert lm.generate(PROMPTS[0], GenerationConfig(max_new_tokens=3)).shape[1] == 5 + 3


def test_a_seed_makes_samples_repeatable_and_those_of_a_batch_are_those_alone(
    lm: CassandraForCausalLM,
) -> None:
    sample: dict[str, Any] = {"do_sample": True, "top_k": 40, "max_new_tokens": 12, "seed": 3}
    found = lm.generate(**batch(*PROMPTS), **sample, eos_token_id=None, pad_token_id=7)
    for row, prompt in zip(found, PROMPTS, strict=True):
        single = lm.generate(prompt, **sample, eos_token_id=None)
        reply = single[0, len(prompt) :]
        assert torch.equal(row[40 : 40 + len(reply)], reply)
    other = lm.generate(**batch(*PROMPTS), **{**sample, "seed": 4}, pad_token_id=7)
    assert not torch.equal(found, other)


@pytest.mark.parametrize("filters", [{}, {"top_k": 9}, {"top_p": 0.9, "temperature": 0.7}])
def test_drafts_do_not_change_samples(lm: CassandraForCausalLM, filters: dict[str, Any]) -> None:
    sample: dict[str, Any] = {"do_sample": True, "max_new_tokens": 40, "seed": 3, **filters}
    sample["eos_token_id"] = None
    drafted = 0
    for prompt in PROMPTS:
        plain = lm.generate(prompt, **sample, gamma=0)
        every: tuple[dict[str, Any], ...] = (
            {},
            {"gamma": 3, "draft": "model"},
            {"gamma": 4, "draft": "hybrid"},
        )
        for drafts in every:
            assert torch.equal(lm.generate(prompt, **sample, **drafts), plain)
            assert lm.report is not None
            drafted += lm.report.drafted
    assert drafted


def test_without_a_seed_samples_follow_torch(lm: CassandraForCausalLM) -> None:
    found = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        found.append(lm.generate(PROMPTS[0], do_sample=True, max_new_tokens=12, eos_token_id=None))
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


def test_greedy_decoding_draws_nothing(lm: CassandraForCausalLM) -> None:
    state = torch.get_rng_state()
    lm.generate(PROMPTS[0], max_new_tokens=3, temperature=0.5)
    assert torch.equal(torch.get_rng_state(), state)


def has_text(lm: CassandraForCausalLM, tokens: list[int], text: str) -> bool:
    """Return whether the tokens decode to a text, with or without special tokens."""
    return any(
        text in lm.tokenizer.decode(tokens, skip_special_tokens=skip) for skip in (False, True)
    )


def test_stop_strings_end_a_reply_within_accepted_drafts(lm: CassandraForCausalLM) -> None:
    reply = list(lm.stream(PROMPTS[2], Settings(gamma=0, max_tokens=30), Counters()))
    text = [lm.tokenizer.decode([token]) for token in reply]
    for gamma in (0, 3, 8):
        for place in range(2, len(reply), 3):
            stop = " ".join(text[place - 1 : place + 1])
            expected = next(n for n in range(1, len(text) + 1) if has_text(lm, reply[:n], stop))
            found = lm.generate(
                PROMPTS[2], max_new_tokens=60, stop_strings=[stop], gamma=gamma, eos_token_id=[]
            )
            assert found[0, 40:].tolist() == reply[:expected]


class Recorder(BaseStreamer):
    def __init__(self) -> None:
        self.pieces: list[list[int]] = []
        self.ended = False

    def put(self, value: torch.Tensor) -> None:
        assert not self.ended
        self.pieces.append(value.reshape(-1).tolist())

    def end(self) -> None:
        self.ended = True


def test_a_streamer_gets_the_prompt_and_the_tokens_of_each_round(
    lm: CassandraForCausalLM,
) -> None:
    streamer = Recorder()
    found = lm.generate(PROMPTS[0], max_new_tokens=NEW, streamer=streamer)
    assert streamer.ended
    assert streamer.pieces[0] == PROMPTS[0]
    assert [token for piece in streamer.pieces for token in piece] == found[0].tolist()
    assert lm.report is not None
    assert len(streamer.pieces) == 2 + lm.report.rounds


def test_transformers_streamer_prints_the_text(
    lm: CassandraForCausalLM, capsys: pytest.CaptureFixture[str]
) -> None:
    found = lm.generate(
        PROMPTS[0], max_new_tokens=9, streamer=TextStreamer(lm.tokenizer, skip_prompt=True)
    )
    assert capsys.readouterr().out == lm.tokenizer.decode(found[0, 5:]) + "\n"


def test_keys_and_values_in_the_format_do_not_change_a_batch(
    lm: CassandraForCausalLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = lm.generate(**batch(*PROMPTS), max_new_tokens=NEW)
    monkeypatch.setattr(lm, "kv", KeyValueFormat(block=32))
    assert torch.equal(lm.generate(**batch(*PROMPTS), max_new_tokens=NEW), expected)
    assert lm.report is not None
    assert lm.report.kv.draft > 0


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"num_beams": 4}, "num_beams must be 1 (the rest is not supported), not 4"),
        ({"num_return_sequences": 2}, "num_return_sequences must be 1"),
        ({"output_hidden_states": True}, "must not be given output_hidden_states=True"),
        ({"token_type_ids": [[0]]}, "generate() must not be given token_type_ids: it is not"),
        ({"nonsense": 1}, "generate() must not be given nonsense: it is not supported"),
        ({"max_length": 5}, "max_length must be more than the 5 tokens of the input, not 5"),
        ({"max_new_tokens": 0}, "max_tokens must be an integer of at least 1, not 0"),
        ({"max_new_tokens": 900}, "prompt and reply must fit the context of 256 positions"),
        ({"do_sample": True, "temperature": 0.0}, "temperature must be above 0 with do_sample"),
        ({"do_sample": True, "top_p": 1.5}, "top_p must be above 0 and at most 1, not 1.5"),
        ({"stop_strings": ""}, "stop_strings must not be empty strings"),
        ({"stop_strings": ["a", ""]}, "stop_strings must not be empty strings"),
        ({"gamma": -1}, "gamma must be from 0 to 4096, or 'adaptive', not -1"),
        ({"num_beams": 1, "repetition_penalty": 1.0, "use_cache": False, "min_length": 0}, None),
        ({"logits_processor": None, "output_scores": False, "max_length": None}, None),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, dict) else "",
)
def test_arguments_are_taken_or_refused_by_name(
    lm: CassandraForCausalLM, arguments: dict[str, Any], text: str | None
) -> None:
    wanted = {"max_new_tokens": 2} if "max_length" not in arguments else {}
    if text is None:
        assert lm.generate(PROMPTS[0], **{**wanted, **arguments}).shape[0] == 1
        return
    with pytest.raises(CassandraError) as caught:
        lm.generate(PROMPTS[0], **{**wanted, **arguments})
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        ({}, "input_ids must be given, once"),
        ({"inputs": [1], "input_ids": [1]}, "input_ids must be given, once"),
        ({"inputs": []}, "input_ids must have at least one token in each prompt"),
        ({"inputs": [[1, 2], [3]]}, "input_ids must be whole numbers in rows of one length"),
        ({"inputs": ["word"]}, "input_ids must be whole numbers in rows of one length"),
        ({"inputs": [[0.5, 1.0]]}, "input_ids must be whole numbers [batch, width], not torch.fl"),
        ({"inputs": [[[1]]]}, "input_ids must be whole numbers [batch, width], not torch.int64 [1"),
        ({"inputs": [[1, 96]]}, "prompt must have at least one token, all from 0 to below 96"),
        ({"inputs": [[1, -1]]}, "prompt must have at least one token, all from 0 to below 96"),
        (
            {"inputs": [[1, 2]], "attention_mask": [[1, 0]]},
            "attention_mask must have its zeros at the left, and has others",
        ),
        (
            {"inputs": [[1, 2, 3]], "attention_mask": [[1, 0, 1]]},
            "attention_mask must have its zeros at the left, and has others",
        ),
        (
            {"inputs": [[1, 2]], "attention_mask": [[1, 1, 1]]},
            "attention_mask must have the shape [1, 2], not [1, 3]",
        ),
        (
            {"inputs": [[1, 2]], "attention_mask": [[0, 0]]},
            "input_ids must have at least one token in each prompt",
        ),
        (
            {"inputs": [[1, 2], [3, 4]], "streamer": Recorder()},
            "streamer must not be given with more than one prompt",
        ),
    ],
)
def test_bad_inputs_are_named(lm: CassandraForCausalLM, inputs: dict[str, Any], text: str) -> None:
    with pytest.raises(CassandraError) as caught:
        lm.generate(**inputs)
    assert str(caught.value).startswith(text)


def test_several_prompts_need_something_to_pad_with(
    lm: CassandraForCausalLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lm.network, "generation_config", GenerationConfig())
    with pytest.raises(CassandraError, match="pad_token_id must be given for several prompts"):
        lm.generate([[1, 2], [3, 4]])
    assert lm.generate([[1, 2]]).shape == (1, 22)
