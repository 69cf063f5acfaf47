"""Describe functions to a model, in its form, and parse the calls in its text.

A chat template with tools shows them in the model's own form; calls are JSON between
``<tool_call>`` and ``</tool_call>``. With other templates the system message lists the tools in the
form of SmolLM2-Instruct, whose calls are one list between the same marks.
"""

from __future__ import annotations

import dataclasses
import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from cassandra_spec.drafting.grammar import JSON_STYLE

MARK, END_MARK = "<tool_call>", "</tool_call>"


@dataclasses.dataclass(frozen=True, kw_only=True)
class CallFormat:
    """Text before, between and after the JSON of calls."""

    begin: str
    between: str
    end: str
    in_template: bool  # whether the chat template supports tools, calls and results


SEPARATE = CallFormat(
    begin=f"{MARK}\n", between=f"\n{END_MARK}\n{MARK}\n", end=f"\n{END_MARK}", in_template=True
)
LISTED = CallFormat(begin=f"{MARK}[", between=", ", end=f"]{END_MARK}", in_template=False)


def call_format(template: object) -> CallFormat:
    """Return the format of the calls of a model with a chat template."""
    text = str(template)
    return SEPARATE if "tools" in text and MARK in text else LISTED


def schema_text(schema: Mapping[str, Any]) -> str:
    """Return a JSON Schema as text; by default its JSON has the usual spaces."""
    return json.dumps({"x-guidance": JSON_STYLE, **schema})


def calls_grammar(
    functions: Sequence[tuple[str, Mapping[str, Any]]],
    form: CallFormat,
    *,
    content: Mapping[str, Any] | None,
    text: bool,
    several: bool,
) -> str:
    """Return the Lark grammar of a reply with calls of functions, by name and parameters.

    With ``text`` the reply may have text before its calls, or only text; ``content`` is then the
    schema of a reply without calls. ``several``: more than one call is allowed.
    """
    rules = [
        f"call_{at}: {_quoted(_head(name))} arguments_{at} {_quoted('}')}\n"
        f"arguments_{at}: %json {schema_text(schema or {'type': 'object'})}"
        for at, (name, schema) in enumerate(functions)
    ]
    more = f" ({_quoted(form.between)} call)*" if several else ""
    calls = f"calls: call{more} {_quoted(form.end)}\ncall: "
    rules.append(calls + " | ".join(f"call_{at}" for at in range(len(functions))))
    if not text:
        rules.append(f"start: {_quoted(form.begin)} calls")
    elif content is not None:
        rules.append(f"start: {_quoted(form.begin)} calls | %json {schema_text(content)}")
    else:
        rules.append(
            f"start: before calls | TEXT\n"
            f"before[suffix={_quoted(form.begin)}]: TEXT\n"
            "TEXT: /(?s:.*)/"
        )
    return "\n".join(rules)


def _head(name: str) -> str:
    return f'{{"name": {json.dumps(name)}, "arguments": '


def _quoted(text: str) -> str:
    return json.dumps(text)


# --- messages -----------------------------------------------------------------------------------


def with_tools(
    messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], form: CallFormat
) -> list[dict[str, Any]]:
    """Return the messages of a chat in the form of its template.

    ``messages`` have ``role`` and ``content``, those of the assistant perhaps ``tool_calls`` with
    ``name`` and ``arguments``.
    """
    if form.in_template:
        return [_for_template(each) for each in messages]
    shown = [_as_text(each, form) for each in messages]
    if not tools:
        return shown
    told = _instructions(tools, form)
    if shown[0]["role"] == "system":
        told, shown = f"{shown[0]['content']}\n\n{told}", shown[1:]
    return [{"role": "system", "content": told}, *shown]


def _instructions(tools: Sequence[Mapping[str, Any]], form: CallFormat) -> str:
    example = f"{form.begin}{_head('NAME')}{{}}}}{form.end}"
    return (
        "You have access to these functions:\n"
        f"<tools>{json.dumps([tool['function'] for tool in tools], ensure_ascii=False)}</tools>\n"
        "To call functions, reply with a list of calls in this form, and no other text:\n"
        f"{example}"
    )


def _for_template(message: Mapping[str, Any]) -> dict[str, Any]:
    calls = [{"type": "function", "function": call} for call in message.get("tool_calls", ())]
    return {**message, **({"tool_calls": calls} if calls else {})}


def _as_text(message: Mapping[str, Any], form: CallFormat) -> dict[str, Any]:
    role, content = message["role"], message["content"]
    if role == "tool":
        return {"role": "user", "content": f"<tool_response>{content}</tool_response>"}
    if calls := message.get("tool_calls"):
        written = form.between.join(json.dumps(call, ensure_ascii=False) for call in calls)
        content = f"{content}{form.begin}{written}{form.end}"
    return {"role": role, "content": content}


# --- replies ------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Call:
    """A call of a function in a reply."""

    id: str
    name: str
    arguments: str  # JSON

    @property
    def body(self) -> dict[str, Any]:
        """Return the call as an entry of ``tool_calls``."""
        function = {"name": self.name, "arguments": self.arguments}
        return {"id": self.id, "type": "function", "function": function}


class CallText:
    """Splits the text of a reply into content and calls, incrementally.

    Text that may begin a call is held back. Calls are parsed at the end; incomplete calls of a
    truncated reply are returned as content.
    """

    def __init__(self, form: CallFormat) -> None:
        self.calls: list[Call] = []
        self._form, self._held = form, ""

    def add(self, text: str, *, last: bool = False) -> str:
        """Take the next text; return the text that is certainly content."""
        self._held += text
        begin = self._form.begin
        at = self._held.find(begin)
        if last:
            self.calls = parse_calls(self._held[at:], self._form) if at >= 0 else []
            at = at if self.calls else len(self._held)
        elif at < 0:
            sizes = range(len(begin) - 1, 0, -1)
            held = (size for size in sizes if self._held.endswith(begin[:size]))
            at = len(self._held) - next(held, 0)
        content, self._held = self._held[:at], self._held[at:]
        return content


def parse_calls(text: str, form: CallFormat) -> list[Call]:
    """Return the calls of a text, or an empty list if it has anything else."""
    calls, at, decoder = list[Call](), len(form.begin), json.JSONDecoder()
    try:
        while True:
            entry, at = decoder.raw_decode(text, at)
            arguments = json.dumps(entry["arguments"], ensure_ascii=False)
            calls.append(Call(f"call_{uuid.uuid4().hex[:24]}", str(entry["name"]), arguments))
            if not text.startswith(form.between, at):
                return calls if text[at:].strip() == form.end.strip() else []
            at += len(form.between)
    except (ValueError, KeyError, TypeError):
        return []
