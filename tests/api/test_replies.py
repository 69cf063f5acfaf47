"""An opened model: replies, streams, chats, several prompts, options and their errors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import cassandra_spec as cassandra
from cassandra_spec.api.opening import BackendName
from cassandra_spec.api.structured import JsonSchema
from cassandra_spec.commands.__main__ import main
from cassandra_spec.native.engine_binding import engine_library
from tests.model.byte_model import pack_byte_model


@pytest.fixture(scope="module")
def bytes_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pack_byte_model(tmp_path_factory.mktemp("bytes"))


PROMPTS = ["word4 word5", "word7", "word9 word3 word8"]


@pytest.fixture(scope="module", params=["torch", "native"])
def model(packed: Path, request: pytest.FixtureRequest) -> Iterator[cassandra.Model]:
    if request.param == "native":
        engine_library()
    batch = 2 if request.param == "native" else 1
    with cassandra.open(packed, backend=request.param, batch=batch, context=512) as opened:
        yield opened


def command(capsys: pytest.CaptureFixture[str], packed: Path, *flags: object) -> dict[str, object]:
    assert main(["generate", str(packed), "--json", *map(str, flags)]) == 0
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_reply_is_that_of_the_command(
    model: cassandra.Model, packed: Path, capsys: pytest.CaptureFixture[str], temperature: float
) -> None:
    reply = model.reply(PROMPTS[0], max_tokens=12, temperature=temperature, seed=5)
    sampled = ["--temperature", temperature, "--seed", 5] if temperature else []
    flags = ["--prompt", PROMPTS[0], "--max-tokens", 12, "--context", 512, *sampled]
    printed = command(capsys, packed, "--backend", model.loading.backend, *flags)
    assert [reply.text] == printed["texts"]
    assert [list(reply.tokens)] == printed["tokens"]
    assert [reply.stop_reason] == printed["stop_reasons"] == ["length"]
    assert str(reply) == reply.text
    assert reply.figures.tokens == len(reply.tokens) == 12


def test_drafts_change_no_reply(model: cassandra.Model) -> None:
    for temperature in (0, 1):
        drafted, plain = (
            model.reply(PROMPTS[1], temperature=temperature, seed=3, max_tokens=24, plain=plain)
            for plain in (False, True)
        )
        assert drafted.tokens == plain.tokens
        assert drafted.figures.drafted > plain.figures.drafted == 0


def test_replies_side_by_side_are_those_of_each_alone(model: cassandra.Model) -> None:
    together = model.replies(PROMPTS, max_tokens=9)
    assert [reply.tokens for reply in together] == [
        model.reply(prompt, max_tokens=9).tokens for prompt in PROMPTS
    ]
    assert [reply.figures.tokens for reply in together] == [9, 9, 9]


def test_a_stream_gives_the_text_in_pieces(model: cassandra.Model) -> None:
    whole = model.reply(PROMPTS[0], max_tokens=12)
    stream = model.stream(PROMPTS[0], max_tokens=12)
    with pytest.raises(cassandra.CassandraError, match="reply must be read after the first piece"):
        _ = stream.reply
    pieces = list(stream)
    assert "".join(pieces) == whole.text
    assert len(pieces) > 1
    assert all(pieces)
    assert stream.reply.tokens == whole.tokens


def test_a_stream_that_is_left_ends_the_reply(model: cassandra.Model) -> None:
    with model.stream(PROMPTS[0], max_tokens=200) as stream:
        first = next(stream)
    assert stream.reply.text.startswith(first)
    assert stream.reply.stop_reason == "interrupted"
    assert len(stream.reply.tokens) < 200
    assert list(stream) == []
    assert len(model.reply(PROMPTS[0], max_tokens=5).tokens) == 5


def test_a_model_makes_one_reply_at_a_time(model: cassandra.Model) -> None:
    whole = model.reply(PROMPTS[0], max_tokens=12).text
    stream = model.stream(PROMPTS[0], max_tokens=12)
    pieces = [next(stream)]
    for other in (model.stream(PROMPTS[1]).__next__, partial(model.reply, PROMPTS[1])):
        with pytest.raises(cassandra.CassandraError, match="after the end of the model's last"):
            other()
    assert "".join([*pieces, *stream]) == whole
    next(model.stream(PROMPTS[1]))  # and is dropped
    assert model.reply(PROMPTS[0], max_tokens=12).text == whole


def test_log_probabilities_belong_to_tokens(model: cassandra.Model) -> None:
    reply = model.reply(PROMPTS[0], max_tokens=6, logprobs=2)
    assert [score.token for score in reply.logprobs] == list(reply.tokens)
    assert all(score.top[0][0] == score.token for score in reply.logprobs)
    assert model.reply(PROMPTS[0], max_tokens=6).logprobs == ()


def test_a_stop_text_ends_a_reply(model: cassandra.Model) -> None:
    whole = model.reply(PROMPTS[0], max_tokens=12).text
    stop = whole.split()[4]
    reply = model.reply(PROMPTS[0], max_tokens=12, stop=stop)
    assert reply.stop_reason == "stop_string"
    assert reply.text == whole[: whole.index(stop)]


@pytest.mark.parametrize("backend", ["torch", "native"])
def test_a_reply_can_be_restricted(bytes_model: Path, tmp_path: Path, backend: BackendName) -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {"kind": {"enum": ["man", "dog"]}}}
    schema |= {"required": ["kind"], "additionalProperties": False}
    (tmp_path / "schema.json").write_text(json.dumps(schema))
    with cassandra.open(bytes_model, backend=backend, context=256) as model:
        forms: list[JsonSchema] = [schema, tmp_path / "schema.json"]
        one, other = (model.reply("ab", max_tokens=80, json_schema=form) for form in forms)
        assert one.text == other.text
        assert json.loads(one.text)["kind"] in ("man", "dog")
        assert model.reply("ab", regex="x(ab|cd)").text in ("xab", "xcd")
        assert model.reply("ab", grammar='start: "x" ("ab" | "cd")').text in ("xab", "xcd")


def test_a_chat_sees_its_turns(model: cassandra.Model) -> None:
    chat = model.chat(max_tokens=6, system="word4")
    first = chat.say("word5")
    with chat.stream("word9") as stream:
        second = "".join(stream)
    assert chat.messages == [
        {"role": "system", "content": "word4"},
        {"role": "user", "content": "word5"},
        {"role": "assistant", "content": first.text},
        {"role": "user", "content": "word9"},
        {"role": "assistant", "content": second},
    ]
    assert model.reply(chat.messages[:-1], max_tokens=6).text == second


def test_a_turn_has_a_reply_of_its_own(model: cassandra.Model) -> None:
    chat = model.chat(max_tokens=6)
    first = chat.say("word5")
    with chat.stream("word9") as stream:
        assert stream.text == ""
        with pytest.raises(cassandra.CassandraError, match="reply must be read after the first"):
            _ = stream.reply
        rest = "".join(stream)
        assert stream.reply.text == stream.text == rest
    assert chat.figures.tokens == len(first.tokens) + len(stream.reply.tokens)
    with pytest.raises(cassandra.CassandraError, match="max_tokens must be an integer"):
        model.chat(max_tokens="6")  # type: ignore[arg-type]


def test_a_turn_that_is_left_is_as_far_as_it_was_read(model: cassandra.Model) -> None:
    chat = model.chat(max_tokens=60)
    first = next(chat.stream("word5"))
    chat.say("word9")
    assert chat.messages[1] == {"role": "assistant", "content": first}
    unread = chat.stream("word7")
    unread.close()
    assert [message["role"] for message in chat.messages] == ["user", "assistant"] * 2


def test_the_oldest_turns_are_dropped(model: cassandra.Model) -> None:
    chat = model.chat(max_tokens=100, system="word4")
    for _ in range(6):
        chat.say("word5 " * 40)
    assert chat.dropped > 0
    assert chat.messages[0] == {"role": "system", "content": "word4"}
    assert chat.messages[1]["role"] == "user"
    before = chat.messages
    with pytest.raises(cassandra.CassandraError, match="message must be at most"):
        chat.say("word5 " * 500)
    assert chat.messages == before


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"temperature": -1}, "temperature must be"),
        ({"max_tokens": 0}, "max_tokens must be"),
        ({"regex": "a", "grammar": "start: /a/"}, "one of grammar and regex must be given"),
        ({"raw": True, "system": "word4"}, "system must be left out with raw"),
        ({"json_schema": {"type": {1}}}, "json_schema must be values of JSON"),
        ({"max_tokens": 600}, "must fit the context"),
    ],
)
def test_a_bad_option_is_one_line(
    model: cassandra.Model, options: dict[str, object], line: str
) -> None:
    with pytest.raises(cassandra.CassandraError, match=line):
        model.reply(PROMPTS[0], **options)  # type: ignore[arg-type]


def test_an_unknown_option_is_a_type_error(model: cassandra.Model) -> None:
    with pytest.raises(TypeError, match="max_token"):
        model.reply(PROMPTS[0], max_token=3)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"backend": "cuda"}, "backend must be one of auto, torch, native, not 'cuda'"),
        ({"codec": "fast"}, "codec must be one of auto, golden, rtl, not 'fast'"),
        ({"native_target": "int8"}, "native_target must be one of bf16, packed12, planes, auto"),
        ({"kv": "int8"}, "kv must be None or one of"),
        ({"gamma": -1}, "gamma must be"),
        ({"batch": 0}, "batch must be from 1"),
    ],
)
def test_a_bad_option_of_opening_is_one_line(
    packed: Path, options: dict[str, object], line: str
) -> None:
    with pytest.raises(cassandra.CassandraError, match=line):
        cassandra.open(packed, **options)  # type: ignore[arg-type]


def test_a_directory_that_is_not_packed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(cassandra.FileError, match="must be a file, and is missing"):
        cassandra.open(tmp_path)
