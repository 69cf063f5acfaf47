"""The server, asked by the real client of the API, and by clients that misbehave."""

from __future__ import annotations

import contextlib
import functools
import json
import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import openai
import pytest
from prometheus_client.parser import text_string_to_metric_families

from cassandra_spec.drafting import Sampling, Settings, encode_prompt
from cassandra_spec.model.pretrained import load_tokenizer
from cassandra_spec.serve.server import running
from tests.serve.conftest import BODY, CONTEXT, MOST, SLOTS, Alone, opened, requests

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
WORDS = "word5 word9 word11"
MESSAGES: list[Any] = [{"role": "user", "content": WORDS}]


@pytest.fixture(scope="module")
def lines() -> list[str]:
    """Return the lines of the server's log."""
    return []


@pytest.fixture(scope="module")
def address(packed: Path, lines: list[str]) -> Iterator[str]:
    with (
        opened(packed, slots=SLOTS, waiting=16, log=lines.append) as server,
        running(server) as found,
    ):
        yield found


@pytest.fixture
def client(address: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0) as made:
        yield made


@pytest.fixture(scope="module")
def prompt(packed: Path) -> list[int]:
    """Return the tokens of MESSAGES."""
    return encode_prompt(load_tokenizer(packed), WORDS)


def of(tokens: int, **fields: Any) -> Settings:
    return Settings(gamma=0, max_tokens=tokens, **fields)


# --- replies -------------------------------------------------------------------------------------


def test_a_chat(client: openai.OpenAI, alone: Alone, prompt: list[int]) -> None:
    for fields in ({"max_tokens": 30}, {"max_completion_tokens": 30, "max_tokens": 9}):
        reply = client.chat.completions.create(model="any name", messages=MESSAGES, **fields)  # type: ignore[call-overload]
        [choice] = reply.choices
        assert (choice.message.content, 30) == alone(prompt, of(30))
        assert (choice.message.role, choice.finish_reason) == ("assistant", "length")
        usage = reply.usage
        assert (usage.prompt_tokens, usage.completion_tokens) == (len(prompt), 30)
        assert usage.total_tokens == len(prompt) + 30
        assert (reply.model, reply.object) == ("tiny", "chat.completion")


def test_a_stream_has_the_same_text(client: openai.OpenAI, alone: Alone, prompt: list[int]) -> None:
    options: Any = {"include_usage": True}
    chunks = list(
        client.chat.completions.create(
            model="tiny", messages=MESSAGES, max_tokens=60, stream=True, stream_options=options
        )
    )
    *pieces, last, usage = chunks
    texts = [piece.choices[0].delta.content or "" for piece in pieces]
    assert ("".join(texts), 60) == alone(prompt, of(60))
    assert len(pieces) > 10
    assert pieces[0].choices[0].delta.role == "assistant"
    assert (last.choices[0].finish_reason, usage.choices) == ("length", [])
    assert usage.usage.completion_tokens == 60  # type: ignore[union-attr]
    assert len({chunk.id for chunk in chunks}) == 1


def test_a_completion_of_a_text_or_of_tokens(client: openai.OpenAI, alone: Alone) -> None:
    tokens = [7, 9, 13, 2]
    words = " ".join(f"word{token - 2}" for token in tokens)
    expected = alone(tokens, of(16))[0]
    for prompt in (words, [words], tokens, [tokens]):
        reply = client.completions.create(model="tiny", prompt=prompt)
        assert reply.choices[0].text == expected
        assert reply.usage.completion_tokens == 16  # type: ignore[union-attr]
    stream = client.completions.create(model="tiny", prompt=tokens, stream=True)
    *pieces, last = list(stream)
    assert "".join(each.choices[0].text for each in [*pieces, last]) == expected
    assert last.choices[0].finish_reason == "length"


