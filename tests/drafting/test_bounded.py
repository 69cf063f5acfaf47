"""Chat templates that loop, make no end of text, fail, or take memory."""

from __future__ import annotations

import os
import time
from types import SimpleNamespace
from typing import Any

import pytest
from transformers.utils.chat_template_utils import _compile_jinja_template

from cassandra_spec.drafting import text
from cassandra_spec.drafting.bounded import bounded_text
from cassandra_spec.golden import CassandraError

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
    assert text.encode_prompt(tokenizer, "a" * 9) == [ord(one) for one in f"<{'a' * 9}é>"]


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (LOOP, "the chat template must be done in 0.5 s, and is not"),
        ("{{ 10 ** (10 ** 10) }}", "the chat template must be done in 0.5 s, and is not"),
        ("{{ 'x' * 3000000 }}", r"must make at most 1048\d+ bytes of text, and makes more"),
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
        monkeypatch.setattr(text, "TEMPLATE_SECONDS", 0.5)
    start = time.monotonic()
    with pytest.raises(CassandraError, match=message) as caught:
        text.encode_prompt(Templated(template), "why?")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300
    assert time.monotonic() - start < 20


def test_a_child_that_dies_is_an_error() -> None:
    with pytest.raises(CassandraError, match="it must make a text, not end with a lack of memory"):
        bounded_text(lambda: os._exit(1), "it", seconds=5, size=9)


def test_nothing_is_left_of_the_child(monkeypatch: pytest.MonkeyPatch) -> None:
    children, fork = [], os.fork

    def recorded() -> int:
        children.append(fork())
        return children[-1]

    monkeypatch.setattr(os, "fork", recorded)
    assert bounded_text(lambda: "é\udc80", "it", seconds=5, size=9) == "é\udc80"
    (child,) = children
    with pytest.raises(ChildProcessError):
        os.waitpid(child, os.WNOHANG)
