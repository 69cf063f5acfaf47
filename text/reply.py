"""The text of a growing reply: the part that can be shown, and the end at stop strings."""

from __future__ import annotations

import inspect
import json
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from cassandra_spec.golden import CassandraError
from cassandra_spec.golden.model_config import read_stop_tokens
from cassandra_spec.text.bounded import TextChild

TEMPLATE_SECONDS = 10.0
TEMPLATE_BYTES = 1 << 20
"""Limits of a chat template: run time, and text beside the prompt."""

_ROOM = 1 << 16
_ROOM_OF_TOKEN, _ROOM_OF_CHARACTER = 256, 1024
"""Maximum bytes of memory that a tokenizer needs."""

_MARK = "WORDSOFAUSER"  # placeholder prompt that no template changes or contains
_PROMPT_BYTES = 1 << 24
_CHILDREN: weakref.WeakKeyDictionary[Any, tuple[str, TextChild]] = weakref.WeakKeyDictionary()
_CHILDREN_LOCK = threading.Lock()
_UNFINISHED = "\N{REPLACEMENT CHARACTER}"  # the tokenizer's output for an incomplete character
_WINDOW = 16  # tokens whose text may depend on one another


Prompt = str | Sequence[Mapping[str, Any]]
"""A user's text, or the messages of a chat with ``role`` and ``content``."""


Turn = Literal["reply", "continue", "none"]
"""End of a prompt: with the opening of a reply, within the last message, or after it."""


def encode_prompt(
    tokenizer: Any,
    prompt: Prompt,
    *,
    raw: bool = False,
    turn: Turn = "reply",
    tools: Sequence[Mapping[str, Any]] = (),
) -> list[int]:
    """Return the tokens of a prompt, in the chat template if the tokenizer has one.

    ``raw`` text is encoded without a template; the rest is as for :func:`prompt_text`.
    """
    special = raw or not tokenizer.chat_template
    text = prompt_text(tokenizer, prompt, raw=raw, turn=turn, tools=tools)
    return encode_text(tokenizer, text, special=special)


def encode_opening(tokenizer: Any) -> list[int]:
    """Return the tokens before a user's words, at least one. Raises :class:`CassandraError`."""
    before, mark, _ = prompt_text(tokenizer, _MARK).partition(_MARK)
    if not mark:
        raise CassandraError("the chat template must have the prompt in its text, and has not")
    starts = (tokenizer.bos_token_id, tokenizer.eos_token_id)
    tokens = encode_text(tokenizer, before, special=not tokenizer.chat_template)
    tokens = tokens or [token for token in starts if token is not None][:1]
    if not tokens:
        raise CassandraError("the tokenizer must have a token to begin a text with, and has none")
    return tokens


def encode_text(tokenizer: Any, text: str, *, special: bool = True) -> list[int]:
    """Return the tokens of a text; ``special`` adds the tokenizer's own special tokens."""
    _require_room(_ROOM_OF_CHARACTER * len(text))
    return list(tokenizer(text, add_special_tokens=special).input_ids)


def template_arguments(tokenizer: Any) -> frozenset[str]:
    """Return the names that variables of a chat template cannot have."""
    own = inspect.signature(tokenizer.apply_chat_template).parameters
    return frozenset({"self", "messages", "tools", "documents", *own})


def prompt_text(
    tokenizer: Any,
    prompt: Prompt,
    *,
    raw: bool = False,
    turn: Turn = "reply",
    tools: Sequence[Mapping[str, Any]] = (),
    variables: Mapping[str, Any] | None = None,
) -> str:
    """Return the text of a prompt, in the chat template if the tokenizer has one.

    ``turn`` selects what the template appends after the last message. ``tools`` and ``variables``
    are passed to the template, which may ignore them. Raises :class:`CassandraError` if several
    messages have no template, or if the template fails or exceeds its limits of time or text size.
    No variable may have a name of :func:`template_arguments`.
    """
    chat = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
    if raw or not tokenizer.chat_template:
        if len(chat) > 1:
            raise CassandraError("the tokenizer must have a chat template for several messages")
        return chat[0]["content"]
    return _child(tokenizer).text(
        lambda request: tokenizer.apply_chat_template(
            request[0],
            tools=request[2] or None,
            tokenize=False,
            add_generation_prompt=request[1] == "reply",
            continue_final_message=request[1] == "continue",
            **request[3],
        ),
        asked := [chat, turn, list(tools), dict(variables or {})],
        seconds=TEMPLATE_SECONDS,
        size=TEMPLATE_BYTES + 8 * len(json.dumps(asked)),
    )