def test_stop_strings_are_never_seen(
    client: openai.OpenAI, alone: Alone, prompt: list[int]
) -> None:
    text, _ = alone(prompt, of(40))
    words = text.split()
    across = f"{words[9][2:]} {words[10][:4]}"  # in two tokens
    for stop in (across, ["no such", words[12], across], [words[3], "x", "y", "z"]):
        stops = (stop,) if isinstance(stop, str) else tuple(stop)
        expected, tokens = alone(prompt, of(40, stop_strings=stops))
        assert 0 < tokens < 40
        ask: Any = {"model": "tiny", "messages": MESSAGES, "max_tokens": 40, "stop": stop}
        reply = client.chat.completions.create(**ask)
        assert reply.choices[0].message.content == expected
        assert reply.choices[0].finish_reason == "stop"
        assert reply.usage.completion_tokens == tokens
        pieces = [each.choices[0] for each in client.chat.completions.create(**ask, stream=True)]
        assert "".join(piece.delta.content or "" for piece in pieces) == expected
        assert pieces[-1].finish_reason == "stop"


def test_a_seed_makes_samples_repeatable(
    client: openai.OpenAI, alone: Alone, prompt: list[int]
) -> None:
    def ask(seed: int) -> str:
        reply = client.chat.completions.create(
            model="tiny", messages=MESSAGES, max_tokens=20, temperature=1, top_p=0.9, seed=seed
        )
        return reply.choices[0].message.content or ""

    sampling = Sampling(temperature=1.0, top_p=0.9)
    assert ask(3) == ask(3) == alone(prompt, of(20, sampling=sampling, seed=3))[0]
    assert ask(3) != ask(4)
    assert ask(-2) == alone(prompt, of(20, sampling=sampling, seed=2**64 - 2))[0]
    assert len({ask(-1) for _ in range(4)}) > 1  # another seed each time, as elsewhere


def test_sixteen_clients_at_once_get_what_each_gets_alone(
    client: openai.OpenAI, alone: Alone
) -> None:
    asked = requests(16)

    def ask(request: tuple[list[int], Settings]) -> tuple[str, int]:
        prompt, settings = request
        reply = client.completions.create(
            model="tiny",
            prompt=prompt,
            max_tokens=settings.max_tokens,
            stop=list(settings.stop_strings),
            temperature=settings.sampling.temperature,
            top_p=settings.sampling.top_p,
            seed=settings.seed,
        )
        return reply.choices[0].text, reply.usage.completion_tokens  # type: ignore[union-attr]

    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(ask, asked)) == [alone(*each) for each in asked]


def test_messages_as_clients_send_them(client: openai.OpenAI) -> None:
    history: list[Any] = [
        {"role": "developer", "content": "word3"},
        {"role": "user", "content": [{"type": "text", "text": "word5 "}]},
    ]
    ask: Any = {"model": "tiny", "max_tokens": 3, "n": 1, "user": "someone", "logprobs": False}
    reply = client.chat.completions.create(messages=history, **ask)
    history += [reply.choices[0].message.model_dump(), MESSAGES[0]]
    reply = client.chat.completions.create(messages=history, **ask)
    assert reply.usage.prompt_tokens > 6


def test_the_beginning_of_a_prompt_is_read_once(client: openai.OpenAI, alone: Alone) -> None:
    first = [(at * at) % 89 + 3 for at in range(40)]
    cached = []
    for prompt in (first, first, [*first[:30], 2, 3], [2, 3]):
        reply = client.completions.create(model="tiny", prompt=prompt, max_tokens=9)
        assert (reply.choices[0].text, 9) == alone(prompt, of(9))
        usage: Any = reply.usage
        cached.append(usage.prompt_tokens_details.cached_tokens)
    assert cached[1:3] == [39, 30]
    assert cached[3] < 2


def test_models(client: openai.OpenAI) -> None:
    assert [each.id for each in client.models.list()] == ["tiny"]
    model: Any = client.models.retrieve("tiny")
    assert (model.owned_by, model.max_model_len, model.meta["n_ctx"]) == (
        "cassandra",
        CONTEXT,
        CONTEXT,
    )
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("other")


