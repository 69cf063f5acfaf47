"""An allocation that fails in the middle of a reply: the text so far, one line, and exit code 2."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
import torch

from cassandra_spec.commands.__main__ import main
from cassandra_spec.drafting import Backend, Replies, ReplyText, Settings
from cassandra_spec.model.pretrained import load_tokenizer
from cassandra_spec.model.speculative import CassandraForCausalLM, causal_lm
from cassandra_spec.native import engine as native_engine
from cassandra_spec.native.build import NativeError
from cassandra_spec.native.engine import Engine
from cassandra_spec.toolkit.running import LONGEST_LINE

Output = pytest.CaptureFixture[str]
ROOT = Path(__file__).resolve().parents[2]
GENERATE = ("--prompt", "word5 word9", "--max-tokens", "600")
NO_MEMORY = "casspec: error: there is not enough memory"

LIMITED = """
import resource, sys
from pathlib import Path
from cassandra_spec.drafting import ReplyText
from cassandra_spec.commands.__main__ import main

calls, room, new = 0, int(sys.argv[1]), ReplyText.new

def limited(self, **arguments):
    global calls
    calls += 1
    if calls == 5:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + room
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    return new(self, **arguments)

if room:
    ReplyText.new = limited
sys.exit(main(sys.argv[2:]))
"""
"""The command, with a limit on its memory from the fifth piece of a text on."""

SMALL = """
import resource, sys
from pathlib import Path
from cassandra_spec.native.engine import Engine

most = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() + (1 << 24)
resource.setrlimit(resource.RLIMIT_AS, (most, most))
Engine.from_packed(sys.argv[1], threads=1)
"""


def run_limited(room: int, *words: object) -> tuple[int, str, list[str]]:
    command = [sys.executable, "-c", LIMITED, f"{room}", "generate", *map(str, words)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr.splitlines()


def run_out_of_memory(*words: object) -> tuple[str, list[str]]:
    """Return outputs of a run in which the command met the limit, and no library aborted.

    Which allocation is the first that fails is a matter of chance. A library in C++ may end the
    process; that is a signal, never another status, and soon another run is met by the command.
    """
    for _ in range(6):
        code, out, err = run_limited(1 << 16, *words)
        if code >= 0:
            assert (code, err[-1]) == (2, NO_MEMORY)
            return out, err
    raise AssertionError("six of six runs ended by a signal")


@pytest.mark.slow
def test_a_real_limit_ends_a_reply_with_the_text_so_far(packed: Path) -> None:
    """The cache of keys and values grows until nothing is left for it."""
    words = (packed, *GENERATE, "--kv", "exact", "--backend", "torch")
    code, whole, _ = run_limited(0, *words)
    assert code == 0
    out, err = run_out_of_memory(*words)
    assert whole.startswith(out.rstrip("\n"))
    assert 20 < len(out) < len(whole)
    assert sum("error" in line for line in err) == 1
    out, err = run_out_of_memory(*words, "--json")
    found = json.loads(out)
    assert whole.startswith(found["texts"][0])
    assert len(found["tokens"][0]) == found["report"]["tokens"] > 3


def test_an_engine_that_does_not_fit_is_one_line(packed: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SMALL, packed], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.endswith("the native engine cannot be made: there is not enough memory")


def ask_torch() -> NoReturn:
    torch.empty(1 << 60)
    raise AssertionError


def ask_numpy() -> NoReturn:
    np.empty(1 << 50)
    raise AssertionError


def ask_native() -> NoReturn:
    raise NativeError("the native engine cannot go on: there is not enough memory")


@pytest.fixture(params=["torch", "native"])
def opened(packed: Path, request: pytest.FixtureRequest) -> Iterator[tuple[Any, Any, str]]:
    """Yield a backend, and where its rounds can be made to fail: an object and a name."""
    if request.param == "torch":
        yield CassandraForCausalLM.from_pretrained(packed), causal_lm.ModelSession, "target"
        return
    with Engine.from_packed(packed, threads=1, pin=False) as engine:
        engine.tokenizer = load_tokenizer(packed)  # type: ignore[attr-defined]
        engine.stop_tokens = frozenset  # type: ignore[attr-defined]
        yield engine, native_engine.Engine, "run_round"


def fail_at(call: int, method: Callable[..., Any], fail: Callable[[], NoReturn]) -> Any:
    calls = 0

    def failing(*args: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        return fail() if calls == call else method(*args, **options)

    return failing


def text_of(backend: Backend) -> tuple[tuple[str, ...], BaseException | None]:
    replies = Replies(backend, Settings(gamma=3, max_tokens=40))
    try:
        replies.run(["word5 word9"], lambda *_: None)
    except Exception as error:  # any may come
        return replies.generation().texts, error
    return replies.generation().texts, None


@pytest.mark.parametrize("fail", [ask_torch, ask_numpy, ask_native])
@pytest.mark.parametrize("call", [2, 5])
def test_a_backend_replies_again_after_a_failure(
    opened: tuple[Any, Any, str], call: int, fail: Callable[[], NoReturn]
) -> None:
    backend, owner, name = opened
    (whole,), none = text_of(backend)
    assert none is None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, fail_at(call, getattr(owner, name), fail))
        (text,), error = text_of(backend)
    assert isinstance(error, MemoryError | RuntimeError | NativeError)
    assert whole.startswith(text)
    assert 0 < len(text) < len(whole)
    assert text_of(backend) == ((whole,), None)


@pytest.mark.parametrize("fail", [ask_torch, ask_numpy, ask_native])
@pytest.mark.parametrize("backend", ["torch", "native"])
def test_a_failure_in_the_command(
    packed: Path,
    backend: str,
    fail: Callable[[], NoReturn],
    monkeypatch: pytest.MonkeyPatch,
    capsys: Output,
) -> None:
    where = {
        "torch": (causal_lm.ModelSession, "target"),
        "native": (native_engine.Engine, "run_round"),
    }
    owner, name = where[backend]
    monkeypatch.setattr(owner, name, fail_at(4, getattr(owner, name), fail))
    assert main(["generate", str(packed), *GENERATE, "--backend", backend]) == 2
    out, err = capsys.readouterr()
    assert out.startswith("word")
    assert out.endswith("\n")
    line = err.splitlines()[-1]
    assert line.startswith("casspec: error: ")
    assert line.endswith("there is not enough memory")
    assert len(line) <= LONGEST_LINE


def test_a_tokenizer_is_not_asked_without_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library would end the process."""

    def decode(*args: object, **options: object) -> NoReturn:
        raise AssertionError("asked")

    monkeypatch.setattr("cassandra_spec.text.reply._ROOM", 1 << 60)
    tokenizer: Any = type("Tokenizer", (), {"decode": decode})()
    with pytest.raises(MemoryError):
        ReplyText(tokenizer).new()
