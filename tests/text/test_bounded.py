"""Chat templates that loop, make no end of text, fail, or take memory."""

from __future__ import annotations

import gc
import multiprocessing
import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from transformers.utils.chat_template_utils import _compile_jinja_template

from cassandra_spec.golden import CassandraError
from cassandra_spec.text import bounded, reply
from cassandra_spec.text.bounded import TextChild

LOOP = "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}"


class Templated:
    """A tokenizer with a chat template and one token for each character."""

    def __init__(self, chat_template: str) -> None:
        self.chat_template = chat_template

    def apply_chat_template(self, chat: Any, **_: Any) -> str:
        return str(_compile_jinja_template(self.chat_template).render(messages=chat))

    def __call__(self, prompt: str, **_: Any) -> Any:
        return SimpleNamespace(input_ids=[ord(letter) for letter in prompt])


def test_a_template_is_applied() -> None:
    tokenizer = Templated("<{{ messages[0]['content'] }}é>")
    assert reply.encode_prompt(tokenizer, "a" * 9) == [ord(one) for one in f"<{'a' * 9}é>"]


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (LOOP, "the chat template must be done in 0.5 s, and is not"),
        ("{{ 10 ** (10 ** 10) }}", "the chat template must be done in 0.5 s, and is not"),
        ("{{ 'x' * 3000000 }}", r"must make at most 104\d+ bytes of text, and makes more"),
        ("{{ 'x' * 10 ** 12 }}", "must make a text, not end with MemoryError"),
        ("{{ raise_exception('no\nroles') }}", "must make a text, not end with TemplateError: no"),
        ("{{ messages", "must make a text, not end with TemplateSyntaxError"),
        ("{{ messages.__class__.__mro__ }}", "must make a text, not end with SecurityError"),
    ],
)
def test_a_template_ends_at_a_limit(
    template: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "0.5 s" in message:
        monkeypatch.setattr(reply, "TEMPLATE_SECONDS", 0.5)
    start = time.monotonic()
    with pytest.raises(CassandraError, match=message) as caught:
        reply.encode_prompt(Templated(template), "why?")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300
    assert time.monotonic() - start < 120


def ask(child: TextChild, compute: Callable[[Any], str], request: Any = None) -> str:
    return child.text(compute, request, seconds=5, size=9)


def test_a_child_that_dies_is_an_error_and_the_next_request_has_another_one() -> None:
    child = TextChild("it")
    with pytest.raises(CassandraError, match="it must make a text, not end with a lack of memory"):
        ask(child, lambda _: os._exit(1))
    assert ask(child, lambda request: request[::-1], "abc") == "cba"


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return processes that were forked."""
    found, fork = [], os.fork

    def recorded() -> int:
        found.append(fork())
        return found[-1]

    monkeypatch.setattr(os, "fork", recorded)
    return found


def is_there(process: int) -> bool:
    try:
        return os.waitpid(process, os.WNOHANG) == (0, 0)
    except ChildProcessError:
        return False


def test_a_child_answers_until_it_is_ended(children: list[int]) -> None:
    child = TextChild("it")
    for number in range(20):
        assert ask(child, lambda request: f"é\udc80{request}", number) == f"é\udc80{number}"
    (process,) = children
    assert is_there(process)
    child.end()
    assert not is_there(process)


def test_a_child_ends_with_the_one_that_asks(children: list[int]) -> None:
    child = TextChild("it")
    ask(child, lambda _: "")
    del child
    gc.collect()
    assert not is_there(children[0])


def test_a_child_that_was_idle_is_replaced(
    children: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    child = TextChild("it")
    ask(child, lambda _: "")
    monkeypatch.setattr(bounded, "_IDLE", 0.0)
    assert ask(child, lambda _: "new") == "new"
    assert [is_there(process) for process in children] == [False, True]


def test_threads_share_a_child(children: list[int]) -> None:
    child = TextChild("it")
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda each: ask(child, str, each), range(200)))
    assert found == list(map(str, range(200)))
    assert len(children) == 1


SHARED = TextChild("it")


def shared_answer() -> str:
    return ask(SHARED, lambda _: str(os.getpid()))


def test_a_fork_of_the_one_that_asks_has_a_child_of_its_own() -> None:
    first = shared_answer()
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as pool:
        assert pool.submit(shared_answer).result() not in {first, ""}
    assert shared_answer() == first
    SHARED.end()


def test_a_child_holds_no_file_of_its_parent(tmp_path: Path) -> None:
    child = TextChild("it")
    with (tmp_path / "open").open("w"):
        found = child.text(lambda _: open_files(), None, seconds=5, size=999)
    assert found.startswith("/dev/null /dev/null /dev/null pipe:")
    assert str(tmp_path) not in found


def open_files() -> str:
    files = sorted(Path("/proc/self/fd").iterdir(), key=lambda each: int(each.name))
    return " ".join(str(each.readlink()) for each in files if each.exists())


def test_a_changed_template_is_the_one_that_is_applied() -> None:
    tokenizer = Templated("a")
    assert reply.encode_prompt(tokenizer, "") == [ord("a")]
    tokenizer.chat_template = "b"
    assert reply.encode_prompt(tokenizer, "") == [ord("b")]
