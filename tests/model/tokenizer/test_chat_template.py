"""Chat templates without transformers equal those of transformers, which are the oracle."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cassandra_spec.golden import CassandraError
from cassandra_spec.model.pretrained import load_transformers_tokenizer
from cassandra_spec.model.tokenizer import read_tokenizer
from cassandra_spec.text.reply import encode_prompt
from tests.model.tokenizer.directories import bytes_json, write
from tests.model.tokenizer.templates import TEMPLATES

ENTRIES = {"bos_token": "<s>", "eos_token": "</s>", "image_token": "<image>"}
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "<b>Say</b> the weather & 'more' of a \"place\" in Élan",
        "parameters": {"type": "object", "properties": {"place": {"type": "string"}}},
    },
}
CALL = {"function": {"name": "weather", "arguments": {"place": "Zürich"}}}
texts = st.text(max_size=12) | st.sampled_from(["  a ", "</think>b", "{{ 1 }}", "<s>", "\n"])
contents = (
    texts | st.none() | st.lists(texts.map(lambda t: {"type": "text", "text": t}), max_size=2)
)
messages = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "user", "assistant", "hidden", "ipython"])},
    optional={
        "content": contents,
        "thinking": texts | st.none(),
        "reasoning_content": texts,
        "tool_calls": st.just([CALL]) | st.none(),
    },
)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    folder = write(tmp_path_factory.mktemp("chat"), "llama", bytes_json(), ENTRIES)
    return read_tokenizer(folder), load_transformers_tokenizer(folder)


def outcome(tokenizer: Any, template: Any, chat: list[Any], **options: Any) -> Any:
    """Return the text and its tokens, or the kind of the error."""
    tokenizer.chat_template = template
    try:
        text = tokenizer.apply_chat_template(chat, tokenize=False, **options)
    except Exception as error:
        return type(error)
    found = tokenizer.apply_chat_template(chat, **options)
    return text, list(found if isinstance(found, list) else found["input_ids"])


@pytest.mark.parametrize("name", TEMPLATES)
@given(
    chat=st.lists(messages, max_size=4),
    tools=st.none() | st.just([TOOL]) | st.just([TOOL, TOOL]),
    end=st.sampled_from(["add_generation_prompt", "continue_final_message", ""]),
)
def test_any_conversation(
    pair: tuple[Any, Any], name: str, chat: list[Any], tools: Any, end: str
) -> None:
    options: dict[str, Any] = {"tools": tools, **({end: True} if end else {})}
    ours, theirs = (outcome(each, TEMPLATES[name], chat, **options) for each in pair)
    assert ours == theirs


CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Why is the sky blue?"},
    {"role": "assistant", "content": "Because of  "},
]


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("end", ["add_generation_prompt", "continue_final_message", ""])
def test_an_ordinary_conversation_has_a_text(pair: tuple[Any, Any], name: str, end: str) -> None:
    options = {end: True} if end else {}
    ours, theirs = (outcome(each, TEMPLATES[name], CHAT, **options) for each in pair)
    assert ours == theirs
    assert "sky blue?" in ours[0]


@pytest.mark.parametrize(
    "template",
    [
        {"default": "d", "tool_use": "t{{ tools | length }}"},
        {"tool_use": "t", "other": "o"},
        "{{ ''.__class__ }}",
        "{% set ns = namespace(_x=1) %}",
        "{% set ns = namespace(x=1) %}{% set ns._y = 2 %}",
        "{% set ns = namespace(self=3) %}{{ ns.self }}",
        "{{ messages.append(1) }}",
        "{{ dict.__init__ }}",
        "{{ dict(a=1) | tojson }}{{ dict.fromkeys('ab', 2) | tojson }}",
        "{{ {'b': '<', 'a': 'é'} | tojson(ensure_ascii=true, separators=(',', ':')) }}",
        "{{ raise_exception('no') }}",
        "{% for i in range(9) %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}",
        "{% for m in messages %}{% generation %}{{ loop.index }}{{ m.content }}{% endgeneration %}"
        "{% endfor %}",
        "{% generation %}{% set x = 1 %}{% endgeneration %}{{ x }}",
        "{% if x %}",
        "{{ documents is none }}{{ tools is none }}{{ add_generation_prompt }}{{ image_token }}",
        "{{ strftime_now('%Y') }}",
        None,
    ],
)
@pytest.mark.parametrize("tools", [None, [TOOL]])
def test_what_a_template_may_do(pair: tuple[Any, Any], template: Any, tools: Any) -> None:
    ours, theirs = (outcome(each, template, CHAT, tools=tools) for each in pair)
    assert ours == theirs


def test_both_ends_are_refused(pair: tuple[Any, Any]) -> None:
    options = {"add_generation_prompt": True, "continue_final_message": True}
    assert {outcome(each, TEMPLATES["qwen"], CHAT, **options) for each in pair} == {ValueError}


def test_a_prompt_goes_through_the_child(pair: tuple[Any, Any]) -> None:
    ours, theirs = pair
    for each in pair:
        each.chat_template = TEMPLATES["smollm2"]
    assert encode_prompt(ours, CHAT[:2]) == encode_prompt(theirs, CHAT[:2])
    ours.chat_template = "{{ raise_exception('a reason') }}"
    with pytest.raises(CassandraError, match=r"must make a text, not end with .*a reason"):
        encode_prompt(ours, CHAT)
