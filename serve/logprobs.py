"""Build the log-probabilities in response bodies."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Sequence
from typing import Any

from cassandra_spec.drafting import Score
from cassandra_spec.serve.scheduler import Event
from cassandra_spec.text.reply import DecodedText

_BYTE = re.compile(r"<0x([0-9A-F]{2})>")
_SPACE = "\N{LOWER ONE EIGHTH BLOCK}"  # a space in SentencePiece's tokens


class TokenTexts:
    """Look up the texts and bytes of single tokens.

    ``tokenizer`` has a ``backend_tokenizer``; no other thread uses it at the same time.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._backend = tokenizer.backend_tokenizer
        self._added = self._backend.get_added_tokens_decoder()
        decoder = self._backend.decoder
        self._kinds = set(_kinds(json.loads(decoder.__getstate__()) if decoder else None))
        self._known: dict[int, bytes] = {}

    def octets(self, token: int) -> bytes:
        """Return the bytes of a token, which may be part of a character."""
        if token not in self._known:
            self._known[token] = self._bytes(token)
        return self._known[token]

    def text(self, token: int) -> str:
        r"""Return the text of a token; of a part of a character, ``bytes:\xf0\x9f``."""
        octets = self.octets(token)
        try:
            return octets.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{octet:02x}" for octet in octets)

    def _bytes(self, token: int) -> bytes:
        name = self._backend.id_to_token(token)
        if isinstance(name, str) and token not in self._added:
            if "ByteLevel" in self._kinds:
                table = _byte_of_character()
                return bytes(table[each] for each in name if each in table)
            if "ByteFallback" in self._kinds:
                byte = _BYTE.fullmatch(name)
                return bytes.fromhex(byte[1]) if byte else name.replace(_SPACE, " ").encode()
        text: str = self._tokenizer.decode([token], skip_special_tokens=False)
        return text.encode()

    def chat(self, scores: Sequence[Score]) -> dict[str, Any]:
        """Return the ``logprobs`` of a chat."""
        content = [
            {
                **self._entry(each.token, each.logprob),
                "top_logprobs": [self._entry(*one) for one in each.top],
            }
            for each in scores
        ]
        return {"content": content, "refusal": None}

    def _entry(self, token: int, logprob: float | None) -> dict[str, Any]:
        octets = list(self.octets(token))
        return {"token": self.text(token), "logprob": logprob, "bytes": octets}

    def completion(self, scores: Sequence[Score]) -> dict[str, Any]:
        """Return the ``logprobs`` of a completion, without the places of the tokens."""
        return {
            "tokens": [self.text(each.token) for each in scores],
            "token_logprobs": [each.logprob for each in scores],
            "top_logprobs": [self._top(each) for each in scores],
        }

    def _top(self, score: Score) -> dict[str, float] | None:
        """Return the top tokens and the token itself; a second one of a text has its number."""
        if score.logprob is None:
            return None
        logprobs = dict[str, float]()
        for token, logprob in dict([*score.top, (score.token, score.logprob)]).items():
            text = self.text(token)
            logprobs[f"token_id:{token}" if text in logprobs else text] = logprob
        return logprobs

    def places(self, echo: str, count: int) -> Places:
        """Return the places of tokens in a text: ``count`` tokens of a prompt, and a reply."""
        return Places(self._tokenizer, echo, count)


class Places:
    """Places of tokens in the text of a completion: characters before each.

    Tokens of a stop string have the place of the end of the text.
    """

    def __init__(self, tokenizer: Any, echo: str, count: int) -> None:
        self._tokenizer, self._echo, self._count = tokenizer, echo, count
        self._tokens: list[int] = []
        self._text = self._begin(0)
        self._length = len(echo)  # characters of the text so far

    def _begin(self, before: int) -> DecodedText:
        self._before, self._tokens = before, []
        return DecodedText(self._tokenizer, self._tokens, skip_special=True)

    def add(self, event: Event) -> list[int]:
        """Return the places of an event's tokens."""
        self._length += len(event.text)
        places = [self._place(each.token) for each in event.scores]
        return [min(place, self._length) for place in places] if event.finish_reason else places

    def _place(self, token: int) -> int:
        if self._count == 0 and self._before == 0 and self._echo:
            self._text = self._begin(len(self._echo))  # the reply begins
        self._count -= 1
        place = self._before + len(self._text.text().rstrip("\N{REPLACEMENT CHARACTER}"))
        self._tokens.append(token)
        return min(place, len(self._echo)) if self._count >= 0 else place


def _kinds(decoder: Any) -> Sequence[str]:
    """Return the kinds of decoders within one that the library ``tokenizers`` describes."""
    if not isinstance(decoder, dict):
        return ()
    below = [kind for each in decoder.get("decoders", ()) for kind in _kinds(each)]
    return [str(decoder.get("type")), *below]


@functools.cache
def _byte_of_character() -> dict[str, int]:
    """Return the byte of each character of byte-level tokens (GPT-2's table)."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [byte for byte in range(256) if byte not in shown]
    return {chr(byte): byte for byte in shown} | {chr(256 + at): b for at, b in enumerate(rest)}
