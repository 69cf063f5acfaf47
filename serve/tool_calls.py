"""Describe functions to a model, in its form, and parse the calls in its text.

A chat template with tools shows them in the model's own form; calls are JSON between
``<tool_call>`` and ``</tool_call>``. With other templates the system message lists the tools in the
form of SmolLM2-Instruct, whose calls are one list between the same marks.
"""

from __future__ import annotations

import dataclasses
import json
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cassandra_spec.text.grammar import JSON_STYLE

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
    """Return the messages of a chat, with tools and calls as text if its template has no tools.

    ``messages`` have ``role`` and ``content``, those of the assistant perhaps ``tool_calls`` with
    ``name`` and ``arguments``, a text.
    """
    if form.in_template:
        return [dict(each) for each in messages]
    shown = [_as_text(each, form) for each in messages]
    if not tools:
        return shown
    instructions = _instructions(tools, form)
    if shown[0]["role"] == "system":
        instructions, shown = f"{shown[0]['content']}\n\n{instructions}", shown[1:]
    return [{"role": "system", "content": instructions}, *shown]


def _instructions(tools: Sequence[Mapping[str, Any]], form: CallFormat) -> str:
    example = f"{form.begin}{_head('NAME')}{{}}}}{form.end}"
    return (
        "You have access to these functions:\n"
        f"<tools>{json.dumps([tool['function'] for tool in tools], ensure_ascii=False)}</tools>\n"
        "To call functions, reply with a list of calls in this form, and no other text:\n"
        f"{example}"
    )


def render(
    messages: Sequence[Mapping[str, Any]], in_template: Callable[[Sequence[Mapping[str, Any]]], str]
) -> str:
    """Return the text of messages in their template, with the arguments of calls as written.

    A template writes arguments anew from an object (``1e5`` becomes ``100000.0``). It gets marks in
    their place, which are replaced in its text. If it does not write a mark once, it gets the
    objects.
    """
    written = [call["arguments"] for each in messages for call in each.get("tool_calls", ())]
    marks = {json.dumps({f"ARGUMENTS{at}OF": at}): text for at, text in enumerate(written)}
    text = in_template(_for_template(messages, list(map(json.loads, marks))))
    if any(text.count(mark) != 1 for mark in marks):
        return in_template(_for_template(messages, list(map(_as_object, written))))
    for mark, arguments in marks.items():
        text = text.replace(mark, arguments)
    return text


def _for_template(
    messages: Sequence[Mapping[str, Any]], arguments: Sequence[Any]
) -> list[Mapping[str, Any]]:
    """Return messages whose calls have these arguments, in order."""
    left = iter(arguments)
    made = list[Mapping[str, Any]]()
    for each in messages:
        functions = [{**call, "arguments": next(left)} for call in each.get("tool_calls", ())]
        calls = [{"type": "function", "function": function} for function in functions]
        made.append({**each, **({"tool_calls": calls} if calls else {})})
    return made


def _as_object(text: str) -> Any:
    """Return the arguments that a text describes, or the text if it is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _as_text(message: Mapping[str, Any], form: CallFormat) -> dict[str, Any]:
    role, content = message["role"], message["content"]
    if role == "tool":
        return {"role": "user", "content": f"<tool_response>{content}</tool_response>"}
    if calls := message.get("tool_calls"):
        written = form.between.join(f"{_head(call['name'])}{call['arguments']}}}" for call in calls)
        content = f"{content}{form.begin}{written}{form.end}"
    return {**message, "content": content}


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

    Text that may begin a call is held back. Calls are parsed at the end. Of a reply that was cut
    within a call, the complete calls are returned; the rest of the cut one is no content. A reply
    that ``must_call`` has no content at all.
    """

    def __init__(self, form: CallFormat, *, must_call: bool = False) -> None:
        self.calls: list[Call] = []
        self._form, self._held, self._must_call = form, "", must_call

    def add(self, text: str, *, last: bool = False) -> str:
        """Take the next text; return the text that is certainly content."""
        self._held += text
        begin = self._form.begin
        at = self._held.find(begin)
        if at >= 0 and last:
            self.calls = parse_calls(self._held[at:], self._form)
        elif at < 0:
            sizes = range(len(begin) - 1, 0, -1)
            held = (size for size in sizes if self._held.endswith(begin[:size]))
            at = len(self._held) - (0 if last else next(held, 0))
        content, self._held = self._held[:at], self._held[at:]
        return "" if self._must_call else content


_CALL = re.compile(r'\{"name": ("(?:[^"\\]|\\.)*"), "arguments": ')
_VALUES = json.JSONDecoder(parse_float=str, parse_int=str)


def parse_calls(text: str, form: CallFormat) -> list[Call]:
    """Return the complete calls at the beginning of a text that a grammar of calls describes.

    Arguments are given back as the model wrote them.
    """
    calls, at = list[Call](), len(form.begin)
    while call_and_end := _read_call(text, at):
        call, at = call_and_end
        calls.append(call)
        if not text.startswith(form.between, at):
            break
        at += len(form.between)
    return calls


def _read_call(text: str, at: int) -> tuple[Call, int] | None:
    """Return the call at a place of a text, and the place after it."""
    if not (head := _CALL.match(text, at)):
        return None
    try:
        _, end = _VALUES.raw_decode(text, head.end())
    except (ValueError, RecursionError):
        return None
    if text[end : end + 1] != "}":
        return None
    call = Call(f"call_{uuid.uuid4().hex[:24]}", json.loads(head[1]), text[head.end() : end])
    return call, end + 1