# --- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"n": 0}, "n", "invalid_value"),
        ({"n": 25}, "n", "invalid_value"),
        ({"best_of": 2}, "best_of", "unsupported_parameter"),
        ({"logprobs": 2}, "logprobs", "invalid_value"),
        ({"top_logprobs": 2}, "top_logprobs", "invalid_value"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs", "invalid_value"),
        ({"echo": True}, "echo", "unsupported_parameter"),
        ({"tools": [{"type": "function"}]}, "tools", "missing_parameter"),
        ({"logit_bias": {"3": 101}}, "logit_bias", "invalid_value"),
        ({"logit_bias": {"x": 1}}, "logit_bias", "invalid_value"),
        ({"logit_bias": {"96": 1}}, "logit_bias", "invalid_value"),
        ({"presence_penalty": 2.5}, "presence_penalty", "invalid_value"),
        ({"frequency_penalty": "1"}, "frequency_penalty", "invalid_value"),
        ({"repetition_penalty": 0}, "repetition_penalty", "invalid_value"),
        ({"min_p": 1.5}, "min_p", "invalid_value"),
        ({"continue_final_message": True}, "continue_final_message", "invalid_value"),
        (
            {
                "messages": [{"role": "assistant", "content": "word3"}],
                "continue_final_message": True,
                "add_generation_prompt": True,
            },
            "add_generation_prompt",
            "invalid_value",
        ),
        ({"response_format": {"type": "json_object"}}, "response_format", "invalid_value"),
        ({"reasoning_effort": 3}, "reasoning_effort", "invalid_value"),
        ({"top_k": -2}, "top_k", "invalid_value"),
        ({"repeat_penalty": 0}, "repeat_penalty", "invalid_value"),
        ({"dry_multiplier": 0.5}, "dry_multiplier", "unsupported_parameter"),
        ({"use_beam_search": True}, "use_beam_search", "unsupported_parameter"),
        ({"typical_p": 0.5, "temperature": 1}, "typical_p", "unsupported_parameter"),
        ({"samplers": ["top_k"], "temperature": 1}, "samplers", "unsupported_parameter"),
        ({"stop_token_ids": [96]}, "stop_token_ids", "invalid_value"),
        ({"min_tokens": 9, "max_tokens": 8}, "min_tokens", "invalid_value"),
        ({"ignore_eos": True, "stop": "x"}, "ignore_eos", "invalid_value"),
        ({"chat_template_kwargs": {"tokenize": 1}}, "chat_template_kwargs", "invalid_value"),
        ({"guided_regex": 3}, "guided_regex", "invalid_value"),
        ({"guided_choice": ["a"], "json_schema": {}}, "guided_choice", "invalid_value"),
        ({"beams": 3}, "beams", "unknown_parameter"),
        ({"max_tokens": 0}, "max_tokens", "invalid_value"),
        ({"max_tokens": "3"}, "max_tokens", "invalid_value"),
        ({"max_tokens": True}, "max_tokens", "invalid_value"),
        ({"temperature": 2.5}, "temperature", "invalid_value"),
        ({"temperature": -1}, "temperature", "invalid_value"),
        ({"top_p": 0}, "top_p", "invalid_value"),
        ({"stop": ["a"] * 65}, "stop", "invalid_value"),
        ({"stop": [3]}, "stop", "invalid_value"),
        ({"seed": 1.5}, "seed", "invalid_value"),
        ({"seed": 2**63}, "seed", "invalid_value"),
        ({"messages": []}, "messages", "invalid_value"),
        ({"messages": "hello"}, "messages", "invalid_value"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "messages", "invalid_value"),
        ({"messages": [{"role": "user"}]}, "messages", "invalid_value"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            "messages",
            "invalid_value",
        ),
        ({"messages": None}, "messages", "missing_parameter"),
        ({"stream_options": {"include_usage": 1}}, "stream_options", "invalid_value"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(
    client: openai.OpenAI, fields: dict[str, Any], param: str, code: str
) -> None:
    body = {"model": "tiny", "messages": MESSAGES, **fields}
    with pytest.raises(openai.BadRequestError) as error:
        client.post(CHAT.removeprefix("/v1"), body=body, cast_to=object)
    assert (error.value.param, error.value.code) == (param, code)
    assert error.value.type == "invalid_request_error"
    assert param in error.value.message


def test_prompts_that_cannot_be_replied_to(client: openai.OpenAI) -> None:
    prompt: Any
    for prompt, tokens, code in (
        ([5] * CONTEXT, 1, "context_length_exceeded"),
        ([5] * CONTEXT, None, "context_length_exceeded"),
        ([96], 1, "invalid_value"),
        ([-1], 1, "invalid_value"),
        ("", 1, "invalid_value"),
        ([], 1, "invalid_value"),
        (["word1", [5]] * 99, 1, "invalid_value"),
        (["word1", 5], 1, "invalid_value"),
        ([[5], []], 1, "invalid_value"),
        ([[5], [True]], 1, "invalid_value"),
        ("word1", 0, "invalid_value"),
    ):
        extra: Any = {} if tokens is None else {"max_tokens": tokens}
        with pytest.raises(openai.BadRequestError) as error:
            client.completions.create(model="tiny", prompt=prompt, **extra)
        assert error.value.code == code
    with pytest.raises(openai.NotFoundError) as missing:
        client.models.retrieve("other")
    assert (missing.value.code, missing.value.param) == ("model_not_found", "model")


def test_a_key_and_a_full_queue(packed: Path) -> None:
    limits: Any = {"slots": 1, "waiting": 0, "api_key": "secret"}
    with opened(packed, **limits) as server, running(server) as address:
        for key in ("", "wrong", "secre", "secret "):
            status, body, headers = ask_plainly(
                address, "GET", "/v1/models", headers={"Authorization": f"Bearer {key}"}
            )
            if key != "secret ":  # spaces around a header do not belong to it
                assert (status, body["error"]["code"]) == (401, "invalid_api_key")
                assert headers["www-authenticate"] == "Bearer"
        assert ask_plainly(address, "GET", "/health")[0] == 200
        with openai.OpenAI(base_url=f"{address}/v1", api_key="secret", max_retries=0) as client:
            stream = client.completions.create(
                model="tiny", prompt="word1", max_tokens=MOST, stream=True
            )
            next(iter(stream))
            with pytest.raises(openai.InternalServerError) as error:
                client.completions.create(model="tiny", prompt="word1")
            assert (error.value.status_code, error.value.code) == (503, "server_overloaded")
            assert error.value.response.headers["retry-after"] == "1"
            stream.close()
        wait_until(address, "num_requests_running", 0)


def test_a_second_signal_ends_everything_at_once(packed: Path) -> None:
    with opened(packed, slots=1, waiting=1) as server:
        asked = functools.partial(raw_stream, tokens=MOST)
        with running(server) as address, asked(address) as connection, asked(address):
            connection.recv(1)
            wait_until(address, "num_requests_waiting", 1)
            server.handle_exit(signal.SIGTERM, None)
            server.handle_exit(signal.SIGINT, None)
            with contextlib.suppress(ConnectionError):
                assert b"[DONE]" not in read_all(connection)
        assert server.force_exit


# --- clients that misbehave ----------------------------------------------------------------------


def ask_plainly(
    address: str, method: str, path: str, data: Any = None, headers: Any = None
) -> tuple[int, Any, dict[str, str]]:
    """Return status, JSON and headers of an answer."""
    connection = HTTPConnection(urlsplit(address).netloc, timeout=120)
    with contextlib.closing(connection):
        connection.request(method, path, data, headers or {"Content-Type": "application/json"})
        answer = connection.getresponse()
        body = answer.read()
        found = {name.lower(): value for name, value in answer.getheaders()}
        return answer.status, json.loads(body) if b"{" in body[:1] else body.decode(), found


def figures(address: str) -> dict[str, float]:
    """Return the figures of /metrics, by name and labels."""
    text = ask_plainly(address, "GET", "/metrics")[1]
    return {
        "/".join([sample.name, *sample.labels.values()]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def wait_until(address: str, name: str, value: float) -> dict[str, float]:
    end = time.monotonic() + 300
    while (found := figures(address))[name] != value:
        assert time.monotonic() < end, found
        time.sleep(0.02)
    return found


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"model"',
        b"\xff\xfe",
        b'{"model": "\\ud800"}',
        b'{"model": NaN}',
        b'{"max_tokens": ' + b"9" * 5000 + b"}",
        b"[" * 50_000,
        b'{"model": "tiny", "messages": [{"role": "user", "content": "\\ud800"}]}',
        b'{"model": "tiny", "messages": [[]]}',
        b'{"model": ["tiny"], "prompt": {}}',
        b"\x00" * 1000,
    ],
)
def test_garbage_is_refused(address: str, data: bytes) -> None:
    for path in (CHAT, TEXT):
        status, body, _ = ask_plainly(address, "POST", path, data)
        assert status == 400
        assert set(body["error"]) == {"message", "type", "param", "code"}


def test_other_refusals(address: str) -> None:
    ask = {"Content-Type": "application/json"}
    large = b'{"model": "' + b"x" * BODY + b'"}'
    for method, path, data, headers, status in (
        ("POST", CHAT, large, ask, 413),
        ("POST", CHAT, b"{}", {"Content-Type": "text/plain"}, 415),
        ("POST", CHAT, b"{}", {}, 415),
        ("GET", CHAT, None, {}, 405),
        ("GET", "/v1/nothing", None, {}, 404),
        ("GET", "/docs", None, {}, 404),
    ):
        found, body, _ = ask_plainly(address, method, path, data, headers or {"X": "y"})
        assert (found, set(body)) == (status, {"error"})


def ask_host(address: str, host: str, **headers: str) -> tuple[int, dict[str, str]]:
    """Ask for the models under the name of some host."""
    connection = HTTPConnection(urlsplit(address).netloc, timeout=120)
    connection.putrequest("GET", "/v1/models", skip_host=True)
    for name, value in {"Host": host, **headers}.items():
        connection.putheader(name, value)
    connection.endheaders()
    reply = connection.getresponse()
    found = {name.lower(): value for name, value in reply.getheaders()}
    connection.close()
    return reply.status, found


def test_only_named_hosts_and_origins_are_answered(address: str, packed: Path) -> None:
    origin = "https://page.example.org"
    for host in ("localhost", "LOCALHOST:8000", "127.0.0.1", "[::1]:8000"):
        status, headers = ask_host(address, host, Origin=origin)
        assert status == 200
        assert "access-control-allow-origin" not in headers
    for host in ("example.org", "127.0.0.1.example.org", "localhost.example.org", "", "a b"):
        assert ask_host(address, host)[0] == 400
    named: Any = {"hosts": ("api.example.org", "*.lan"), "origins": (origin,)}
    with opened(packed, slots=1, waiting=1, **named) as server, running(server) as other:
        for host in ("api.example.org:80", "box.lan", "localhost"):
            status, headers = ask_host(other, host, Origin=origin)
            assert (status, headers["access-control-allow-origin"]) == (200, origin)
        for host in ("example.org", "lan", "box.lan.org"):
            assert ask_host(other, host)[0] == 400
        _, headers = ask_host(other, "localhost", Origin="https://other.example.org")
        assert "access-control-allow-origin" not in headers


@contextlib.contextmanager
def raw_stream(address: str, tokens: int, *, stream: bool = True) -> Iterator[socket.socket]:
    """Yield a connection on which a reply was asked for."""
    ask = {"model": "tiny", "prompt": WORDS, "max_tokens": tokens, "stream": stream}
    data = json.dumps(ask).encode()
    where = urlsplit(address)
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(60)
        connection.connect((where.hostname, where.port))
        head = f"POST {TEXT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        head += f"Content-Length: {len(data)}\r\nConnection: close\r\n\r\n"
        connection.sendall(head.encode() + data)
        yield connection


def read_all(connection: socket.socket) -> bytes:
    data = bytearray()
    while piece := connection.recv(1 << 16):
        data += piece
    return bytes(data)


def test_a_slow_reader_holds_up_nobody_and_gets_everything(
    address: str, client: openai.OpenAI, alone: Alone, packed: Path
) -> None:
    tokens = load_tokenizer(packed)(WORDS).input_ids
    with raw_stream(address, 1500) as connection:
        for _ in range(3):
            reply = client.completions.create(model="tiny", prompt=tokens, max_tokens=20)
            assert (reply.choices[0].text, 20) == alone(tokens, of(20))
        wait_until(address, "num_requests_running", 0)  # decoded, and not read
        data = read_all(connection).decode()
    events = [line[6:] for line in data.splitlines() if line.startswith("data: ")]
    assert events.pop() == "[DONE]"
    text = "".join(json.loads(event)["choices"][0]["text"] for event in events)
    assert (text, 1500) == alone(tokens, of(1500))


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_vanishes_is_cancelled(address: str, lines: list[str], stream: bool) -> None:
    before = figures(address)
    lines.clear()
    with raw_stream(address, MOST, stream=stream) as connection:
        wait_until(address, "num_requests_running", 1)
        if stream:
            connection.recv(100)
    after = wait_until(address, "num_requests_running", 0)
    assert after["request_success_total/abort"] == before["request_success_total/abort"] + 1
    assert after["generation_tokens_total"] < before["generation_tokens_total"] + MOST
    while not lines:
        time.sleep(0.01)
    assert lines[0].endswith("; the client has disconnected")


def test_lines_that_are_no_http(address: str) -> None:
    where = urlsplit(address)
    for data in (b"\x16\x03\x01" * 100, b"GET\r\n\r\n", b"POST / HTTP/9.9\r\n\r\n", b"\r\n" * 9):
        with socket.create_connection((where.hostname, where.port), timeout=120) as connection:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            read_all(connection)
    assert ask_plainly(address, "GET", "/health")[0] == 200


def test_sampled_replies_side_by_side_are_drafted(
    address: str, client: openai.OpenAI, alone: Alone
) -> None:
    before = figures(address)
    prompts = [[5, 9, 23, 9, 23, 9], [7, 8, 7, 8, 7, 8]]
    ask: Any = {"model": "tiny", "prompt": prompts, "max_tokens": 100, "temperature": 0.5}
    reply = client.completions.create(**ask, seed=4)
    sampling = Sampling(temperature=0.5)
    expected = [alone(prompt, of(100, sampling=sampling, seed=4))[0] for prompt in prompts]
    assert [each.text for each in reply.choices] == expected
    found = {name: value - before.get(name, 0.0) for name, value in figures(address).items()}
    names = ("draft_tokens", "accepted_tokens", "rows")
    sources = {
        name: [value for each, value in found.items() if each.startswith(f"{family}/")]
        for name in names
        for family in (f"spec_decode_num_{name}_per_source_total",)
    }
    assert sum(sources["accepted_tokens"]) == found["spec_decode_num_accepted_tokens_total"] > 0
    drafted = found["spec_decode_num_draft_tokens_total"]
    assert sum(sources["draft_tokens"]) == drafted > 0
    rounds = found["spec_decode_num_rows_per_source_total/target"]
    assert sum(sources["rows"]) == drafted + rounds
    assert found["spec_decode_num_rows_per_source_total/model"] > 0
    assert found["generation_tokens_total"] - 2 <= rounds + sum(sources["accepted_tokens"])


def test_figures_have_the_names_of_vllm(address: str, client: openai.OpenAI) -> None:
    before = figures(address)
    client.completions.create(model="tiny", prompt="word1 word2 word1 word2", max_tokens=200)
    found = {name: value - before.get(name, 0.0) for name, value in figures(address).items()}
    assert found["generation_tokens_total"] == 200
    assert found["prompt_tokens_total"] == 4
    assert found["request_success_total/length"] == 1
    accepted = found["spec_decode_num_accepted_tokens_total"]
    assert 0 < accepted <= found["spec_decode_num_draft_tokens_total"]
    assert found["spec_decode_num_drafts_total"] > 0
    name = "spec_decode_num_accepted_tokens_per_pos_total"
    places = [value for place, value in found.items() if place.startswith(name)]
    assert sum(places) == accepted
    assert f"{name}/0" in found
    now = figures(address)
    accepted = now["spec_decode_num_accepted_tokens_total"]
    drafted = now["spec_decode_num_draft_tokens_total"]
    assert now["spec_decode_draft_acceptance_rate"] == accepted / drafted
    assert 1 < now["spec_decode_mean_acceptance_length"] <= 1 + drafted
    assert {"num_requests_running", "num_requests_waiting"} <= set(found)
