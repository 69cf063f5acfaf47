"""Two ways to decode beside each other: where they differ, and what cannot be asked."""

from __future__ import annotations

import http.server
import itertools
import json
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cassandra_spec.bench.conform.local import unequal_rows
from cassandra_spec.bench.conform.replies import END, Reply
from cassandra_spec.commands.__main__ import main
from cassandra_spec.drafting import encode_prompt
from cassandra_spec.model.packing.packer import pack_model
from cassandra_spec.model.pretrained import load_tokenizer
from cassandra_spec.model.weights.sources import open_source
from cassandra_spec.native.engine import Engine
from cassandra_spec.serve.server import running
from tests.commands.status import Output, error_of
from tests.model.speculative.conftest import RECIPE
from tests.model.tiny import write_model
from tests.serve.test_api import opened

WORDS = ("word5 word9 word11", "word3 word4 word5 word3 word4", "word7")
Choice = Callable[[dict[str, Any]], dict[str, Any]]


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("conform")
    entries: dict[str, Any] = {"max_position_embeddings": 128}
    entries |= dict.fromkeys(("eos_token_id", "bos_token_id"))
    source = open_source(write_model(folder / "plain", **entries))
    pack_model(source, folder / "packed", RECIPE, jobs=1)
    return folder / "packed"


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    (tmp_path / "prompts").write_text("\n".join(WORDS))
    files = ["--prompts", str(tmp_path / "prompts"), "--json", str(tmp_path / "report")]
    return ["conform", "--max-tokens", "12", "--quiet", *files]


def report(command: list[str], *ways: str) -> dict[str, Any]:
    """Return the report of ``casspec conform``, whose exit code must say the same."""
    code = main([*command, *ways])
    body: dict[str, Any] = json.loads(Path(command[command.index("--json") + 1]).read_text())
    assert code == bool(body["differences"] or any(rows["unequal"] for rows in body["rows"]))
    return body


class Fake(http.server.ThreadingHTTPServer):
    """A server that gives a choice for each request, or anything else."""

    def __init__(self, choice: Choice) -> None:
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str | None] = []

        class Handler(http.server.BaseHTTPRequestHandler):
            server: Fake

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self.server.asked.append(body)
                self.server.keys.append(self.headers["Authorization"])
                found = choice(body)
                self._send(found.pop("status", 200), {"choices": [found]} if found else [])

            def do_GET(self) -> None:
                self._send(200, {"data": [{"id": "fake"}]})

            def _send(self, status: int, body: Any) -> None:
                self.send_response(status)
                self.end_headers()
                self.wfile.write(json.dumps(body).encode())

            def log_message(self, *_: object) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)


@pytest.fixture
def serve() -> Iterator[Callable[[Choice], tuple[Fake, str]]]:
    made: list[Fake] = []

    def start(choice: Choice) -> tuple[Fake, str]:
        made.append(Fake(choice))
        threading.Thread(target=made[-1].serve_forever, args=(0.01,), daemon=True).start()
        return made[-1], f"http://127.0.0.1:{made[-1].server_port}"

    yield start
    for server in made:
        server.shutdown()
        server.server_close()


Serve = Callable[[Choice], tuple[Fake, str]]


def chat(pieces: list[str], margin: float = 0.5) -> dict[str, Any]:
    """Return a choice with log-probabilities."""
    content = [
        {"token": p, "top_logprobs": [{"token": p, "logprob": -0.25}, {"logprob": -0.25 - margin}]}
        for p in pieces
    ]
    return {"message": {"content": "".join(pieces)}, "logprobs": {"content": content}}


def test_drafts_of_one_backend_conform(packed: Path, command: list[str], capsys: Output) -> None:
    ways = (f"{packed} plain threads=1", f"{packed} draft=hybrid gamma=4 threads=1")
    found = report(command, *ways)
    assert (found["prompts"], found["identical"], found["differences"]) == (3, 3, [])
    assert [(rows["prompts"], rows["unequal"]) for rows in found["rows"]] == [(3, {})] * 2
    assert "the same logits, bit for bit, on 3 of 3 prompts" in capsys.readouterr().out


