"""The tokens that a grammar allows next, along one reply."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.golden import CassandraError

Allowed = NDArray[np.bool_]


class GrammarState:
    """State of a grammar along a reply (:class:`cassandra_spec.drafting.ProcessorState`).

    ``matcher`` is an ``LLMatcher`` of llguidance, owned by this object, over the ``LLTokenizer``
    ``tokens``. Raises :class:`CassandraError` if the matcher reaches one of its limits.
    """

    def __init__(self, matcher: Any, tokens: Any) -> None:
        self._matcher, self._tokens = matcher, tokens
        self._allowed: Allowed | None = None
        self._over = False  # a stop token was consumed

    def allowed(self) -> Allowed:
        """Return a mask over the tokenizer's tokens: True where the token may come next."""
        if self._allowed is None:
            bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
            self._check()
            self._allowed = np.unpackbits(bits, bitorder="little").astype(np.bool_)
            self._allowed &= not self._over
        return self._allowed

    def forced(self) -> int | None:
        """Return the next token if the grammar allows only one."""
        tokens = np.flatnonzero(self.allowed())
        return int(tokens[0]) if len(tokens) == 1 else None

    def guess(self) -> int | None:
        """Return the next token if the grammar forces the next text.

        The token is the tokenizer's own encoding of this text. At the end of the forced text the
        reply may use a longer token instead.
        """
        forced = self.forced()
        if forced is not None:
            return forced
        text = self._matcher.compute_ff_bytes()
        tokens = self._tokens.tokenize_bytes(text)
        return tokens[0] if tokens and self.allowed()[tokens[0]] else None

    def apply(self, logits: NDArray[np.float32]) -> None:
        """Set the logits [vocabulary] of all forbidden tokens to -inf, in place."""
        allowed = self.allowed()[: len(logits)]
        logits[: len(allowed)][~allowed] = -np.inf
        logits[len(allowed) :] = -np.inf

    def advance(self, token: int) -> None:
        """Consume the next token, which must be allowed."""
        if not self._matcher.consume_token(token):
            self._check()
        self._allowed, self._over = None, token in self._tokens.eos_tokens

    def after(self, token: int) -> GrammarState | None:
        """Return the state after a token, or None if the token is forbidden."""
        allowed = self.allowed()
        if not (token < len(allowed) and allowed[token]):
            return None
        state = self.copy()
        state.advance(token)
        return state

    def copy(self) -> Self:
        """Return an independent copy of this state."""
        return type(self)(self._matcher.deep_copy(), self._tokens)

    def _check(self) -> None:
        if self._matcher.is_error():
            why = one_line(self._matcher.get_error())
            raise CassandraError(f"the grammar must let the reply go on: {why}")


def one_line(text: str) -> str:
    """Return the start of an llguidance error as one line."""
    return " ".join(text.split())[:200]
