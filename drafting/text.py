"""The text of a reply while it grows: what is ready to be shown, and where stop strings end it."""

from __future__ import annotations

import json
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from cassandra_spec.drafting.bounded import TextChild
from cassandra_spec.golden import CassandraError
from cassandra_spec.golden.model_config import read_stop_tokens

TEMPLATE_SECONDS = 10.0
TEMPLATE_BYTES = 1 << 20
"""What the chat template of a model may take, and make beside the prompt."""

_ROOM = 1 << 16
_ROOM_OF_TOKEN, _ROOM_OF_CHARACTER = 256, 1024
"""Bytes of memory that a tokenizer needs, at most."""

_MARK = "WORDSOFAUSER"  # a prompt that no template changes or has in its own text
_PROMPT_BYTES = 1 << 24
_CHILDREN: weakref.WeakKeyDictionary[Any, tuple[str, TextChild]] = weakref.WeakKeyDictionary()
_CHILDREN_LOCK = threading.Lock()
_UNFINISHED = "\N{REPLACEMENT CHARACTER}"  # what a tokenizer makes of a part of a character
_WINDOW = 16  # tokens whose text may still depend on one another


Prompt = str | Sequence[Mapping[str, Any]]
"""The text of a user, or the messages of a chat with ``role`` and ``content``."""


Turn = Literal["reply", "continue", "none"]
"""How a prompt ends: with the opening of a reply, within the last message, or with its end."""


def encode_prompt(
    tokenizer: Any,
    prompt: Prompt,
    *,
    raw: bool = False,
    turn: Turn = "reply",
    tools: Sequence[Mapping[str, Any]] = (),
) -> list[int]:
    """The tokens of a prompt, in the chat template if the tokenizer has one.

    ``turn`` says what the template puts behind the last message, which shows ``tools`` if it knows
    them. ``raw`` text is taken as it is,
    without a template. Raises :class:`CassandraError` if the template is missing for several
    messages, fails, takes too long or makes too much text.
    """
    special = raw or not tokenizer.chat_template
    text = _in_template(tokenizer, prompt, raw=raw, turn=turn, tools=tools)
    return encode_text(tokenizer, text, special=special)


def encode_opening(tokenizer: Any) -> list[int]:
    """The tokens before the words of a user, at least one. Raises :class:`CassandraError`."""
    before, mark, _ = _in_template(tokenizer, _MARK).partition(_MARK)
    if not mark:
        raise CassandraError("the chat template must have the prompt in its text, and has not")
    starts = (tokenizer.bos_token_id, tokenizer.eos_token_id)
    tokens = encode_text(tokenizer, before, special=not tokenizer.chat_template)
    tokens = tokens or [token for token in starts if token is not None][:1]
    if not tokens:
        raise CassandraError("the tokenizer must have a token to begin a text with, and has none")
    return tokens


def encode_text(tokenizer: Any, text: str, *, special: bool = True) -> list[int]:
    """The tokens of a text, with the special ones that the tokenizer puts around it or without."""
    _require_room(_ROOM_OF_CHARACTER * len(text))
    return list(tokenizer(text, add_special_tokens=special).input_ids)


def _in_template(
    tokenizer: Any,
    prompt: Prompt,
    *,
    raw: bool = False,
    turn: Turn = "reply",
    tools: Sequence[Mapping[str, Any]] = (),
) -> str:
    chat = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
    if raw or not tokenizer.chat_template:
        if len(chat) > 1:
            raise CassandraError("the tokenizer must have a chat template for several messages")
        return chat[0]["content"]
    return _child(tokenizer).text(
        lambda asked: tokenizer.apply_chat_template(
            asked[0],
            tools=asked[2] or None,
            tokenize=False,
            add_generation_prompt=asked[1] == "reply",
            continue_final_message=asked[1] == "continue",
        ),
        [chat, turn, list(tools)],
        seconds=TEMPLATE_SECONDS,
        size=TEMPLATE_BYTES + 8 * len(json.dumps([chat, list(tools)])),
    )


def _child(tokenizer: Any) -> TextChild:
    """The child that applies a tokenizer's template, another one if the template has changed."""
    state = repr((tokenizer.chat_template, getattr(tokenizer, "special_tokens_map", None)))
    with _CHILDREN_LOCK:
        known, child = _CHILDREN.get(tokenizer, ("", None))
        if child is None or known != state:
            child = TextChild("the chat template")
            _CHILDREN[tokenizer] = state, child
    return child


