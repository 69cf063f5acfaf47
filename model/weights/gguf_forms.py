"""Forms of the values of honoured keys of GGUF files, checked before the rest of a file is read."""

from __future__ import annotations

import dataclasses
import math
import reprlib
from collections.abc import Callable
from typing import Any

from cassandra_spec.golden.errors import FileError
from cassandra_spec.golden.model_config import NUMBERS, ROPE_NUMBERS, SIZES
from cassandra_spec.model.weights.gguf_header import NUMBER_TYPES, STRING, Header

TOKENS = "tokenizer.ggml.tokens"


@dataclasses.dataclass(frozen=True)
class Form:
    """A condition on a value; ``words`` say it behind "must be", and may have ``{tokens}``."""

    words: str
    fits: Callable[[Header, str], bool]

    def check(self, header: Header, key: str) -> None:
        """Raise :class:`FileError` that names the key if its value has another form."""
        if not self.fits(header, key):
            words = self.words.format(tokens=_tokens(header))
            raise FileError(
                f"{header.path}: {key} must be {words}, not {reprlib.repr(header.get(key))}"
            )


def _tokens(header: Header) -> int:
    entry = header.entries.get(TOKENS)
    return (entry.elements if entry else None) or 0


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return _is_integer(value) or (isinstance(value, float) and math.isfinite(value))


def _single(fits: Callable[[Any], bool]) -> Callable[[Header, str], bool]:
    return lambda header, key: fits(header.get(key))


def _several(fits: Callable[[Any], bool]) -> Callable[[Header, str], bool]:
    """Return a condition on a value, or on each of a list: llama.cpp reads one for each layer."""

    def rule(header: Header, key: str) -> bool:
        value = header.get(key)
        return all(map(fits, value if isinstance(value, list) else [value]))

    return rule


def _is_texts(header: Header, key: str) -> bool:
    entry = header.entries[key]
    return entry.elements is not None and entry.kind == STRING


def _is_of_each_token(header: Header, key: str) -> bool:
    entry = header.entries[key]
    fits = entry.elements == _tokens(header) and entry.kind in NUMBER_TYPES
    return fits or TOKENS not in header.entries  # which is refused itself


def _is_token(header: Header, key: str) -> bool:
    value, count = header.get(key), _tokens(header)
    return _is_integer(value) and 0 <= value and (value < count or TOKENS not in header.entries)


def _is_pattern(header: Header, key: str) -> bool:
    value = header.get(key)
    if isinstance(value, list):
        return all(isinstance(each, int) for each in value)
    return _is_integer(value) and bool(value >= 0)


def size(entry: str) -> Form:
    """Return the form of an integer that becomes an entry of the config."""
    limit = SIZES[entry]
    words = f"an integer from 1 to {limit}, the same in all layers"
    return Form(words, _several(lambda value: _is_integer(value) and 1 <= value <= limit))


def positive(limit: float) -> Form:
    """Return the form of a number above 0."""
    words = f"a number above 0 and at most {limit:g}"
    return Form(words, _single(lambda value: _is_number(value) and 0 < value <= limit))


def not_negative(limit: float) -> Form:
    """Return the form of a number that may be 0, which stands for none."""
    words = f"a number from 0 to {limit:g}"
    return Form(words, _single(lambda value: _is_number(value) and 0 <= value <= limit))


NUMBER = Form("a number", _single(_is_number))
COUNT = Form(
    f"an integer from 0 to {2**32 - 1}",
    _single(lambda value: _is_integer(value) and 0 <= value < 2**32),
)
PATTERN = Form("an integer from 0 on, or a list for the layers", _is_pattern)
ALIGNMENT = Form(
    "a power of two",
    _single(lambda value: _is_integer(value) and value > 0 and value & (value - 1) == 0),
)
FLAG = Form("true or false", _single(lambda value: isinstance(value, bool)))
TEXT = Form("a text", _single(lambda value: isinstance(value, str)))
TEXTS = Form("a list of texts", _is_texts)
OF_EACH_TOKEN = Form("a list of {tokens} numbers, one for each token", _is_of_each_token)
TOKEN = Form("a token of the vocabulary, below {tokens}", _is_token)
EPSILON = positive(NUMBERS["rms_norm_eps"])
THETA = positive(ROPE_NUMBERS["rope_theta"])
FACTOR = not_negative(ROPE_NUMBERS["factor"])
SCALE = positive(1e6)
CAP = not_negative(3e38)
