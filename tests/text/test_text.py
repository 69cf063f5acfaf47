from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cassandra_spec.drafting import ReplyText, encode_opening
from cassandra_spec.golden import CassandraError


class Letters:
    """A tokenizer: a token is a piece of text, 0 a special one, 9 a half of a character."""

    PIECES = ("<end>", "a", "b", "ab", "\n", "bc", "c", "", " ", "\N{REPLACEMENT CHARACTER}")

    def decode(self, tokens: list[int], *, skip_special_tokens: bool) -> str:
        return "".join(self.PIECES[t] for t in tokens if t or not skip_special_tokens)


def grow(tokens: list[int], *stops: str) -> tuple[list[bool], list[str], str]:
    """Return the result of each token, the text shown after it, and the whole text."""
    text = ReplyText(Letters(), stops)
    ends, shown = [], []
    for token in tokens:
        ends.append(text.add(token))
        shown.append(text.new())
    shown.append(text.new(last=True))
    return ends, shown, text.text


def test_the_token_that_completes_a_stop_string_ends_the_reply() -> None:
    assert grow([1, 2, 6], "abc") == ([False, False, True], ["", "", "", ""], "")
    assert grow([6, 3, 6], "bc") == ([False, False, True], ["c", "a", "", ""], "ca")


def test_text_ends_before_a_stop_string_in_the_middle_of_a_token() -> None:
    ends, shown, text = grow([1, 5], "b")
    assert (ends, "".join(shown), text) == ([False, True], "a", "a")


def test_the_first_of_several_stop_strings_counts() -> None:
    assert grow([1, 2, 6, 4], "\n", "bc")[2] == "a"


def test_what_may_become_a_stop_string_is_held_back_and_let_go() -> None:
    _, shown, text = grow([1, 2, 1, 6], "abc")
    assert shown == ["", "", "ab", "ac", ""]
    assert text == "abac"
    assert grow([1, 2], "abc")[1] == ["", "", "ab"]


def test_special_tokens_can_be_stop_strings_and_are_not_shown() -> None:
    assert grow([1, 0], "<end>") == ([False, True], ["a", "", ""], "a")


def test_a_character_in_the_making_is_held_back() -> None:
    assert grow([1, 9])[1] == ["a", "", "\N{REPLACEMENT CHARACTER}"]


def test_a_stop_string_around_a_special_token_ends_the_reply() -> None:
    assert grow([2, 0, 1], "ba") == ([False, False, True], ["", "", "", ""], "")


@given(
    tokens=st.lists(st.integers(0, 8), max_size=12),
    stops=st.lists(st.text("abc\n", min_size=1, max_size=4), max_size=3),
)
def test_pieces_make_the_text(tokens: list[int], stops: list[str]) -> None:
    ends, shown, text = grow(tokens, *stops)
    whole = Letters().decode(tokens, skip_special_tokens=True)
    assert "".join(shown) == text
    assert whole.startswith(text)
    assert not any(stop in text for stop in stops)
    assert (text == whole) or any(ends)


class Template(Letters):
    """A tokenizer with a chat template; it makes a token of each character."""

    def __init__(self, template: str | None, *, bos: int | None = None) -> None:
        self.chat_template, self.bos_token_id, self.eos_token_id = template, bos, None

    def apply_chat_template(self, chat: list[dict[str, str]], **_: object) -> str:
        return (self.chat_template or "").replace("$", chat[0]["content"])

    def __call__(self, text: str, **_: object) -> SimpleNamespace:
        return SimpleNamespace(input_ids=[ord(character) for character in text])


def test_the_opening_is_what_comes_before_the_words_of_a_user() -> None:
    assert encode_opening(Template("<u>$<a>")) == [*map(ord, "<u>")]
    assert encode_opening(Template("$<a>", bos=5)) == [5]
    assert encode_opening(Template(None, bos=5)) == [5]


def test_no_opening_is_refused() -> None:
    with pytest.raises(CassandraError, match="chat template must have the prompt in its text"):
        encode_opening(Template("<u>"))
    with pytest.raises(CassandraError, match="must have a token to begin a text with"):
        encode_opening(Template(None))


class Bytes:
    """A tokenizer whose tokens are bytes of UTF-8."""

    def decode(self, tokens: list[int], **_: bool) -> str:
        return bytes(tokens).decode(errors="replace")


@given(st.binary(max_size=100) | st.text("aé€😀", max_size=40).map(str.encode))
def test_no_character_is_split_and_the_last_tokens_are_enough(data: bytes) -> None:
    growing, shown = ReplyText(Bytes()), []
    for number, token in enumerate(data, start=1):
        growing.add(token)
        assert growing.text == data[:number].decode(errors="replace")
        shown.append(growing.new())
        assert data.decode(errors="replace").startswith("".join(shown))
    shown.append(growing.new(last=True))
    assert "".join(shown) == data.decode(errors="replace")
