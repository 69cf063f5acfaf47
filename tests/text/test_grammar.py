"""Grammars: the tokens that they allow, held to a search, and their limits."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cassandra_spec.golden import CassandraError
from cassandra_spec.text.grammar import (
    MAX_BYTES,
    Grammar,
    GrammarCompiler,
    GrammarState,
    GrammarText,
    Syntax,
    compiler,
)
from tests.text.byte_tokens import END, byte_tokenizer, ids

TOKENIZER = byte_tokenizer()
COMPILER = GrammarCompiler(TOKENIZER, frozenset({END}))
TEXTS = {token: str(TOKENIZER.decode([token])) for token in range(1, 264)}
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "kind": {"enum": ["man", "dog"]}},
    "required": ["name", "kind"],
    "additionalProperties": False,
}


def compiled(syntax: Syntax, text: str) -> Grammar:
    return COMPILER.compile(GrammarText(syntax=syntax, text=text))


def at(grammar: Grammar, text: str) -> GrammarState:
    """Return the place after a text."""
    state = grammar.begin([])
    for token in ids(TOKENIZER, text):
        found = state.after(token)
        assert found is not None, (text, token)
        state = found
    return state


def possible(words: set[str], before: str) -> set[int]:
    """Return tokens after which a text may still become one of ``words``, by trying all."""
    some = {
        token
        for token, text in TEXTS.items()
        if any(word.startswith(before + text) for word in words)
    }
    return some | ({END} if before in words else set())


@given(st.sets(st.text("abcn", max_size=6), min_size=1, max_size=5), st.randoms())
def test_allowed_tokens_are_those_of_a_search(words: set[str], random: np.random.Generator) -> None:
    lark = "start: " + " | ".join(json.dumps(word) for word in sorted(words))
    state, before = compiled("lark", lark).begin([]), ""
    while True:
        allowed, naive = set(np.flatnonzero(state.allowed()).tolist()), possible(words, before)
        assert allowed <= naive
        assert (END in allowed) == (END in naive)
        if len({text[:1] for text in map(TEXTS.get, naive - {END}) if text}) > 1:
            assert allowed == naive  # where a byte is certain, the tokenizer's own token is forced
        assert state.forced() == (next(iter(allowed)) if len(allowed) == 1 else None)
        assert allowed
        token = random.choice(sorted(allowed))
        if token == END:
            break
        state.advance(token)
        before += TEXTS[token]
    assert before in words


@pytest.mark.parametrize(
    ("syntax", "text", "good", "bad"),
    [
        (
            "json_schema",
            json.dumps(PERSON),
            '{"name": "a", "kind": "dog"}',
            '{"name": "a", "kind": "cat"}',
        ),
        ("json_schema", '{"type": "object"}', '{"x": [1, {}]}', "[1]"),
        ("regex", "[ab]+c?", "abbac", "ac!"),
        ("lark", 'start: "a" start "b" | "c"', "aacbb", "aab"),
        ("gbnf", 'root ::= "a" root "b" | "c"', "aacbb", "aab"),
    ],
)
def test_each_syntax(syntax: Syntax, text: str, good: str, bad: str) -> None:
    grammar = compiled(syntax, text)
    assert at(grammar, good).allowed()[END]
    with pytest.raises(AssertionError):
        at(grammar, bad)


def test_what_a_schema_forces() -> None:
    state, forced = compiled("json_schema", json.dumps(PERSON)).begin([]), []
    while (token := state.forced()) is not None:
        forced.append(token)
        state.advance(token)
    assert TOKENIZER.decode(forced) == '{"name":'  # then a space, with a quote or without


def test_a_copy_goes_its_own_way() -> None:
    state = at(compiled("regex", "abc|abd"), "ab")
    other = state.copy()
    [c] = ids(TOKENIZER, "c")
    other.advance(c)
    assert np.flatnonzero(other.allowed()).tolist() == [END]
    assert state.allowed()[c]


def test_rows_wider_and_narrower_than_the_tokenizer() -> None:
    state = compiled("regex", "a").begin([])
    [a] = ids(TOKENIZER, "a")
    for width in (100, len(TOKENIZER), 300):
        row = np.zeros(width, np.float32)
        state.apply(row)
        assert np.flatnonzero(row == 0).tolist() == [a]
        assert np.isneginf(np.delete(row, a)).all()


@pytest.mark.parametrize(
    ("syntax", "text", "why"),
    [
        ("json_schema", '{"type": "foo"}', "Invalid type: foo"),
        ("json_schema", '{"type":', "EOF while parsing"),
        ("json_schema", '{"not": {}}', "Unimplemented keys"),
        ("json_schema", '{"$ref": "#/nowhere"}', "does not exist"),
        ("regex", "(", "unclosed group"),
        ("regex", r"a[^\s\S]", "no text matches it"),
        ("lark", "start: nowhere", "unknown name"),
        ("lark", "start: start", "no text matches it"),
        ("gbnf", "root := 3", "Expected ::="),
        ("gbnf", "root ::= " + "(" * 5000 + '"a"' + ")" * 5000, "recursion"),
    ],
)
def test_a_bad_grammar_is_refused_with_the_reason(syntax: Syntax, text: str, why: str) -> None:
    with pytest.raises(CassandraError, match=f"^{syntax} must be a grammar to compile: ") as caught:
        compiled(syntax, text)
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_stack_that_overflows_ends_the_child_alone() -> None:
    rules = "\n".join(f"r{n}: r{n + 1}" for n in range(4000))
    with pytest.raises(CassandraError, match=r"^lark must compile in 5 s"):
        compiled("lark", f'start: r0\n{rules}\nr4000: "a"')
    assert compiled("lark", 'start: "a"').begin([]).forced() is not None


@pytest.mark.slow
def test_a_grammar_that_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a second it has not reached the limit of memory; after 5 s it may have."""
    monkeypatch.setattr(compiler, "SECONDS", 1.0)
    begun = time.monotonic()
    with pytest.raises(CassandraError, match=r"^json_schema must compile in 1 s"):
        compiled("json_schema", '{"type": "integer", "multipleOf": 100000007}')
    assert time.monotonic() - begun >= 1


def test_limits_of_the_text() -> None:
    with pytest.raises(CassandraError, match=f"^regex must have at most {MAX_BYTES} bytes"):
        GrammarText(syntax="regex", text="a" * (MAX_BYTES + 1))
    with pytest.raises(CassandraError, match=r"^syntax must be one of .*, not 'xml'"):
        GrammarText(syntax="xml", text="")  # type: ignore[arg-type]


def test_a_model_without_stop_tokens_is_refused() -> None:
    with pytest.raises(CassandraError, match=r"^a grammar must have a model with stop tokens"):
        GrammarCompiler(TOKENIZER, frozenset()).compile(GrammarText(syntax="regex", text="a"))


def test_a_grammar_is_compiled_once() -> None:
    assert compiled("regex", "ab*") is compiled("regex", "ab*")