def test_sampled_replies_of_a_seed_conform(packed: Path, command: list[str]) -> None:
    ways = [f"{packed} temperature=0.9 seed={seed}" for seed in (4, 5)]
    assert not report(command, ways[0], f"{ways[0]} plain")["differences"]
    assert not report(command, ways[0], f"{ways[0]} backend=torch")["differences"]
    assert report(command, *ways)["differences"]


def test_the_rows_of_torch_are_checked(packed: Path, command: list[str]) -> None:
    found = report(
        [*command, "--count", "1"], f"{packed} backend=torch", f"{packed} plain threads=1"
    )
    assert [(rows["prompts"], rows["unequal"]) for rows in found["rows"]] == [(1, {})] * 2


def test_a_kernel_whose_rows_depend_on_each_other_is_found() -> None:
    def run(tokens: Any, position: int, last: int) -> Any:
        wrong = 1e-6 if len(tokens) in (3, 6) else 0.0
        return np.array([[token + wrong, 1.0] for token in tokens][-last:], np.float32)

    assert unequal_rows(run, [1, 2, 3, 4, 5, 6, 7, 8]) == [2, 5]
    assert unequal_rows(run, [1]) == []


def test_the_first_different_token_is_found_with_its_margin(
    packed: Path, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = Engine.rounds

    def lossy(engine: Engine, prompt: Any, settings: Any, counters: Any, **ends: Any) -> Any:
        """Yield a reply whose seventh token is another one if it was drafted."""
        tokens = list(itertools.chain(*rounds(engine, prompt, settings, counters, **ends)))
        if settings.gamma:
            tokens[6] = 50 if tokens[6] != 50 else 51
        yield tokens

    monkeypatch.setattr(Engine, "rounds", lossy)
    ways = (f"{packed} plain threads=1", f"{packed} gamma=3 threads=1")
    found = report(command, *ways)
    assert (found["prompts"], found["identical"]) == (3, 0)
    with Engine.from_packed(packed, threads=1) as engine:
        for place, (each, words) in enumerate(zip(found["differences"], WORDS, strict=True)):
            assert (each["prompt"], each["tokens"]) == (place + 1, [6, 6])
            assert each["pieces"][1].strip() in ("word48", "word49")
            assert each["pieces"][0] != each["pieces"][1]
            before = encode_prompt(load_tokenizer(packed), words)
            for _ in range(6):
                before.append(int(engine.forward(before)[-1].argmax()))
            second, best = np.sort(engine.forward(before)[-1])[-2:]
            assert each["margins"] == [pytest.approx(best - second)] * 2


def test_a_lossy_server_is_found_where_it_differs(command: list[str], serve: Serve) -> None:
    exact = [" a", " b", " c", " d", " e"]

    def lossy(body: dict[str, Any]) -> dict[str, Any]:
        wrong = body["messages"][0]["content"] == WORDS[1]
        return chat([" a", " b", " x", " d"] if wrong else exact, 0.125)

    server, address = serve(lambda body: chat(exact))
    other = serve(lossy)[1]
    found = report(command, f"{address}/v1", f"{other}/v1 model=mine")
    assert (found["prompts"], found["identical"], found["rows"]) == (3, 2, [])
    [difference] = found["differences"]
    assert difference == {
        "prompt": 2,
        "character": 5,
        "tokens": [2, 2],
        "pieces": [" c", " x"],
        "margins": [0.5, 0.125],
    }
    assert [body["model"] for body in server.asked] == ["fake"] * 3
    assert all((body["temperature"], body["max_tokens"]) == (0, 12) for body in server.asked)


def test_a_server_without_log_probabilities_is_compared_by_text(
    command: list[str], serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    def plain(body: dict[str, Any]) -> dict[str, Any]:
        return {"status": 400, "no": 1} if "logprobs" in body else {"text": "one and two"}

    monkeypatch.setenv("KEY_OF_TEST", "secret")
    server, address = serve(plain)
    other = serve(lambda body: {"text": "one and"})[1]
    found = report([*command, "--raw", "--count", "2"], f"{address} key=KEY_OF_TEST", other)
    each = found["differences"][1]
    assert (each["prompt"], each["character"], each["tokens"]) == (2, 7, [None, None])
    assert (each["pieces"], each["margins"]) == ([" two", END], [None, None])
    assert [body["prompt"] for body in server.asked] == [WORDS[0], WORDS[0], WORDS[1]]
    assert set(server.keys) == {"Bearer secret"}


def test_our_own_server_conforms(packed: Path, command: list[str]) -> None:
    with opened(packed, slots=2, waiting=4, context=128) as server, running(server) as address:
        found = report(command, f"{packed} plain threads=1", f"{address}/v1")
    assert (found["prompts"], found["identical"]) == (3, 3)
    assert [rows["way"] for rows in found["rows"]] == [f"{packed} plain threads=1"]


def test_a_gguf_file_is_decoded_by_its_worker(
    packed: Path, command: list[str], tmp_path: Path
) -> None:
    python = tmp_path / "python"
    answer = 'print(json.dumps({"tokens": [5, 6]}), flush=True)'
    code = f"import json, sys\nprint('{{}}', flush=True)\nfor line in sys.stdin:\n    {answer}\n"
    python.write_text(f"#!{sys.executable}\n{code}")
    python.chmod(0o755)
    (tmp_path / "model.gguf").touch()
    file = f"{tmp_path}/model.gguf python={python}"
    found = report(command, file, f"{packed} plain threads=1")
    assert (found["prompts"], found["identical"]) == (3, 0)
    assert found["differences"][0]["margins"][0] is None


def test_it_goes_on_from_a_journal(command: list[str], serve: Serve, tmp_path: Path) -> None:
    broken = [False, True, False]

    def choice(body: dict[str, Any]) -> dict[str, Any]:
        return {} if broken and broken.pop(0) else chat([" a"])

    server, address = serve(choice)
    other = serve(lambda body: chat([" a"]))[1]
    command += ["--journal", str(tmp_path / "journal")]
    assert main([*command, address, other]) == 2
    assert report(command, address, other)["identical"] == 3
    assert len(server.asked) == 2 + 2  # the first reply is not asked for again


@pytest.mark.parametrize(
    ("ways", "message"),
    [
        (("PACKED wrong=1", "PACKED"), "unrecognized arguments: --wrong=1"),
        (("PACKED draft=none gamma=3", "PACKED"), "--gamma must not be given with --draft none"),
        (("PACKED 'plain", "PACKED"), "a way must be a word with options, not"),
        (("", "PACKED"), "a way must be a word with options, not ''"),
        (("nowhere", "PACKED"), "nowhere"),
        (("ftp://host", "PACKED"), "address must be http://HOST:PORT/v1, not 'ftp://host'"),
        (("http://127.0.0.1:9 key=NO_SUCH", "PACKED"), "NO_SUCH is not set"),
        (
            ("http://127.0.0.1:9 model=m", "PACKED"),
            ":9 must be a server that answers",
        ),
        (("http://127.0.0.1:x", "PACKED"), "nonnumeric port"),
        (
            ("GARBAGE", "GARBAGE"),
            "/chat/completions as OpenAI's interface does, not []",
        ),
        (("a.gguf python=p", "b.gguf python=p"), "a.gguf must be beside a packed model"),
    ],
)
def test_bad_input_is_one_line(
    packed: Path,
    command: list[str],
    serve: Serve,
    ways: tuple[str, str],
    message: str,
    capsys: Output,
) -> None:
    names = {"PACKED": f"{packed}", "GARBAGE": serve(lambda body: {})[1]}
    texts = []
    for text in ways:
        for name, value in names.items():
            text = text.replace(name, value)
        texts.append(text)
    assert message in error_of(capsys, *command, *texts)
    assert not Path(command[-1]).exists()


def test_characters_of_a_reply_belong_to_tokens() -> None:
    reply = Reply(text="ab cd", ends=(2, 2, 5))
    assert [reply.place_of(n) for n in (0, 1, 2, 4, 5)] == [0, 0, 2, 2, 3]
    assert [reply.piece(n, 0) for n in range(4)] == ["ab", END, " cd", END]
