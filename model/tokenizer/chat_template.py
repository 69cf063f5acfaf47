"""Render chat templates in Jinja's sandbox, with the names and rules of transformers.

A template is code of an unknown author. The sandbox keeps it from Python's internals; limits of
time and memory are its caller's (:mod:`cassandra_spec.text.bounded`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

from jinja2 import Template, TemplateError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

Message = Mapping[str, Any]

_REASONING = ("reasoning_content", "thinking", "reasoning")
"""Names of a message's reasoning; templates read the first, some the second."""

_END = "ENDOFTHEFINALMESSAGE "
"""Mark behind the message to continue, which no template changes."""


def render(
    template: str,
    messages: Sequence[Message],
    *,
    tools: Sequence[Mapping[str, Any]] | None,
    add_generation_prompt: bool,
    continue_final_message: bool,
    names: Mapping[str, str],
) -> str:
    """Return the text of a conversation; messages and tools are values of JSON.

    ``names`` are further variables of the template. ``continue_final_message`` ends the text within
    the last message. Raises ``ValueError`` if a message cannot be continued, and whatever the
    template raises.
    """
    if not messages:
        raise ValueError("a chat must have at least one message")
    chat = [_with_reasoning(_without_null(message)) for message in messages]
    final = _mark_end(chat, template) if continue_final_message else ""
    text = _compiled(template).render(
        messages=chat,
        tools=tools,
        documents=None,
        add_generation_prompt=add_generation_prompt,
        **names,
    )
    return _cut_at_end(text, final) if continue_final_message else text


def _without_null(message: Message) -> dict[str, Any]:
    """Return a message without its null entries, which templates would print."""
    return {name: value for name, value in message.items() if value is not None}


def _with_reasoning(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message with its reasoning under the names that templates read."""
    reasoning = next((message[name] for name in _REASONING if name in message), None)
    if reasoning is None:
        return message
    return {"thinking": reasoning, **message, "reasoning_content": reasoning}


def _mark_end(chat: list[dict[str, Any]], template: str) -> str:
    """Mark the end of the last message's text, and return the text."""
    content = chat[-1].get("content")
    if content is None or "content" not in template:
        raise ValueError("the final message must have content, which the template reads")
    if isinstance(content, str):
        chat[-1]["content"] = content + _END
        return content
    blocks = [dict(block) for block in content]
    block = next((each for each in reversed(blocks) if "text" in each), None)
    if block is None:
        raise ValueError("the final message must have text to continue")
    final: str = block["text"]
    block["text"] = final + _END
    chat[-1]["content"] = blocks
    return final


def _cut_at_end(text: str, final: str) -> str:
    """Return the text up to the mark; a template may have trimmed the message around it."""
    if final.strip() not in text or _END.strip() not in text:
        raise ValueError("the template must have the final message in its text")
    place = text.rindex(_END.strip())
    before = text[:place]
    return before if text.startswith(_END, place) else before.rstrip()


class _Generation(Extension):
    """The block ``generation`` around replies: its text stays as it is."""

    tags = {"generation"}  # noqa: RUF012 - declared by Jinja, which reads it of the class

    def parse(self, parser: Parser) -> nodes.Node:
        """Return the statements of the block, with the scope of a macro."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_same"), [], [], body, lineno=line)

    def _same(self, caller: Callable[[], str]) -> str:
        return caller()


class _Namespace(Namespace):
    """A namespace without names of Python's internals."""

    def __init__(*args: Any, **kwargs: Any) -> None:  # a template may set the name `self`
        values = dict(*args[1:], **kwargs)
        for name in values:
            _require_public(name)
        Namespace.__init__(args[0], values)

    def __setitem__(self, name: str, value: Any) -> None:
        _require_public(name)
        super().__setitem__(name, value)


def _require_public(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace must have names without an underscore before, not {name}")


class _Dict:
    """``dict`` without the attributes of a class."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:
        """Return a dictionary with the same value for all keys."""
        return dict.fromkeys(*args)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Return a value as JSON; Jinja's own filter would escape it for HTML."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise(message: str) -> None:
    raise TemplateError(message)


def _now(format: str) -> str:
    return datetime.now().strftime(format)


@lru_cache(maxsize=4)
def _compiled(template: str) -> Template:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals |= {
        "raise_exception": _raise,
        "strftime_now": _now,
        "dict": _Dict(),
        "namespace": _Namespace,
    }
    return environment.from_string(template)