def _child(tokenizer: Any) -> TextChild:
    """Return the child that applies the tokenizer's template; fork a new one if it changed."""
    state = repr((tokenizer.chat_template, getattr(tokenizer, "special_tokens_map", None)))
    with _CHILDREN_LOCK:
        known, child = _CHILDREN.get(tokenizer, ("", None))
        if child is None or known != state:
            child = TextChild("the chat template")
            _CHILDREN[tokenizer] = state, child
    return child


def _require_room(size: int) -> None:
    """Raise ``MemoryError`` here, because the tokenizer aborts the process when out of memory."""
    bytearray(_ROOM + size)


def read_prompt(name: str) -> str:
    """Return the stripped text of a file, or of standard input for ``-``.

    Raises :class:`CassandraError` if it is empty or not UTF-8.
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
    """Return the tokens that end a reply, from the tokenizer and the model directory's files.

    Raises :class:`FileError` if a file has invalid tokens there.
    """
    found = {tokenizer.eos_token_id, *read_stop_tokens(Path(directory))}
    return frozenset(found - {None})


class ReplyText:
    """Text of one reply's tokens.

    A reply ends with the token that completes a stop string, in its text with or without special
    tokens. The visible text has no special tokens and ends before the stop string.
    """

    def __init__(self, tokenizer: Any, stop_strings: Sequence[str] = ()) -> None:
        self.tokens: list[int] = []
        self.stopped = False  # a stop string was completed
        self._with_special = DecodedText(tokenizer, self.tokens, skip_special=False)
        self._without_special = DecodedText(tokenizer, self.tokens, skip_special=True)
        self._stops = tuple(stop_strings)
        self._shown = 0  # characters returned by new()

    def add(self, token: int) -> bool:
        """Append the next token; return True if a stop string is now complete."""
        self.tokens.append(token)
        if not self._stops:
            return False
        texts = [self._with_special.text(), self._without_special.text()]
        self.stopped = any(stop in text for stop in self._stops for text in texts)
        return self.stopped

    @property
    def text(self) -> str:
        """Text so far, up to the first stop string."""
        text = self._without_special.text()
        ends = [place for stop in self._stops if (place := text.find(stop)) >= 0]
        return text[: min(ends, default=len(text))]

    def new(self, *, last: bool = False) -> str:
        """Return the text that became visible since the last call; all of the rest if ``last``.

        Incomplete characters and possible beginnings of stop strings are held back.
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


class DecodedText:
    """Text of a growing token list; only the last tokens are decoded again."""

    def __init__(self, tokenizer: Any, tokens: Sequence[int], *, skip_special: bool) -> None:
        self._tokenizer, self._tokens, self._skip_special = tokenizer, tokens, skip_special
        self._before = ""  # text of the tokens before ``_start``
        self._start = 0

    def text(self) -> str:
        """Return the text of all tokens."""
        text = self._decode(self._start)
        if len(self._tokens) >= self._start + 2 * _WINDOW:
            start = len(self._tokens) - _WINDOW
            last = self._decode(start)
            if last and text.endswith(last):  # otherwise a character spans the start
                self._before += text.removesuffix(last)
                self._start, text = start, last
        return self._before + text

    def _decode(self, start: int) -> str:
        tokens = self._tokens[start:]
        _require_room(_ROOM_OF_TOKEN * len(tokens))
        text: str = self._tokenizer.decode(tokens, skip_special_tokens=self._skip_special)
        return text


def _overlap(text: str, stop: str) -> int:
    """Return the length of the longest end of a text that begins a stop string."""
    for length in range(min(len(stop) - 1, len(text)), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0
