"""Choose the tokens of one reply from rows of the target's logits."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.drafting.choice.guide import guided
from cassandra_spec.drafting.choice.processors import Logits
from cassandra_spec.drafting.choice.sampling import (
    Picker,
    Probabilities,
    distribution,
    pick,
    require_finite,
    seed_of,
    top_tokens,
    verify,
)
from cassandra_spec.drafting.proposal import Node, Proposal, child
from cassandra_spec.drafting.settings import Settings
from cassandra_spec.golden import CassandraError
from cassandra_spec.text.grammar.state import GrammarState


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


class Chooser:
    """Choose the tokens of one reply: apply processors, sample, and record log-probabilities.

    ``scores`` receives the log-probabilities of the tokens, beginning with the prompt's if the
    settings ask for them. Rows are processed along the accepted path only, each after all tokens
    before it are final, so the state of a processor never has to be rolled back. ``picker`` chooses
    by noise.
    """

    def __init__(
        self,
        prompt: Sequence[int],
        settings: Settings,
        *,
        scores: list[Score] | None = None,
        picker: Picker = pick,
    ) -> None:
        self._prompt, self.settings, self._pick = prompt, settings, picker
        self.seed = seed_of(settings.seed)
        self._random = np.random.default_rng(self.seed)  # draws for Eq. 1
        self._position = len(prompt)  # position of the next token
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
        are not finite, a processor leaves no token, or a proposal for Eq. 1 is not a chain.
        """
        require_finite(logits)
        if not self.settings.rejects:
            return self._follow(proposal.nodes, logits)
        if not proposal.is_chain:
            raise CassandraError("a proposal must be a chain for Eq. 1, not a tree")
        drafted, q = proposal.tokens, proposal.q(logits.shape[-1])
        n, last = verify(self._distributions(drafted, logits), q, drafted, self._random)
        self._take(last, logits[n])
        return tuple(range(n)), last

    def drafts(self, budget: int) -> bool:
        """Return True unless a grammar forces the next token, which then needs no draft."""
        state = self._guide(budget)
        return state is None or state.guess() is None

    def guide(self, proposal: Proposal, budget: int) -> Proposal:
        """Return a proposal of at most ``budget`` nodes with the tokens that a grammar forces."""
        state = self._guide(budget)
        return proposal if state is None else guided(proposal, state, budget)

    def _guide(self, budget: int) -> GrammarState | None:
        return self._grammar if budget and self.settings.drafts_grammar else None

    def first(self, logits: NDArray[np.float32]) -> int:
        """Return the token chosen from a row [vocabulary] without drafts."""
        return self.choose(Proposal(), logits[None])[1]

    def read_prompt(self, position: int, logits: NDArray[np.float32]) -> None:
        """Score the prompt tokens that follow these rows; the first row is at ``position``."""
        count = self.settings.logprobs or 0
        for row, token in zip(require_finite(logits), self._prompt[position + 1 :], strict=False):
            self._scores.append(score(row, token, count))

    def settle(self, count: int) -> None:
        """Emit the scores of the first ``count`` tokens chosen since the last call; drop the rest.

        The reply was cut after these tokens.
        """
        self._scores += self._chosen[:count]
        self._chosen.clear()

    def _follow(
        self, nodes: Sequence[Node], logits: NDArray[np.float32]
    ) -> tuple[tuple[int, ...], int]:
        """Choose token by token as long as the tree has them."""
        path, row = list[int](), 0
        while True:
            sampling, position = self.settings.sampling, self._position
            processed = self._process(logits[row])
            token = self._pick(processed, sampling, self.seed, position).token
            self._take(token, logits[row])
            below = child(nodes, row, token)
            if below is None:
                return tuple(path), token
            path.append(below)
            row = below + 1

    def _distributions(
        self, drafted: Sequence[int], logits: NDArray[np.float32]
    ) -> Iterator[Probabilities]:
        """Yield the target's distribution of each row; asking for the next accepts the token."""
        for row, token in zip(logits, drafted, strict=False):
            yield distribution(self._process(row), self.settings.sampling)
            self._take(token, row)
        yield distribution(self._process(logits[-1]), self.settings.sampling)

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
        if self.settings.logprobs is not None:
            self._chosen.append(score(row, token, self.settings.logprobs))
        self._advance(token)

    def _advance(self, token: int) -> None:
        self._position += 1
        self._over = self._over or token in self.settings.stop_tokens
        for state in self._states:
            if not self._over:
                state.advance(token)
