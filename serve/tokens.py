"""Turn texts into tokens and back, for clients that count them (llama-server's interface)."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from cassandra_spec.serve.errors import ApiError, require_known
from cassandra_spec.serve.logprobs import TokenTexts
from cassandra_spec.serve.requests import Body
from cassandra_spec.text.reply import encode_text


class TokenizeRequest(Body):
    """The body of ``/tokenize``."""

    content: str
    add_special: bool = False  # add the tokenizer's own tokens, such as one at the beginning
    parse_special: bool = True  # read names of special tokens as these tokens
    with_pieces: bool = False  # return the text of each token, too


class DetokenizeRequest(Body):
    """The body of ``/detokenize``."""

    tokens: list[Annotated[int, Field(ge=0)]]


def tokenize(asked: TokenizeRequest, tokenizer: Any) -> dict[str, Any]:
    """Return the tokens of a text."""
    if not asked.parse_special:
        message = "parse_special must be true: this server does not support it"
        raise ApiError(400, message, param="parse_special", code="unsupported_parameter")
    tokens = encode_text(tokenizer, asked.content, special=asked.add_special)
    if not asked.with_pieces:
        return {"tokens": tokens}
    texts = TokenTexts(tokenizer)
    return {"tokens": [{"id": each, "piece": _piece(texts.octets(each))} for each in tokens]}


def _piece(octets: bytes) -> str | list[int]:
    """Return a token's text, or its bytes if they are part of a character."""
    try:
        return octets.decode()
    except UnicodeDecodeError:
        return list(octets)


def detokenize(asked: DetokenizeRequest, tokenizer: Any, *, vocabulary: int) -> dict[str, Any]:
    """Return the text of tokens."""
    require_known("tokens", asked.tokens, vocabulary)
    return {"content": tokenizer.decode(asked.tokens, skip_special_tokens=False)}
