"""Build the log-probabilities in response bodies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cassandra_spec.drafting import Score

_PARTIAL = "\N{REPLACEMENT CHARACTER}"


class TokenTexts:
    """The text of single tokens, by a tokenizer that no other thread uses at the same time."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._known: dict[int, str] = {}

    def text(self, token: int) -> str:
        """Return the text of a token, with a replacement character for an incomplete character."""
        if token not in self._known:
            self._known[token] = self._tokenizer.decode([token], skip_special_tokens=False)
        return self._known[token]

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
        text = self.text(token)
        octets = None if _PARTIAL in text else list(text.encode())
        return {"token": text, "logprob": logprob, "bytes": octets}

    def completion(self, scores: Sequence[Score], offset: int) -> dict[str, Any]:
        """Return the ``logprobs`` of a completion, whose first token begins at a character."""
        tokens = [self.text(each.token) for each in scores]
        offsets = [offset + sum(map(len, tokens[:at])) for at in range(len(tokens))]
        return {
            "tokens": tokens,
            "token_logprobs": [each.logprob for each in scores],
            "top_logprobs": [self._top(each) for each in scores],
            "text_offset": offsets,
        }

    def _top(self, score: Score) -> dict[str, float] | None:
        """Return the top tokens and the token itself, without duplicates of a text."""
        if score.logprob is None:
            return None
        logprobs = dict[str, float]()
        for token, logprob in (*score.top, (score.token, score.logprob)):
            text = self.text(token)
            logprobs[text] = max(logprob, logprobs.get(text, logprob))
        return logprobs
