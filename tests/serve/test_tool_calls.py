"""Calls of functions: the grammar of replies, and texts parsed piece by piece."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cassandra_spec.serve.tool_calls import (
    LISTED,
    SEPARATE,
    CallFormat,
    CallText,
    call_format,
    calls_grammar,
    parse_calls,
    render,
    with_tools,
)
from cassandra_spec.text.grammar import GrammarCompiler, GrammarText
from tests.text.byte_tokens import END, byte_tokenizer, ids

TOKENIZER = byte_tokenizer()
COMPILER = GrammarCompiler(TOKENIZER, frozenset({END}))
CITY: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"$ref": "#/$defs/name"}},
    "required": ["city"],
    "additionalProperties": False,
    "$defs": {"name": {"type": "string"}},
}
FUNCTIONS = [("weather", CITY), ("time", {})]
WEATHER = '{"name": "weather", "arguments": {"city": "Oslo"}}'
TIME = '{"name": "time", "arguments": {}}'
BOTH = pytest.mark.parametrize("form", [LISTED, SEPARATE])


def written(form: CallFormat, *calls: str) -> str:
    return form.begin + form.between.join(calls) + form.end


def matches(reply: str, form: CallFormat, **fields: Any) -> bool:
    options: dict[str, Any] = {"content": None, "text": True, "several": True, **fields}
    grammar = GrammarText(syntax="lark", text=calls_grammar(FUNCTIONS, form, **options))
    state: Any = COMPILER.compile(grammar).begin([])
    for token in ids(TOKENIZER, reply):
        state = state.after(token)
        if state is None:
            return False
    return bool(state.allowed()[END])


@BOTH
def test_replies_that_may_call(form: CallFormat) -> None:
    for text in ("", "Hello <b>.", written(form, WEATHER), "I ask: " + written(form, TIME)):
        assert matches(text, form)
    assert matches(written(form, WEATHER, TIME), form)
    assert not matches(written(form, WEATHER, TIME), form, several=False)
    assert not matches(written(form, WEATHER.replace("city", "town")), form)
    assert not matches(written(form, WEATHER.replace("weather", "other")), form)
    assert not matches(written(form, WEATHER)[:-1], form)


@BOTH
def test_replies_that_must_call(form: CallFormat) -> None:
    assert matches(written(form, WEATHER), form, text=False)
    assert not matches("Hello", form, text=False)
    assert not matches("Hello " + written(form, WEATHER), form, text=False)


@BOTH
def test_content_may_have_a_schema(form: CallFormat) -> None:
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    assert matches("{}", form, content=schema)
    assert matches(written(form, TIME), form, content=schema)
    assert not matches("Hello", form, content=schema)


WORDS = st.text(" <tool_call>[\n{", max_size=12)


@given(WORDS, st.lists(st.tuples(st.text(max_size=5), st.dictionaries(WORDS, WORDS))), st.data())
def test_pieces_say_the_same_as_the_whole(
    content: str, calls: list[tuple[str, dict[str, str]]], data: st.DataObject
) -> None:
    form = data.draw(st.sampled_from([LISTED, SEPARATE]))
    content = content.replace(form.begin, "")
    entries = [json.dumps({"name": name, "arguments": more}) for name, more in calls]
    ending = written(form, *entries) if calls else ""
    text = content + ending
    if text.find(form.begin) != (len(content) if calls else -1):
        return  # content and mark make an earlier one
    reader, found, at = CallText(form), "", 0
    while at < len(text):
        size = data.draw(st.integers(1, len(text) - at))
        found += reader.add(text[at : at + size])
        assert content.startswith(found)
        at += size
    found += reader.add("", last=True)
    assert found == content
    assert [(each.name, json.loads(each.arguments)) for each in reader.calls] == calls


@BOTH
def test_a_cut_reply_has_its_complete_calls_and_no_marks(form: CallFormat) -> None:
    assert len(parse_calls(written(form, WEATHER, TIME), form)) == 2
    whole = "So " + written(form, WEATHER, TIME)
    ends = [whole.index(call) + len(call) for call in (WEATHER, TIME)]
    for size in range(len(whole) + 1):
        reader = CallText(form)
        content = reader.add(whole[:size]) + reader.add("", last=True)
        begun = size >= len("So " + form.begin)
        assert content == ("So " if begun else whole[:size])
        assert len(reader.calls) == sum(end <= size for end in ends)


ARGUMENTS = (
    '{"x": 1e999}',
    '{"x": 0.12345678901234567890, "y": 1e5}',
    '{"x": -0, "y": 12345678901234567890123}',
    '{"x": "\\u00e9\u00e9 \\"}, \\"arguments\\": {"}',
    '{"x":[1,2],"y":{}}',
    '{"x": ' + "1" * 5000 + "}",
)


@BOTH
@pytest.mark.parametrize("arguments", ARGUMENTS)
def test_arguments_come_back_as_they_were_written(form: CallFormat, arguments: str) -> None:
    text = written(form, f'{{"name": "f", "arguments": {arguments}}}', TIME)
    first, second = parse_calls(text, form)
    assert (first.name, first.arguments) == ("f", arguments)
    assert (second.name, second.arguments) == ("time", "{}")
    message = {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {"name": call.name, "arguments": call.arguments} for call in (first, second)
        ],
    }
    if form is LISTED:
        assert with_tools([message], (), form)[0]["content"] == text
    else:
        assert render([message], qwen) == f"f {arguments}\ntime {{}}\n"


def test_a_template_that_goes_through_arguments_gets_objects() -> None:
    calls = [{"name": "f", "arguments": each} for each in ARGUMENTS[:5]]
    message = {"role": "assistant", "content": "", "tool_calls": calls}
    assert render([message], keys) == "".join(f"f {list(json.loads(a))}\n" for a in ARGUMENTS[:5])


def qwen(messages: Any) -> str:
    """Write calls like a template that turns their arguments into JSON."""
    functions = [call["function"] for each in messages for call in each["tool_calls"]]
    return "".join(f"{one['name']} {json.dumps(one['arguments'])}\n" for one in functions)


def keys(messages: Any) -> str:
    """Write the names of arguments, like a template that lists them."""
    functions = [call["function"] for each in messages for call in each["tool_calls"]]
    return "".join(f"{one['name']} {list(one['arguments'])}\n" for one in functions)


def test_what_templates_are_given() -> None:
    call = {"name": "weather", "arguments": '{"city": "Oslo"}'}
    chat: list[dict[str, Any]] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "sun"},
    ]
    tools = [{"type": "function", "function": {"name": "weather", "parameters": CITY}}]
    shown: list[Any] = []

    def show(own: Any) -> str:
        shown.append(own)
        return ""

    assert render(with_tools(chat, tools, SEPARATE), show) == ""
    own = shown[-1]  # without marks, which this template does not write
    assert own[2]["tool_calls"] == [{"type": "function", "function": json.loads(WEATHER)}]
    assert own[3] == chat[3]
    system, user, assistant, result = with_tools(chat, tools, LISTED)
    assert system["content"].startswith("Be brief.\n\n")
    assert json.dumps(CITY) in system["content"]
    assert assistant["content"] == written(LISTED, WEATHER)
    assert result == {"role": "user", "content": "<tool_response>sun</tool_response>"}
    assert user == chat[1]
    assert with_tools(chat[1:2], (), LISTED) == chat[1:2]


def test_which_format_a_template_has() -> None:
    assert call_format("{% if tools %}<tool_call>{% endif %}") is SEPARATE
    assert call_format("{% for m in messages %}{{ m }}{% endfor %}") is LISTED
    assert call_format(None) is LISTED
