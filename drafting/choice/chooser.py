"""Choose the tokens of one reply from rows of the target's logits."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.drafting.choice.processors import Logits
from cassandra_spec.drafting.choice.sampling import (
    Probabilities,
    distribution,
    require_finite,
    top_tokens,
    verify,
)
from cassandra_spec.drafting.grammar.guide import guided
from cassandra_spec.drafting.grammar.state import GrammarState
from cassandra_spec.drafting.levels import accept_greedy
from cassandra_spec.drafting.proposal import Node, Proposal
from cassandra_spec.drafting.settings import GREEDY, Settings
from cassandra_spec.golden import CassandraError


@dataclasses.dataclass(frozen=True)
class Score:
    """Log-probabilities of the target at one position: float32, before processors."""

    token: int
    logprob: float | None  # None for the first token of a prompt
    top: tuple[tuple[int, float], ...]  # top tokens, most probable first


def score(logits: Logits, token: int, count: int) -> Score:
    """Return the log-probabilities of ``token`` and of the ``count`` most probable tokens.

    They depend on the row alone, bit for bit.
    """
    shifted = logits - logits.max()
    total = np.log(np.exp(shifted).sum(dtype=np.float64))

    def logprob(at: int) -> float:
        return float(np.float32(shifted[at] - total))

    top = top_tokens(logits, count) if count else []
    return Score(token, logprob(token), tuple((at, logprob(at)) for at in top))


class _Lazy(dict[int, int]):
    """Sequence whose values are computed at first access."""

    def __init__(self, compute: Callable[[int], int]) -> None:
        self._compute = compute

    def __missing__(self, key: int) -> int:
        value = self[key] = self._compute(key)
        return value


class Chooser:
    """Choose the tokens of one reply: apply processors, sample, and record log-probabilities.

    ``scores`` receives the log-probabilities of the tokens, beginning with the prompt's if the
    settings ask for them. Rows are processed along the accepted path only, each after all tokens
    before it are final, so the state of a processor never has to be rolled back.
    """

    def __init__(
        self,
        prompt: Sequence[int],
        settings: Settings,
        random: np.random.Generator | None = None,
        scores: list[Score] | None = None,
    ) -> None:
        self._prompt, self._settings = prompt, settings
        self._random = np.random.default_rng(settings.seed) if random is None else random
        self._states = [each.begin(prompt) for each in settings.processors]
        grammars = [each for each in self._states if isinstance(each, GrammarState)]
        self._grammar = grammars[0] if grammars else None
        self._over = False  # a stop token was chosen
        self._scores: list[Score] = [] if scores is None else scores
        self._chosen: list[Score] = []  # since the last emitted tokens
        if settings.prompt_logprobs:
            self._scores.append(Score(prompt[0], None, ()))

    def choose(
        self, proposal: Proposal, logits: NDArray[np.float32]
    ) -> tuple[tuple[int, ...], int]:
        """Return the accepted nodes, and the token after them.

        ``logits`` [1 + nodes, vocabulary] are the target's. Raises :class:`CassandraError` if they
        are not finite, a processor leaves no token, or a sampled proposal is not a chain.
        """
        require_finite(logits)
        if self._settings.sampling == GREEDY:
            return self._choose_greedy(proposal.nodes, logits)
        if not proposal.is_chain:
            raise CassandraError("a proposal must be a chain under sampling, not a tree")
        drafted, q = proposal.tokens, proposal.q(logits.shape[-1])
        n, last = verify(self._distributions(drafted, logits), q, drafted, self._random)
        self._take(last, logits[n])
        return tuple(range(n)), last

    def propose(self, draft: Callable[[], Proposal], budget: int) -> Proposal:
        """Return a proposal of at most ``budget`` nodes, including the tokens that a grammar
        forces.

        ``draft`` is called for the proposal, except where the grammar determines the next token or
        the budget is zero.
        """
        state = self._grammar
        if state is None or not (budget and self._settings.drafts_grammar):
            return draft()
        return guided(Proposal() if state.guess() is not None else draft(), state, budget)

    def forced(self, limit: int) -> list[int]:
        """Append the next tokens that a grammar forces, at most ``limit``, and return them.

        No logits can change them, so they need no row of the target. A reply that draws a random
        number per token, or needs log-probabilities, gets none here and computes them one by one.
        """
        tokens, settings = list[int](), self._settings
        alone = settings.sampling != GREEDY or settings.logprobs is not None
        if self._grammar is None or alone or not settings.drafts_grammar:
            return tokens
        while len(tokens) < limit and not self._over:
            token = self._grammar.forced()
            if token is None:
                break
            tokens.append(token)
            self._advance(token)
        return tokens

    def first(self, logits: NDArray[np.float32]) -> int:
        """Return the token chosen from a row [vocabulary] without drafts."""
        return self.choose(Proposal(), logits[None])[1]

    def read_prompt(self, position: int, logits: NDArray[np.float32]) -> None:
        """Score the prompt tokens that follow these rows; the first row is at ``position``."""
        count = self._settings.logprobs or 0
        for row, token in zip(require_finite(logits), self._prompt[position + 1 :], strict=False):
            self._scores.append(score(row, token, count))

    def settle(self, count: int) -> None:
        """Emit the scores of the first ``count`` tokens chosen since the last call; drop the rest.

        The reply was cut after these tokens.
        """
        self._scores += self._chosen[:count]
        self._chosen.clear()

    def _choose_greedy(
        self, nodes: Sequence[Node], logits: NDArray[np.float32]
    ) -> tuple[tuple[int, ...], int]:
        def best(row: int) -> int:
            token = int(self._process(logits[row]).argmax())
            self._take(token, logits[row])
            return token

        tokens = _Lazy(best)
        path = accept_greedy(nodes, tokens)
        return path, tokens[path[-1] + 1 if path else 0]

    def _distributions(
        self, drafted: Sequence[int], logits: NDArray[np.float32]
    ) -> Iterator[Probabilities]:
        """Yield the target's distribution of each row; asking for the next accepts the token."""
        for row, token in zip(logits, drafted, strict=False):
            yield distribution(self._process(row), self._settings.sampling)
            self._take(token, row)
        yield distribution(self._process(logits[-1]), self._settings.sampling)

    def _process(self, row: Logits) -> Logits:
        """Return the row after all processors; return it unchanged after a stop token."""
        if not self._states or self._over:
            return row
        row = row.copy()
        for state in self._states:
            state.apply(row)
        if not np.isfinite(row.max()):
            raise CassandraError("processors must leave at least one token, and finite logits")
        return row

    def _take(self, token: int, row: Logits) -> None:
        if self._settings.logprobs is not None:
            self._chosen.append(score(row, token, self._settings.logprobs))
        self._advance(token)

    def _advance(self, token: int) -> None:
        self._over = self._over or token in self._settings.stop_tokens
        for state in self._states:
            if not self._over:
                state.advance(token)