def _require_room(size: int) -> None:
    """Raise ``MemoryError`` here: a tokenizer that gets no memory ends the process."""
    bytearray(_ROOM + size)


def read_prompt(name: str) -> str:
    """The text of a file, or with ``-`` of standard input, without spaces around it.

    Raises :class:`CassandraError` if there is none, or it is not UTF-8.
    """
    if name == "-":
        where, data = "standard input", sys.stdin.buffer.read(_PROMPT_BYTES + 1)
    else:
        with Path(name).open("rb") as file:
            where, data = name, file.read(_PROMPT_BYTES + 1)
    if len(data) > _PROMPT_BYTES:
        raise CassandraError(f"{where} must be a prompt of at most {_PROMPT_BYTES} bytes")
    try:
        text = data.decode().strip()
    except UnicodeDecodeError as error:
        raise CassandraError(f"{where} must be text in UTF-8 ({error})") from error
    if not text:
        raise CassandraError(f"{where} must be the text of a prompt, and is empty")
    return text


def stop_tokens(tokenizer: Any, directory: str | Path) -> frozenset[int]:
    """Tokens that end a reply, by the tokenizer and by the files of the model's directory.

    Raises :class:`FileError` if a file states another thing than tokens.
    """
    found = {tokenizer.eos_token_id, *read_stop_tokens(Path(directory))}
    return frozenset(found - {None})


class ReplyText:
    """Text of the tokens of one reply.

    A reply ends with the token that completes a stop string, in the text with special tokens or in
    the one without. The text that is shown has none, and ends before the stop string.
    """

    def __init__(self, tokenizer: Any, stop_strings: Sequence[str] = ()) -> None:
        self.tokens: list[int] = []
        self.stopped = False  # a stop string is complete
        self._with_special = _Decoded(tokenizer, self.tokens, skip_special=False)
        self._without_special = _Decoded(tokenizer, self.tokens, skip_special=True)
        self._stops = tuple(stop_strings)
        self._shown = 0  # characters

    def add(self, token: int) -> bool:
        """Take the next token; whether a stop string is complete now."""
        self.tokens.append(token)
        if not self._stops:
            return False
        texts = [self._with_special.text(), self._without_special.text()]
        self.stopped = any(stop in text for stop in self._stops for text in texts)
        return self.stopped

    @property
    def text(self) -> str:
        """The text so far, up to the first stop string."""
        text = self._without_special.text()
        ends = [place for stop in self._stops if (place := text.find(stop)) >= 0]
        return text[: min(ends, default=len(text))]

    def new(self, *, last: bool = False) -> str:
        """What can be shown and was not yet; all the rest if it is the ``last`` call.

        A character in the making and what may become a stop string are held back.
        """
        text = self.text
        ready = len(text) if last else self._ready(text)
        piece = text[self._shown : ready]
        self._shown = max(self._shown, ready)
        return piece

    def _ready(self, text: str) -> int:
        if text.endswith(_UNFINISHED):
            return 0
        held = max((_overlap(text, stop) for stop in self._stops), default=0)
        return len(text) - held


class _Decoded:
    """The text of tokens that become more, of which the last ones are decoded each time."""

    def __init__(self, tokenizer: Any, tokens: Sequence[int], *, skip_special: bool) -> None:
        self._tokenizer, self._tokens, self._skip_special = tokenizer, tokens, skip_special
        self._before = ""  # the text of the tokens before ``_start``
        self._start = 0

    def text(self) -> str:
        """The text of all tokens."""
        text = self._decode(self._start)
        if len(self._tokens) >= self._start + 2 * _WINDOW:
            start = len(self._tokens) - _WINDOW
            last = self._decode(start)
            if last and text.endswith(last):  # else a character lies across the start
                self._before += text.removesuffix(last)
                self._start, text = start, last
        return self._before + text

    def _decode(self, start: int) -> str:
        tokens = self._tokens[start:]
        _require_room(_ROOM_OF_TOKEN * len(tokens))
        text: str = self._tokenizer.decode(tokens, skip_special_tokens=self._skip_special)
        return text


def _overlap(text: str, stop: str) -> int:
    """Characters at the end of a text that a stop string begins with."""
    for length in range(min(len(stop) - 1, len(text)), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0
